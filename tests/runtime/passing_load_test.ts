import assert from "node:assert/strict";
import { test } from "node:test";
import { openNeff, parseNeff } from "../../lib/neff/mod.ts";
import { buildModel, type NeffSpec, writeNeff } from "../../lib/neff_write/mod.ts";
import type { LoadOptions } from "../../lib/runtime/model_load.ts";
import { chunksOn, machineOf, open } from "./support.ts";

const bytes = (length: number, seed: number) => Uint8Array.from({ length }, (_, index) => (index * 31 + seed * 7) % 251);

/** Two cores, constants that are kept and constants that are not, one of them on both cores. */
function spec(): NeffSpec {
  const subgraph = (seed: number) => ({
    variables: [
      { name: "x", type: "input", size: 4096 },
      { name: "small", type: "file", data: bytes(2000, seed) },
      { name: "large", type: "file", data: bytes(700_000, seed + 1), alignment: 4096 },
      { name: "raw", type: "file", data: bytes(300_001, seed + 2), raw: true },
      { name: "t", type: "tmp-buf", size: 8192 },
      { name: "y", type: "output", size: 4096 },
    ] as const,
    engines: { pe: { instructions: 8 }, sp: { instructions: 2 } },
  });
  return buildModel({ padTo: 10_240, subgraphs: [subgraph(1), subgraph(10)] });
}

/** Loads a file and gives every variable's address and the bytes of its constants. */
async function loaded(file: Uint8Array, load: Partial<LoadOptions>, keptBytes?: number) {
  using neuron = open({ lnc: 2 });
  await using passing = keptBytes === undefined ? undefined : await openNeff(file, { keptBytes });
  const model = await neuron.logicalCore(0).load(passing?.neff ?? parseNeff(file), { ...load, name: "m", source: passing });
  const addresses = [0, 1].flatMap((index) => [...model.subgraph(index).variables()].map(({ name, address }) => [name, address]));
  const contents = model.parts.flatMap(({ staged }) => [...staged.allocator.live].map((memory) => [memory.hint, memory.address, memory.usage, Buffer.from(memory.read()).toString("base64")]));
  const usage = neuron.memory();
  await model.unload();
  return { addresses, contents, usage };
}

test("loading in one pass gives the addresses, bytes and usage of loading from memory, wherever the definitions lie", async () => {
  const model = spec();
  const whole = await loaded(writeNeff(model), {});
  const orders: readonly (readonly [string, (name: string) => boolean])[] = [
    ["as compilers write it", () => false], ["definitions last", (name) => name.endsWith("def.json")], ["JSON last", (name) => name.endsWith(".json")],
    ["instructions last", (name) => /(PE|SP)\.bin$/.test(name)], ["constants last", (name) => name.includes("value_")],
  ];
  for (const [order, last] of orders) {
    const members = [...model.members.filter(({ name }) => !last(name)), ...model.members.filter(({ name }) => last(name))];
    const file = writeNeff({ ...model, members });
    const reference = order === "as compilers write it" ? whole : await loaded(file, {});
    for (const keptBytes of [0, 10_000, 1_000_000, 2 ** 25]) assert.deepEqual(await loaded(file, {}, keptBytes), reference, `${order}, ${keptBytes} bytes kept`);
  }
});

test("a file that turns out to be damaged, or to lack a constant, leaves nothing on the device", async () => {
  const machine = machineOf({ product: "trn2" });
  const model = spec();
  const damaged = writeNeff({ ...model, compression: "stored" });
  damaged[damaged.length - 20_000]! ^= 1;
  const lacking = writeNeff({ ...model, members: model.members.filter(({ name }) => name !== "sg01/value_raw.bin") });
  const longer = writeNeff({ ...model, members: model.members.map((member) => (member.name === "sg01/value_raw.bin" ? { ...member, data: bytes(300_002, 1) } : member)) });
  for (const [file, message] of [[damaged, /CRC-32/], [lacking, /value_raw\.bin" is not in the archive/], [longer, /the payload of variable "raw" has 300002 bytes, its size is 300001/]] as const) {
    const kernel = machine.kernel();
    const neuron = open({ kernel, lnc: 2 });
    const before = chunksOn(machine);
    // One subgraph's constants come before the other's definition: room for those, not for the rest.
    await assert.rejects(async () => {
      await using passing = await openNeff(file, { keptBytes: 1_500_000 });
      await neuron.logicalCore(0).load(passing.neff, { source: passing });
    }, message);
    assert.deepEqual(chunksOn(machine), before);
    neuron.close();
  }
  machine.close();
});
