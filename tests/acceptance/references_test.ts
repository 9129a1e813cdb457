import assert from "node:assert/strict";
import { test } from "node:test";
import { dmaReferences } from "../../neff.ts";
import { openNeuron, parseNeff } from "../../mod.ts";
import { membersOf, neffByHand } from "./by_hand.ts";

const side = (name: "from" | "to", variable: string, offset: number, sizes: readonly number[], steps: readonly number[]) => ({
  [name]: variable, [`${name}_off`]: offset, [`${name}_sizes`]: sizes, [`${name}_steps`]: steps,
});

test("the address of a transfer's reference is the resolved address of its variable plus its offset (P-126)", async () => {
  const variables = {
    SB: { type: "state-buffer", var_id: 4 }, x: { type: "input", var_id: 0, size: 8192 }, w: { type: "file", var_id: 1, size: 512, file_name: "w.bin" },
    t: { type: "virtual", var_id: 2, size: 4096, backing_variable_off: 12_288 }, y: { type: "output", var_id: 3, size: 64 },
  };
  const PARTITION = 0x40000;
  const dma = [{
    id: 0, queue: "q", semaphore: 8, desc: [
      { ...side("from", "x", 128, [64, 32], [1, 128]), ...side("to", "SB", 5 * PARTITION + 64, [64, 32], [1, PARTITION]) },
      { ...side("from", "w", 0, [512], [1]), ...side("to", "t", 3584, [512], [1]) },
      { from_arr: [side("from", "t", 0, [64], [1]), side("from", "SB", 127 * PARTITION, [64], [1])], ...side("to", "y", 0, [64], [1]), op: "add" },
    ],
  }];
  const members = membersOf({ target: "cayman", subgraphs: [variables], files: [["sg00/w.bin", new Uint8Array(512)]] })
    .map(([name, content]) => [name, name === "sg00/SP.json" ? JSON.stringify({ name: "sp", instr: "SP.bin", dma }) : content] as const);
  using neuron = openNeuron({ fake: "trn2", lnc: 1 });
  const neff = parseNeff(neffByHand(members));
  using model = await neuron.logicalCore(3).load(neff);
  const address = new Map([...model.subgraph(0).variables()].map((variable) => [variable.name, variable.address]));
  assert.equal(address.get("SB"), 0x7000000000);
  const references = [...dmaReferences(neff.subgraphs[0]!)];
  assert.equal(references.length, 7);
  for (const { reference, inside } of references) {
    assert.ok(inside);
    const { variable, offset, extent } = reference;
    assert.equal(model.resolve(variable, offset, { size: extent }), address.get(variable)! + offset, variable);
  }
  assert.throws(() => model.resolve("t", 3585, { size: 512 }), /invalid offset/);
});
