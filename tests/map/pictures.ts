/** Random memories for property tests. */
import fc from "fast-check";
import { usageNames } from "../../lib/abi/runtime_dmem.ts";
import type { AllocationInput, PictureInput, VariableInput } from "../../lib/map/model.ts";

const PAGE = 4096;
const HBM = 2 ** 28;

/** One random HBM's allocations as (gap, size, usage, owner) and variables as shares of allocations. */
const memory = fc.array(
  fc.record({
    gapPages: fc.oneof(fc.constant(0), fc.nat(300)),
    bytes: fc.integer({ min: 1, max: 700_000 }),
    isRequested: fc.boolean(),
    usage: fc.constantFrom(...usageNames, "model_code", "driver_memory", "something new"),
    model: fc.constantFrom(null, "a", "b"),
    core: fc.constantFrom(null, 0, 1),
    variables: fc.array(fc.record({ from: fc.double({ min: 0, max: 0.999, noNaN: true }), part: fc.double({ min: 0.001, max: 1, noNaN: true }), model: fc.constantFrom(null, "a", "b") }), { maxLength: 12 }),
  }),
  { maxLength: 40 },
);

/** Random but valid input of a picture with one device of two HBMs. */
export const pictureInputs: fc.Arbitrary<PictureInput> = fc.tuple(memory, memory, fc.boolean()).map(([first, second, hasSmall]) => {
  const bases = [0, 2 ** 36];
  const allocations: AllocationInput[] = [];
  const variables: VariableInput[] = [];
  [first, second].forEach((list, hbm) => {
    let at = bases[hbm]! + 2 ** 24;
    for (const one of list) {
      at += one.gapPages * PAGE;
      const size = Math.ceil(one.bytes / PAGE) * PAGE;
      if (at + size > bases[hbm]! + HBM) break;
      allocations.push({ device: 3, start: at, size: one.isRequested ? one.bytes : size, isRequested: one.isRequested, usage: one.usage, model: one.model, core: one.core, hint: null });
      one.variables.forEach(({ from, part, model }, index) => {
        const start = at + Math.floor(from * one.bytes);
        variables.push({ name: `v${variables.length}_${index}`, device: 3, start, size: Math.max(1, Math.floor((at + one.bytes - start) * part)), type: "virtual", model });
      });
      at += size;
    }
  });
  return {
    title: "random", source: "fast-check",
    devices: [{ index: 3, name: "fake", hbms: bases.map((base, index) => ({ index, base, size: HBM, cores: [index], smallPoolBytes: hasSmall ? 2 ** 26 : 0 })) }],
    allocations, variables,
  };
});

/** A picture's worth of `count` variables: a third of them in a scratchpad, where they overlap. */
export function manyVariables(count: number): PictureInput {
  const inScratch = Math.floor(count / 3);
  const start = 2 ** 24;
  const scratch = 2 ** 26;
  const allocations: AllocationInput[] = [{ device: 0, start, size: scratch, usage: "SCRATCHPAD", core: 0, hint: "scratchpad" }];
  const variables: VariableInput[] = [];
  for (let index = 0; index < inScratch; index++) {
    const size = 4096 * (1 + (index * 7) % 40);
    variables.push({ name: `scratch_${index}`, device: 0, start: start + (index * 4096 * 3) % (scratch - size), size, type: "virtual", model: "large", subgraph: "sg00" });
  }
  let at = start + scratch;
  for (let index = inScratch; index < count; index++) {
    const size = 4096 * (1 + (index % 9));
    allocations.push({ device: 0, start: at, size, usage: index % 2 === 0 ? "WEIGHT" : "TENSOR", model: index % 3 === 0 ? "large" : "small", core: 0, hint: `variable_${index}` });
    variables.push({ name: `variable_${index}`, device: 0, start: at, size, type: index % 2 === 0 ? "file" : "input", model: index % 3 === 0 ? "large" : "small", subgraph: "sg00" });
    at += size + (index % 50 === 0 ? 8192 : 0);
  }
  return {
    title: `${count} variables`, source: "made for a test",
    devices: [{ index: 0, name: "fake trn1", hbms: [{ index: 0, base: 0, size: 2 ** 34, cores: [0] }, { index: 1, base: 2 ** 36, size: 2 ** 34, cores: [1] }] }],
    allocations, variables,
  };
}
