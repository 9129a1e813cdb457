import assert from "node:assert/strict";
import { test } from "node:test";
import { checkPicture } from "../../lib/map/check.ts";
import { regionsOf } from "../../lib/map/totals.ts";
import { corpusPath, skipWithoutCorpus } from "../support/corpus.ts";
import { loadedPicture } from "./loaded.ts";

const skip = skipWithoutCorpus;
const model = (file: string) => ({ path: corpusPath(`neff/${file}.neff`), name: file });

test("the picture of a loaded model agrees with the ledger and with the driver's own list, byte for byte", { skip }, async () => {
  await loadedPicture([model("cayman-lnc2-ncc2.23-nki_moe_v6b"), model("cayman-lnc2-ncc2.23-attn_fused_bf16_s512")], "trn2", { lnc: 2 }, (memory, picture) => {
    assert.deepEqual(checkPicture(picture), []);
    picture.devices[0]!.hbms.forEach((hbm) => {
      const drawn = regionsOf(hbm).filter(({ kind }) => kind !== "gap").map(({ start, size }) => [start, size]);
      assert.deepEqual(drawn, memory.device.dumpChunks(hbm.index).map(({ pa, size }) => [pa, size]));
      const asked = regionsOf(hbm).reduce((sum, region) => sum + (region.requestedBytes ?? 0), 0);
      assert.equal(asked, memory.ledger.hbmUsed(hbm.index));
    });
    const last = picture.events.at(-1)!;
    assert.equal(last.usedAfter, memory.ledger.hbmUsed(last.hbm!));
    assert.deepEqual(picture.unplaced.filter(({ reason }) => reason !== "no place in device memory"), []);
  });
});

test("scratch variables of a real model share memory, in lanes, counted once", { skip }, async () => {
  const picture = await loadedPicture([model("sunda-lnc1-ncc2.0-conv2d_float32_20virtual_overlap")], "trn1", { pageBytes: 2 ** 29 });
  const scratch = regionsOf(picture.devices[0]!.hbms[0]!).filter(({ kind }) => kind === "scratchpad");
  assert.ok(scratch.some(({ sharedBytes, lanes }) => sharedBytes > 0 && lanes > 1));
  for (const region of scratch) {
    const sum = region.variables.reduce((total, { size }) => total + size, 0);
    assert.ok(region.coveredBytes <= region.size && region.coveredBytes <= sum);
  }
});

test("the model with 228 scratch variables has all of them in its picture", { skip }, async () => {
  const picture = await loadedPicture([model("sunda-lnc1-ncc2.18-conv2d_pool_float32_228virtual")], "trn1");
  const virtual = regionsOf(picture.devices[0]!.hbms[0]!).flatMap(({ variables }) => variables).filter(({ type }) => type === "virtual");
  assert.equal(virtual.length, 228);
  assert.deepEqual(checkPicture(picture), []);
});
