/** The models that examples find beside them: made here, small, the same bytes everywhere. */
import { buildNeff, type ModelSpec } from "../../lib/neff_write/mod.ts";

const KiB = 1024;

function perceptron(hidden: number): ModelSpec {
  const rows = (variable: string, bytes: number) => ({ variable, sizes: [bytes, 128], steps: [1, bytes] });
  const buffer = (bytes: number) => ({ variable: "SB", sizes: [bytes, 128], steps: [1, 0x40000] });
  return {
    compression: "stored",
    target: "cayman",
    header: { name: "model.neff" },
    subgraphs: [{
      variables: [
        { name: "SB", type: "state-buffer" },
        { name: "input0", type: "input", size: 32 * KiB, tensor: { shape: [128, 128], dtype: "bfloat16" } },
        { name: "weight0", type: "file", data: new Uint8Array(128 * hidden).fill(7), descr: "|u1", arrayShape: [128, hidden], alignment: 4 * KiB },
        { name: "hidden0", type: "virtual", size: 64 * KiB, offset: 0, fabricPath: "main" },
        { name: "output0", type: "output", size: 64 * KiB, tensor: { shape: [128, 128], dtype: "float32" } },
      ],
      queues: { qIn: { owner: "pool", type: "in", semaphores: [8] }, qOut: { owner: "sp", type: "out", semaphores: [9] } },
      engines: {
        pe: { instructions: 32 },
        pool: { instructions: 8, blocks: [{ queue: "qIn", semaphore: 8, transfers: [{ from: rows("input0", 256), to: buffer(256) }] }] },
        sp: { instructions: 8, blocks: [{ queue: "qOut", semaphore: 9, transfers: [{ from: buffer(512), to: rows("output0", 512) }] }] },
      },
    }],
  };
}

/** File name and bytes: a model, and another build of it with a wider layer. */
export function exampleModels(): readonly (readonly [name: string, bytes: Uint8Array])[] {
  return [["model.neff", buildNeff(perceptron(256))], ["other.neff", buildNeff(perceptron(512))]];
}
