import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { Field } from "../../ffi/layout.ts";
import { allStructs, type AnyStruct, type AnyView } from "./support.ts";

/** Structs larger than this are only checked for their tables: a context of 18 MB is not filled with values. */
const MOST_BYTES = 1 << 16;
const RUNS = 8;

const structs = [...allStructs.values()];
const small = structs.filter((one) => one.byteLength <= MOST_BYTES);

test("in every struct the fields do not overlap, stay inside, and with the gaps add up to its size", () => {
  let bytes = 0;
  for (const { cName, byteLength, fields } of structs) {
    let end = 0;
    let gaps = 0;
    let covered = 0;
    for (const [name, field] of Object.entries(fields).sort(([, a], [, b]) => a.offset - b.offset)) {
      assert.ok(field.offset >= end, `${cName}.${name} overlaps the field before it`);
      gaps += field.offset - end;
      covered += field.size;
      end = field.offset + field.size;
    }
    assert.ok(end <= byteLength, `${cName} ends at ${end} of ${byteLength}`);
    assert.equal(covered + gaps + byteLength - end, byteLength, cName);
    assert.ok(covered > 0, `${cName} has no fields`);
    bytes += byteLength;
  }
  console.log(`${structs.length} structs of ${bytes} bytes in all`);
});

test("in every struct the scalars lie at multiples of their size", () => {
  const widths: Readonly<Record<string, number>> = { u16: 2, u32: 4, i32: 4, i64: 8, u64: 8, id64: 8, ptr: 8 };
  for (const { cName, fields } of structs) {
    for (const [name, field] of Object.entries(fields)) {
      const width = widths[field.kind] ?? 1;
      assert.equal(field.offset % width, 0, `${cName}.${name}`);
      assert.equal(field.size, width * (field.count ?? (width === 1 && field.kind !== "u8" && field.kind !== "i8" ? field.size : 1)), `${cName}.${name}`);
    }
  }
});

test("what is written to every field of every struct is read back, and no byte outside the field moves", () => {
  const seed = Number(process.env["FC_SEED"] ?? Date.now() % 2 ** 31);
  console.log(`layout properties: seed ${seed}, ${small.length} structs`);
  for (const struct of small) {
    for (const [name, field] of Object.entries(struct.fields)) {
      fc.assert(fc.property(valueOf(field), fc.integer({ min: 0, max: 255 }), (value, poison) => checkField(struct, name, field, value, poison)), { seed, numRuns: RUNS });
    }
  }
});

test("all fields of a struct written together are read back together", () => {
  const seed = Number(process.env["FC_SEED"] ?? Date.now() % 2 ** 31);
  console.log(`whole structs: seed ${seed}`);
  for (const struct of small) {
    const names = Object.keys(struct.fields);
    const values = fc.tuple(...names.map((name) => valueOf(struct.fields[name]!)));
    fc.assert(fc.property(values, (all) => {
      const view = struct.over(new DataView(new ArrayBuffer(struct.byteLength + 24)), 16);
      for (const [index, name] of names.entries()) write(view, name, struct.fields[name]!, all[index]);
      for (const [index, name] of names.entries()) assert.deepEqual(read(view, name, struct.fields[name]!), all[index], `${struct.cName}.${name}`);
    }), { seed, numRuns: 3 });
  }
});

test("values a field cannot hold are refused and change nothing", () => {
  for (const struct of small) {
    for (const [name, field] of Object.entries(struct.fields).filter(([, one]) => ["u64", "ptr", "id64"].includes(one.kind) && one.count === undefined)) {
      const view = struct.over(new DataView(new ArrayBuffer(struct.byteLength)));
      view.$bytes.fill(0x11);
      for (const bad of [-1, 1.5, 2 ** 53, NaN]) assert.throws(() => view[name] = bad, { name: "ArgumentError" }, `${struct.cName}.${name} = ${bad}`);
      assert.ok(view.$bytes.every((byte) => byte === 0x11), `${struct.cName}.${name}`);
      assert.equal(field.size, 8);
    }
  }
});

function checkField(struct: AnyStruct, name: string, field: Field, value: unknown, poison: number): void {
  const buffer = new Uint8Array(struct.byteLength + 32).fill(poison);
  const view = struct.over(new DataView(buffer.buffer), 8);
  write(view, name, field, value);
  assert.deepEqual(read(view, name, field), value, `${struct.cName}.${name}`);
  const start = 8 + field.offset;
  for (const [at, byte] of buffer.entries()) {
    if (at < start || at >= start + field.size) assert.equal(byte, poison, `${struct.cName}.${name} touched byte ${at - 8}`);
  }
}

function write(view: AnyView, name: string, field: Field, value: unknown): void {
  if (field.count === undefined) view[name] = value;
  else for (const [index, one] of (value as readonly unknown[]).entries()) view.$set(name, index, one);
}

function read(view: AnyView, name: string, field: Field): unknown {
  if (field.count !== undefined) return Array.from({ length: field.count }, (_, index) => view.$get(name, index));
  const value = view[name];
  return value instanceof Uint8Array ? value.slice() : value;
}

function valueOf(field: Field): fc.Arbitrary<unknown> {
  if (field.count === undefined) return scalarOf(field.kind, field.size);
  const count = field.count;
  return fc.array(scalarOf(field.kind, field.size / count), { minLength: count, maxLength: count });
}

function scalarOf(kind: Field["kind"], size: number): fc.Arbitrary<unknown> {
  switch (kind) {
    case "u8": return fc.integer({ min: 0, max: 0xff });
    case "i8": return fc.integer({ min: -0x80, max: 0x7f });
    case "u16": return fc.integer({ min: 0, max: 0xffff });
    case "u32": return fc.integer({ min: 0, max: 0xffff_ffff });
    case "i32": return fc.integer({ min: -0x8000_0000, max: 0x7fff_ffff });
    case "i64": return fc.maxSafeInteger().map((value) => value === 0 ? 0 : value);
    case "u64": case "ptr": return fc.maxSafeNat();
    case "id64": return fc.oneof(fc.maxSafeNat(), fc.bigInt({ min: 2n ** 53n, max: 2n ** 64n - 1n }));
    case "chars": return fc.string({ maxLength: Math.min(size - 1, 40), unit: fc.integer({ min: 0x20, max: 0x7e }).map((code) => String.fromCharCode(code)) });
    case "bytes": return size > 64
      ? fc.integer({ min: 0, max: 255 }).map((byte) => new Uint8Array(size).map((_, at) => byte + at * 7))
      : fc.uint8Array({ minLength: size, maxLength: size });
  }
}
