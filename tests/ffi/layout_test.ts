import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { bytes, bytesAt, chars, cFieldName, id64, ptr, readI64, readId64, readU64, struct, u16, u32, u64, u8, writeI64, writeId64, writeU64 } from "../../ffi/mod.ts";
import { decodeRequest, encodeRequest, io, ior, iow, iowr, pointerForm } from "../../lib/abi/request.ts";

const Sample = struct("struct sample", 64, {
  size: u64(0), memHandle: ptr(8), ncId: u32(16), flags: u16(20), kind: u8(22), name: chars(24, 16), mask: id64(40), list: u32(48, 2), blob: bytes(56, 8, "raw"),
});

test("a struct view reads and writes its fields in place", () => {
  const value = Sample.alloc({ size: 2 ** 40 + 5, ncId: 7, name: "weights" });
  value.mask = 2n ** 63n;
  value.$set("list", 1, 9);
  assert.equal(value.$view.getUint32(4, true), 256);
  assert.equal(value.size, 2 ** 40 + 5);
  assert.equal(value.name, "weights");
  assert.equal(value.mask, 2n ** 63n);
  assert.equal(value.$get("list", 1), 9);
  assert.equal(bytesAt(value.$address, 64)[16], 7);
  assert.equal(Sample.over(value.$view).ncId, 7);
  assert.deepEqual(Sample.offsets, { size: 0, memHandle: 8, ncId: 16, flags: 20, kind: 22, name: 24, mask: 40, list: 48, blob: 56 });
  assert.equal(cFieldName("memHandle", Sample.fields.memHandle), "mem_handle");
  assert.equal(cFieldName("blob", Sample.fields.blob), "raw");
});

test("a struct view walks an array of structs by moving its base", () => {
  const view = new DataView(new ArrayBuffer(64 * 4));
  const cursor = Sample.over(view);
  for (let i = 0; i < 4; i++) {
    cursor.$base = i * 64;
    cursor.size = i * 10;
  }
  assert.equal(readU64(view, 128), 20);
});

test("a layout that overlaps, leaves its size or does not fit a buffer is refused", () => {
  assert.throws(() => struct("x", 8, { a: u64(0), b: u32(4) }), { name: "ArgumentError" });
  assert.throws(() => struct("x", 8, { a: u64(1) }), { name: "ArgumentError" });
  assert.throws(() => Sample.over(new DataView(new ArrayBuffer(63))), { name: "ArgumentError" });
  assert.throws(() => Sample.alloc().$get("list", 2), { name: "ArgumentError" });
  const value = Sample.alloc();
  assert.throws(() => value.name = "sixteen bytes ok", { name: "ArgumentError" });
  assert.throws(() => value.size = -1, { name: "ArgumentError" });
  assert.throws(() => value.size = 1.5, { name: "ArgumentError" });
});

test("u64 and i64 round-trip every safe integer and refuse unsafe ones", () => {
  const view = new DataView(new ArrayBuffer(8));
  fc.assert(fc.property(fc.maxSafeNat(), (n) => {
    writeU64(view, 0, n);
    assert.equal(view.getBigUint64(0, true), BigInt(n));
    assert.equal(readU64(view, 0), n);
  }), { numRuns: 2000 });
  fc.assert(fc.property(fc.maxSafeInteger(), (n) => {
    writeI64(view, 0, n);
    assert.equal(view.getBigInt64(0, true), BigInt(n));
    assert.equal(readI64(view, 0), n);
  }), { numRuns: 2000 });
  view.setBigUint64(0, 2n ** 53n, true);
  assert.throws(() => readU64(view, 0), { name: "UnsafeIntegerError", message: /0x20000000000000/ });
  assert.equal(readId64(view, 0), 2n ** 53n);
  writeId64(view, 0, 2n ** 64n - 1n);
  assert.equal(readId64(view, 0), 2n ** 64n - 1n);
  assert.throws(() => writeId64(view, 0, 2n ** 64n), { name: "ArgumentError" });
  assert.throws(() => writeId64(view, 0, -1n), { name: "ArgumentError" });
});

test("request numbers are encoded as asm-generic/ioctl.h does, and decode back", () => {
  assert.equal(ior(0x4e, 102, 56), 0x80384e66);
  assert.equal(iowr(0x4e, 24, pointerForm), 0xc0084e18);
  assert.equal(iow(0x4e, 12, pointerForm), 0x40084e0c);
  assert.equal(io(0x4e, 1), 0x00004e01);
  fc.assert(fc.property(
    fc.constantFrom("none", "read", "write", "readwrite" as const), fc.nat(16383), fc.nat(255), fc.nat(255),
    (direction, size, type, number) => {
      const parts = { direction: direction as "none", size, type, number };
      assert.deepEqual(decodeRequest(encodeRequest(parts)), parts);
    },
  ));
  assert.throws(() => ior(0x4e, 1, 16384), { name: "ArgumentError" });
});
