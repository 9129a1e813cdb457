import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeRequest, encodeRequest, io, ior, iow, iowr, pointerForm } from "../../lib/abi/request.ts";
import { cFieldName, type Field } from "../../ffi/layout.ts";
import * as abi from "../../lib/abi/mod.ts";
import { type AbiField, type AbiIoctl, type AbiStruct, allEnums, ENUM_NAMES, enumKey, readAbiTable, requestKey } from "../../scripts/generate_abi.ts";
import { Comparisons, golden, structExports, structOf } from "./support.ts";

const table = readAbiTable();
const structs = Object.entries({ ...table.structs, ...table.since_2_27.structs });
const ioctls: readonly (readonly [AbiIoctl, boolean])[] = [
  ...table.ioctls.map((one) => [one, false] as const),
  ...[...table.since_2_27.ioctls, ...table.since_2_27.later_ioctls].map((one) => [one, true] as const),
];

test("every struct of the driver's header has the compiled size, offsets, field sizes, types and gaps", () => {
  const compare = new Comparisons();
  for (const [cName, expected] of structs) {
    const struct = structOf(cName);
    const fixed = expected.fields.filter((field) => field.count !== "flexible");
    compare.same(struct.byteLength, expected.size, `size of ${cName}`);
    compare.same(Object.keys(struct.fields).length, fixed.length, `number of fields of ${cName}`);
    const byName = new Map(Object.entries(struct.fields).map(([key, field]) => [cFieldName(key, field), field]));
    for (const field of fixed) {
      const ours = byName.get(field.name);
      assert.ok(ours !== undefined, `${cName} has no field ${field.name}`);
      compare.same(ours.offset, field.offset, `offset of ${cName}.${field.name}`);
      compare.same(ours.size, field.size, `size of ${cName}.${field.name}`);
      compare.same(driverKind(ours), headerKind(field), `type of ${cName}.${field.name}`);
    }
    if (expected.padding !== undefined) compare.same(gaps(struct.byteLength, struct.fields), gapsOfHeader(expected), `gaps of ${cName}`);
  }
  report("structs", compare.count, structs.length);
  assert.ok(structs.length >= 100 && compare.count >= 1500, `only ${compare.count} comparisons over ${structs.length} structs`);
});

test("every request has the number, direction, size, form, argument and gate of the driver's header", () => {
  const compare = new Comparisons();
  for (const [expected, later] of ioctls) {
    const key = requestKey(expected, later);
    const request = (abi.requests as Readonly<Record<string, abi.Request>>)[key];
    assert.ok(request !== undefined, `no request ${key}`);
    compare.same(request.name, key, `name of ${key}`);
    compare.same(request.number, expected.nr, `number of ${key}`);
    compare.same(request.request, expected.request_u32, `request of ${key}`);
    compare.same(request.hex, expected.request, `hex of ${key}`);
    compare.same(request.form, expected.form, `form of ${key}`);
    compare.same(request.argumentBytes, expected.arg_size ?? expected.size, `argument bytes of ${key}`);
    compare.same(request.argument?.cName ?? null, expected.arg !== null && expected.arg.includes("struct") ? expected.arg : null, `argument of ${key}`);
    compare.same(request.gated, expected.attach_gate === true, `gate of ${key}`);
    compare.same(request.since, expected.introduced_in ?? null, `version of ${key}`);
    const parts = decodeRequest(expected.request_u32);
    compare.same(parts.number, expected.nr, `decoded number of ${key}`);
    compare.same(parts.type, 0x4e, `decoded type of ${key}`);
    compare.same(parts.size, expected.size, `decoded size of ${key}`);
    compare.same(encodeRequest(parts), expected.request_u32, `encoded ${key}`);
    if (expected.form === "struct") compare.same(request.argument?.byteLength, expected.size, `struct of ${key}`);
    if (expected.form === "pointer") compare.same(expected.size, pointerForm, `pointer form of ${key}`);
    if (!later) compare.same(table.by_request[request.hex], expected.name, `name behind ${request.hex}`);
  }
  compare.same(Object.keys(abi.requests).length, ioctls.length, "number of requests");
  compare.same(
    Object.values(abi.requests).filter((one) => one.freeAccess && one.since === null).map((one) => one.request).sort(),
    table.ioctls.filter((one) => one.allowed_on_wronly_fd === true).map((one) => one.request_u32).sort(), "requests of a write-only descriptor",
  );
  compare.same(Object.values(abi.requests).filter((one) => one.freeAccess && one.since === null).length, 19, "number of those");
  report("requests", compare.count, ioctls.length);
  assert.ok(ioctls.length >= 111 && compare.count >= 1500, `only ${compare.count} comparisons over ${ioctls.length} requests`);
});

test("every enum and constant of the driver's header has its value", () => {
  const compare = new Comparisons();
  const enums = allEnums(table);
  for (const [cName, values] of enums) {
    const ours = (abi as unknown as Readonly<Record<string, Readonly<Record<string, number>>>>)[ENUM_NAMES[cName]![0]]!;
    for (const [key, value] of Object.entries(values)) compare.same(ours[enumKey(cName, key)], value, `${cName} ${key}`);
    compare.same(Object.keys(ours).length, Object.keys(values).length, `number of values of ${cName}`);
  }
  const constants = Object.entries(table.constants).filter(([, value]) => typeof value === "number");
  for (const [key, value] of constants) compare.same((abi.driverConstants as Readonly<Record<string, number>>)[key], value, key);
  compare.same(Object.keys(abi.driverConstants).length, constants.length, "number of constants");
  report("enums and constants", compare.count, enums.length);
  assert.ok(enums.length >= 21 && compare.count >= 200, `only ${compare.count} comparisons over ${enums.length} enums`);
});

test("every struct exported is one of the driver's header or of the runtime's golden tables", () => {
  const known = new Set([...structs.map(([cName]) => cName), ...Object.keys(golden.structs)]);
  const names = structExports.map((name) => (abi as unknown as Readonly<Record<string, { cName: string }>>)[name]!.cName);
  assert.deepEqual(names.filter((name) => !known.has(name)), []);
  assert.equal(new Set(names).size, names.length, "a C name is exported twice");
  assert.equal(names.length, known.size);
});

test("the requests of the memory path have the numbers of the driver's header and their encodings (D-005)", () => {
  const { MEM_ALLOC_V2MT64, MEM_GET_PA, MEM_COPY_ASYNC64, MEM_BUF_ZEROCOPY64_BATCHES, MEM_FREE } = abi.requests;
  assert.deepEqual(
    [MEM_ALLOC_V2MT64, MEM_GET_PA, MEM_COPY_ASYNC64, MEM_BUF_ZEROCOPY64_BATCHES, MEM_FREE].map((one) => one.request),
    [0x80384e66, 0x80084e19, 0xc0384e6c, 0xc0204e81, 0x80084e16],
  );
  assert.deepEqual(
    [ior(78, 102, 56), ior(78, 25, pointerForm), iowr(78, 108, 56), iowr(78, 129, 32), ior(78, 22, pointerForm)],
    [0x80384e66, 0x80084e19, 0xc0384e6c, 0xc0204e81, 0x80084e16],
  );
  assert.equal(iow(78, 93, pointerForm), abi.requests.COMPATIBLE_VERSION.request);
  assert.equal(io(78, 1), abi.requests.DEVICE_RESET.request);
});

test("the allocation request carries size, alignment, location, channel, region, core, category and the handle's address (D-053)", () => {
  assert.deepEqual(abi.MemAllocV2MT64.offsets, {
    size: 0, align: 8, hostMemory: 16, dramChannel: 20, dramRegion: 24, ncId: 28, memType: 32, memHandle: 40, pad: 48,
  });
  assert.equal(abi.MemAllocV2MT64.byteLength, 56);
});

test("a batch descriptor is 40 bytes, one of its operations 24 (D-099)", () => {
  assert.deepEqual(abi.MemcpyBatch.offsets, {
    memHandle: 0, memHandleOffset: 8, opsPtr: 16, numOps: 24, bar4WrThreshold: 28, flags: 30, context: 32,
  });
  assert.equal(abi.MemcpyBatch.byteLength, 40);
  assert.equal(abi.MemcpyBatch.fields.bar4WrThreshold.kind, "u16");
  assert.deepEqual(abi.TensorBatchOp.offsets, { offset: 0, size: 8, buffer: 16 });
  assert.equal(abi.TensorBatchOp.byteLength, 24);
});

test("the forms of the later drivers keep their own sizes under the same number", () => {
  const { MEM_BUF_ZEROCOPY64, MEM_BUF_ZEROCOPY64_2_25, MEM_BUF_ZEROCOPY64_2_29, MEM_COPY64, MEM_COPY64_2_30 } = abi.requests;
  assert.deepEqual([MEM_BUF_ZEROCOPY64, MEM_BUF_ZEROCOPY64_2_25, MEM_BUF_ZEROCOPY64_2_29].map((one) => one.argumentBytes), [40, 48, 64]);
  assert.deepEqual([MEM_COPY64, MEM_COPY64_2_30].map((one) => one.argumentBytes), [40, 56]);
});

function report(what: string, comparisons: number, items: number): void {
  console.log(`driver ${what}: ${comparisons} comparisons over ${items}`);
}

/** Our kinds in the header's words; raw bytes stand for arrays of bytes and embedded structs. */
function driverKind({ kind, count }: Field): string {
  const names: Readonly<Record<string, string>> = { id64: "u64", i8: "s8", i32: "s32", i64: "s64", bytes: "bytes", chars: "bytes" };
  return `${names[kind] ?? kind}${count === undefined ? "" : `[${count}]`}`;
}

function headerKind(field: AbiField): string {
  const count = typeof field.count === "number" ? field.count : /\[(\d+)\]/.exec(field.ctype)?.[1];
  const bare = field.kind ?? (field.ctype.includes("*") ? "ptr" : field.ctype.replace(/^__/, "").replace(/\[.*$/, "").trim());
  if (bare.startsWith("struct") || (bare === "u8" && count !== undefined)) return "bytes";
  return `${bare}${count === undefined ? "" : `[${count}]`}`;
}

function gaps(byteLength: number, fields: Readonly<Record<string, Field>>): readonly (readonly [number, number])[] {
  const found: [number, number][] = [];
  let end = 0;
  for (const { offset, size } of Object.values(fields).sort((a, b) => a.offset - b.offset)) {
    if (offset > end) found.push([end, offset - end]);
    end = offset + size;
  }
  if (byteLength > end) found.push([end, byteLength - end]);
  return found;
}

/** The header's gaps; the tail of a struct with a flexible array is no gap of ours. */
function gapsOfHeader(struct: AbiStruct): readonly (readonly [number, number])[] {
  return struct.padding ?? [];
}
