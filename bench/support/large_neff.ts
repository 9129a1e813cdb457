import { buildModel } from "../../lib/neff_write/build.ts";
import { writeNeffFile } from "../../lib/neff_write/mod.ts";

const MIB = 2 ** 20;
const BLOCK = 8 * MIB;

/** Bytes that look like bfloat16 weights: a random low byte, a high byte of few values. Deflate takes about a fifth off. */
export function weights(): Uint8Array<ArrayBuffer> {
  const block = new Uint32Array(BLOCK / 4);
  let state = 0x9e3779b9;
  for (let i = 0; i < block.length; i++) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    // Two values: sign and seven mantissa bits random, exponents near that of 0.01.
    block[i] = (state & 0x80ff80ff) | 0x3c003c00 | (((state >>> 9) & 3) << 8) | (((state >>> 25) & 3) << 24);
  }
  return new Uint8Array(block.buffer);
}

/** Where the definitions lie in the archive. */
export type DefinitionsAt = "first" | "last";

/**
 * Writes a model with one constant of `size` bytes, in pieces: neither the writer nor a
 * reader of it needs the memory. Every 64 KiB of the constant begin with their number.
 */
export async function writeLargeNeff(path: string, size: number, definitions: DefinitionsAt): Promise<number> {
  const spec = buildModel({
    target: "cayman",
    packager: 2,
    subgraphs: [{
      variables: [
        { name: "x", type: "input", size: 4096 },
        { name: "w", type: "file", data: { size, chunks: () => constant(size) } },
        { name: "y", type: "output", size: 4096 },
      ],
    }],
  });
  const large = spec.members.find(({ name }) => name === "sg00/value_w.npy")!;
  const others = spec.members.filter((member) => member !== large);
  return await writeNeffFile(path, { ...spec, members: definitions === "first" ? [...others, large] : [large, ...others] });
}

function* constant(size: number): Generator<Uint8Array> {
  const block = weights();
  const numbers = new DataView(block.buffer);
  for (let at = 0; at < size; at += BLOCK) {
    for (let offset = 0; offset < BLOCK; offset += 65_536) numbers.setUint32(offset, (at + offset) / 65_536, true);
    yield block.subarray(0, Math.min(BLOCK, size - at));
  }
}
