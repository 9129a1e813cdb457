/** The five claims of the runtime's structure that are most easily got wrong, each with its numbers. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { HashNode, hashNodeOffset, MlaRecord, mlaOffset, ModelRecord, TdrvContext, TpbRecord, tpbOffset } from "../../lib/abi/runtime_context.ts";
import { aggregateColumns, CATEGORY_NONE, deviceCategories, hostCategories, MemLogRecord, UsageType } from "../../lib/abi/runtime_dmem.ts";
import { createHandleMinter, ModelDatabase, Resident } from "../../lib/runtime/model_database.ts";
import { logicalCoreSize } from "../../lib/runtime/logical_cores.ts";
import { checkCarveout } from "../../lib/runtime/model_release.ts";
import { open, settled, smallModel, status } from "./support.ts";

test("32 devices, 8 cores and 23 columns are array bounds, and the resolver's strides say the same (C-158, C-013)", () => {
  assert.equal(TdrvContext.fields.mla.size, 18880256);
  assert.equal(18880256, 32 * 590008);
  assert.equal(MlaRecord.fields.tpbs.size, 314560);
  assert.equal(314560, 8 * 39320);
  assert.equal(Object.keys(UsageType).length, 23);
  assert.equal(MemLogRecord.fields.memoryUsageNc.size, 8 * 23 * 8);
  assert.equal(mlaOffset(1) - mlaOffset(0), 0x900b8);
  assert.equal(tpbOffset(0, 1) - tpbOffset(0, 0), 0x9998);
  assert.equal(TpbRecord.byteLength, 0x9998);
});

test("the category tables hold these bytes, and 0x14 refuses only 11, 15 and 16 on the host (C-158, C-052)", () => {
  const hex = (bytes: readonly number[]) => bytes.slice(0, 22).map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
  assert.equal(hex(hostCategories), "04 01 01 04 01 04 03 06 04 01 01 14 02 01 04 14 14 04 11 11 11 11");
  assert.equal(hex(deviceCategories), "0c 08 08 0c 08 0c 0a 10 0c 08 08 0b 09 08 0c 0e 0f 0c 12 12 12 12");
  assert.deepEqual(hostCategories.flatMap((byte, usage) => (byte === CATEGORY_NONE ? [usage] : [])), [11, 15, 16]);
  assert.equal(deviceCategories.includes(CATEGORY_NONE), false);
  assert.deepEqual([aggregateColumns[UsageType.TENSOR], aggregateColumns[UsageType.WEIGHT]], [2, 1]);
});

test("gates compare numbers: 2 forces logical cores of one and stages libraries, 3 checks the carveout and refuses host tensors (C-158, C-015)", async () => {
  const size = (architecture: number) => logicalCoreSize({ architecture, coresPerDevice: 8, env: {} });
  assert.deepEqual([2, 3, 4].map(size), [1, 2, 2]);
  const staged: string[] = [];
  const refused: string[] = [];
  for (const [fake, target] of [["trn1", "sunda"], ["trn2", "cayman"], ["trn3", "mariana"]] as const) {
    using neuron = open({ fake });
    const model = await neuron.logicalCore(0).load(smallModel({ target }), { libraries: [{ name: "l", bytes: new Uint8Array(8) }] });
    if (model.parts[0]!.ucode !== undefined) staged.push(fake);
    try {
      neuron.tensor({ logicalCore: 0, size: 4096, placement: "host" });
    } catch (error) {
      status(4, /on Host for NC:0/)(error);
      refused.push(fake);
    }
  }
  assert.deepEqual([staged, refused], [["trn1"], ["trn2"]]);
  const wrong = smallModel().subgraphs[0]!;
  const moved = { ...wrong, reservations: [{ ...wrong.reservations![0]!, basePartition: 1 }] };
  assert.doesNotThrow(() => checkCarveout(moved, 2));
  assert.throws(() => checkCarveout(moved, 3), status(2, /must start at 0/));
});

test("from the embedded node at 7496 the model is found, 21 nodes of 48 bytes behind its reference count (C-158, C-072)", () => {
  assert.equal(hashNodeOffset.model_t, 7496);
  assert.equal(ModelRecord.offsets.htNode, 7496);
  assert.equal(ModelRecord.offsets.refCount, 6488);
  assert.equal(HashNode.byteLength, 48);
  assert.equal(ModelRecord.offsets.htNode - ModelRecord.offsets.refCount, 21 * HashNode.byteLength);
  assert.equal(157 * 48 - HashNode.offsets.next, 7496);
  const resident = new Resident("m", 1001, "m");
  const models = new ModelDatabase<string>({ device: 0, core: 0 });
  models.add(resident);
  assert.equal(models.retain(1001).model, resident.model);
});

test("handle 0 is never given out, and a removal unlinks before it drains (C-158, C-065, C-074)", async () => {
  assert.equal(createHandleMinter(2n ** 64n - 1n).next(), 1);
  const models = new ModelDatabase<string>({ device: 0, core: 0 });
  models.add(new Resident("m", 1001, "m"));
  const held = models.retain(1001);
  const removal = models.remove(1001);
  assert.throws(() => models.retain(1001), status(1, /Unknown model 1001/));
  assert.equal(await settled(removal), false);
  held.release();
  assert.equal((await removal).model, "m");
});
