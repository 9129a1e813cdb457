import assert from "node:assert/strict";
import { test } from "node:test";
import { explainFeatures, featureBits, LOADER_FEATURE_MASK, REJECTED_FEATURE_MASK } from "../../lib/neff/mod.ts";

test("set bits are listed lowest first, also those nobody has a name for", () => {
  assert.deepEqual(featureBits(0x209c00n).map(({ bit }) => bit), [10, 11, 12, 15, 21]);
  assert.deepEqual(featureBits(1n << 63n), [{ bit: 63, name: null, confidence: null }]);
  assert.deepEqual(featureBits((1n << 18n) | (1n << 25n)).map(({ name }) => name), [null, "large tensor support"]);
  assert.equal(featureBits(0xffff_ffff_ffff_ffffn).length, 64);
  assert.deepEqual(featureBits(0n), []);
});

test("a supported mask with bit 63 set tells which bits a file has too many", () => {
  const report = explainFeatures(0xc00n, 0x80000000000000ffn);
  assert.equal(report.accepted, false);
  assert.equal(report.supported, "0x80000000000000ff");
  assert.deepEqual(report.missing.map(({ bit }) => bit), [10, 11]);
  assert.equal(report.missingMask, "0xc00");
  assert.equal(explainFeatures(0n, 0x80000000000000ffn).accepted, true);
  assert.equal(explainFeatures(0x100n, 0x80000000000000ffn).missingMask, "0x100");
});

test("without a mask the runtime's own set counts", () => {
  assert.equal(LOADER_FEATURE_MASK | REJECTED_FEATURE_MASK, 0x7fff_ffff_ffff_ffffn);
  assert.equal(LOADER_FEATURE_MASK & REJECTED_FEATURE_MASK, 0n);
  assert.equal(explainFeatures(1n << 26n).accepted, true);
  assert.equal(explainFeatures(1n << 27n).accepted, false);
});
