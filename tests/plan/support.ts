/** What the tests of plans share. */
import { buildNeff, type DefinitionSpec, type ModelSpec, type VariableSpec } from "../../lib/neff_write/build.ts";
import { type Neff, parseNeff } from "../../lib/neff/mod.ts";
import { planNeff } from "../../lib/plan/build.ts";
import type { Plan } from "../../lib/plan/plan.ts";

/** A model with one subgraph per list of variables. */
export function model(subgraphs: readonly (readonly VariableSpec[])[], options: Omit<Partial<ModelSpec>, "subgraphs"> = {}): Neff {
  return modelOf(subgraphs.map((variables) => ({ variables })), options);
}

/** A model from whole definitions. */
export function modelOf(subgraphs: readonly DefinitionSpec[], options: Omit<Partial<ModelSpec>, "subgraphs"> = {}): Neff {
  return parseNeff(buildNeff({ compression: "stored", ...options, subgraphs }));
}

/** The plan of a model with one subgraph. */
export function planOf(variables: readonly VariableSpec[]): Plan {
  return planNeff(model([variables]))[0] as Plan;
}

/** The least a definition needs besides what a test is about. */
export const LEAST: readonly VariableSpec[] = [
  { name: "SB", type: "state-buffer" },
  { name: "in", type: "input", size: 4096 },
  { name: "out", type: "output", size: 128 },
];

/** Bytes that differ from place to place. */
export function pattern(length: number, seed = 1): Uint8Array {
  return Uint8Array.from({ length }, (_, index) => (index * 31 + (index >> 8) * 7 + seed) & 0xff);
}

/** A variable of every type a definition can have, two subgraphs that refer to each other; nothing real has all of them. */
export function everyType(): VariableSpec[][] {
  return [
    [
      { name: "SB", type: "state-buffer" },
      { name: "in", type: "input", size: 4096, tensor: { shape: [32, 32], dtype: "float32" } },
      { name: "out", type: "output", size: 128 },
      { name: "weights", type: "file", data: pattern(8192), alignment: 8192, prefix: "w: ", pipe: 3 },
      { name: "tmp", type: "tmp-buf", size: 300, alignment: 256 },
      { name: "scratch", type: "virtual", size: 4096, offset: 0 },
      { name: "again", type: "virtual", size: 64, offset: 1024, backing: "main" },
      { name: "common", type: "virtual", size: 512, offset: 4096, backing: "shared" },
      { name: "to weights", type: "pointer", to: "weights" },
      { name: "to in", type: "pointer", to: "in" },
      { name: "ids", type: "list", of: ["weights", "in"] },
      { name: "table", type: "ptr-table", of: ["weights", "scratch", "in", "out", "to in"] },
      { name: "DGETable0", type: "dge-table", of: ["in", "out"] },
      { name: "SB{1}", type: "remote" },
      { name: "tmp{1}", type: "remote" },
    ],
    [
      { name: "SB", type: "state-buffer" },
      { name: "in", type: "input", size: 4096, tensor: { shape: [32, 32], dtype: "float32" } },
      { name: "out", type: "output", size: 128 },
      { name: "part", type: "virtual", size: 256, offset: 8192, backing: "sharded" },
      { name: "tmp", type: "tmp-buf", size: 4096 },
      { name: "weights{0}", type: "remote" },
      { name: "SB{0}", type: "remote" },
      { name: "in{0}", type: "remote" },
    ],
  ];
}
