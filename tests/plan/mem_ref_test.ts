import assert from "node:assert/strict";
import { test } from "node:test";
import { buildClasses } from "../../lib/abi/runtime_build.ts";
import { KbinMemRef, KbinMemRefList, KbinMemRefPtr, KbinMemRefRemote, KbinMemRefVirtual, MrType } from "../../lib/abi/runtime_kbin.ts";
import { memRefOf } from "../../lib/plan/build.ts";
import { PlanError } from "../../lib/plan/error.ts";
import { BufferRef, IoRef, ListRef, MemRefRecord, PointerRef, PtrTableRef, RemoteRef, StateBufferRef, TmpBufRef, VirtualTmpBufRef } from "../../lib/plan/mem_ref.ts";
import { PlanWriter } from "../../lib/plan/plan.ts";
import type { Variable } from "../../lib/neff/model.ts";

const AT = KbinMemRef.offsets;
const base = { varId: 0 };
const payload = { member: "sg00/w.npy", offset: 128, size: 4096 };
const debug = { prefix: "p", pipe: 7 };

/** One object of every class, by C++ name; the root stands for itself. */
const objects: Readonly<Record<string, () => MemRefRecord>> = {
  mem_ref: () => new MemRefRecord(base, MrType.SB),
  mem_ref_sp: () => new StateBufferRef(base),
  mem_ref_io: () => new IoRef({ ...base, size: 4096, alignment: 64 }, MrType.INPUT),
  mem_ref_buffer: () => new BufferRef({ ...base, size: 4096, alignment: 4096 }, { payload, debug }),
  mem_ref_tmp_buf: () => new TmpBufRef({ ...base, size: 300, alignment: 256 }, debug),
  mem_ref_virtual_tmp_buf: () => new VirtualTmpBufRef({ ...base, size: 64 }, { offset: 2 ** 40, backing: 2, debug }),
  mem_ref_pointer: () => new PointerRef({ ...base, referencedVarId: 5 }, true),
  mem_ref_list: () => new ListRef({ ...base, list: [3, 1, 2] }),
  mem_ref_ptr_table: () => new PtrTableRef({ ...base, list: [3, 1, 2] }),
  mem_ref_remote_variable: () => new RemoteRef(base),
};

/** The record of one object; the name's pointer is cleared. The record is full of rubbish before. */
function recordOf(object: MemRefRecord): DataView {
  const writer = new PlanWriter({ name: "sg00", count: 1, localScratchpadBytes: 0, sharedScratchpadBytes: 0 });
  for (let offset = 0; offset < KbinMemRef.byteLength; offset++) writer.view.setUint8(writer.base + offset, 0xa5);
  writer.next(0, "x");
  object.dump(writer);
  const { bytes } = writer.finish();
  const record = new DataView(bytes.slice(24, 24 + KbinMemRef.byteLength).buffer);
  record.setBigUint64(AT.name, 0n);
  return record;
}

/** Offsets of the record's 8-byte words that are not 0. */
function used(record: DataView): number[] {
  return Array.from({ length: 19 }, (_, word) => 8 * word).filter((offset) => record.getBigUint64(offset, true) !== 0n);
}

test("the ten classes are those of the runtime's tree, each below its parent (P-020, P-021)", () => {
  assert.deepEqual(Object.keys(objects), buildClasses.map(({ name }) => name));
  for (const { name, parent, mrTypes } of buildClasses) {
    const object = objects[name]!();
    const parentClass = parent === null ? Object : objects[parent]!().constructor;
    assert.equal(Object.getPrototypeOf(object.constructor.prototype), parentClass.prototype, name);
    if (mrTypes.length > 0) assert.ok(mrTypes.includes(object.type), name);
  }
});

test("every class answers one dump and one disposal through the same two names (P-031)", () => {
  for (const [name, make] of Object.entries(objects)) {
    const object = make();
    assert.equal(recordOf(object).getUint32(AT.mrType, true), object.type, name);
    object[Symbol.dispose]();
    object.close();
  }
});

test("the pointer table writes itself with the list's dump and has none of its own (P-032)", () => {
  assert.equal(PtrTableRef.prototype.dump, ListRef.prototype.dump);
  assert.equal(Object.hasOwn(PtrTableRef.prototype, "dump"), false);
  assert.equal(buildClasses.find(({ name }) => name === "mem_ref_ptr_table")?.dump, "mem_ref_list");
});

test("a pointer table's record is that of a list of the same ids but for its type, whatever its second list holds (P-033, P-038)", () => {
  const table = new PtrTableRef({ ...base, list: [3, 1, 2] });
  table.pointers = [9, 9, 9, 9];
  const record = recordOf(table);
  assert.equal(record.getUint32(AT.mrType, true), MrType.PTR_TABLE);
  record.setUint32(AT.mrType, MrType.LIST, true);
  assert.deepEqual(new Uint8Array(record.buffer), new Uint8Array(recordOf(objects["mem_ref_list"]!()).buffer));
  const withSecondList = Object.entries(objects).filter(([, make]) => "pointers" in make()).map(([name]) => name);
  assert.deepEqual(withSecondList, ["mem_ref_ptr_table"]);
});

test("disposing a pointer table drops both lists, and twice is harmless (P-039)", () => {
  const table = new PtrTableRef({ ...base, list: [1, 2] });
  table.pointers = [5];
  table.close();
  assert.deepEqual([table.list, table.pointers], [[], []]);
  table.close();
  table[Symbol.dispose]();
});

test("the class decides the union: each variant where its type has one, zeros elsewhere (P-034)", () => {
  const union = (name: string) => used(recordOf(objects[name]!())).filter((offset) => offset >= AT.union);
  for (const name of ["mem_ref", "mem_ref_sp", "mem_ref_io", "mem_ref_buffer", "mem_ref_tmp_buf", "mem_ref_remote_variable"]) assert.deepEqual(union(name), [], name);
  const pointer = KbinMemRefPtr.over(recordOf(objects["mem_ref_pointer"]!()));
  assert.deepEqual([pointer.referencedVarId, pointer.ioRef], [5, 1]);
  const virtual = KbinMemRefVirtual.over(recordOf(objects["mem_ref_virtual_tmp_buf"]!()));
  assert.deepEqual([virtual.offset, virtual.backingBuf], [2 ** 40, 2]);
  const list = KbinMemRefList.over(recordOf(objects["mem_ref_list"]!()));
  assert.equal(list.length, 3);
  assert.ok(list.list > 24 + 152);
  const remote = new RemoteRef(base);
  remote.link({ subgraph: 1, varId: 9 });
  const linked = KbinMemRefRemote.over(recordOf(remote));
  assert.deepEqual([linked.remoteVtpbRelSgId, linked.remoteVarId], [1, 9]);
});

test("the base constructor takes id, type, dtype and shape, and nothing else is set (P-035)", () => {
  const object = new MemRefRecord({ varId: 7, dtype: "bfloat16", shape: [2, 3] }, MrType.TMP_BUF);
  assert.deepEqual({ ...object }, { varId: 7, type: 4, dtype: "bfloat16", shape: [2, 3] });
});

test("the twelve record types: 1 to 11 can be built, INVALID and 12 are refused (P-040)", () => {
  for (let type = 1; type <= 11; type++) assert.equal(new MemRefRecord(base, type).type, type);
  for (const type of [0, 12, -1, 1.5, NaN]) assert.throws(() => new MemRefRecord(base, type), PlanError, String(type));
});

test("the base writes id, type, dtype and shape; a state buffer and an unlinked remote are otherwise zeros (P-081)", () => {
  for (const make of [(b: typeof base) => new StateBufferRef(b), (b: typeof base) => new RemoteRef(b)]) {
    const plain = recordOf(make({ varId: 9 }));
    assert.deepEqual(used(plain), [AT.mrType, AT.varId]);
    assert.equal(plain.getUint32(AT.varId, true), 9);
  }
});

test("every class writes its own fields, and zeros elsewhere (P-082)", () => {
  const fields = { mem_ref_sp: [], mem_ref_io: [AT.size, AT.alignment], mem_ref_buffer: [AT.size, AT.alignment, AT.dtensorMd, AT.buffer], mem_ref_tmp_buf: [AT.size, AT.alignment, AT.dtensorMd], mem_ref_virtual_tmp_buf: [AT.size, AT.dtensorMd, AT.union, AT.union + 8], mem_ref_pointer: [AT.size, AT.union], mem_ref_list: [AT.union, AT.union + 8], mem_ref_ptr_table: [AT.union, AT.union + 8], mem_ref_remote_variable: [] };
  for (const [name, own] of Object.entries(fields)) {
    assert.deepEqual(used(recordOf(objects[name]!())).filter((offset) => offset > 8 && offset !== AT.varId), own, name);
  }
  const silent = recordOf(new BufferRef({ ...base, size: 1, alignment: 0 }, { payload: null }));
  assert.deepEqual([silent.getBigUint64(AT.dtensorMd, true), silent.getBigUint64(AT.buffer, true)], [0n, 0n]);
});

test("a dtype of 15 bytes round-trips with its NUL, unused bytes are zero, 16 bytes are refused (P-012, P-083)", () => {
  const names = ["", "f", "float8_e4m3fnuz", "ééééééé", "float16"];
  for (const dtype of names) {
    const record = recordOf(new MemRefRecord({ varId: 0, dtype }, MrType.SB));
    assert.equal(KbinMemRef.over(record).dtype, dtype);
    const length = new TextEncoder().encode(dtype).length;
    for (let index = length; index < 16; index++) assert.equal(record.getUint8(AT.dtype + index), 0, dtype);
  }
  for (const dtype of ["float8_e4m3fn_x4", "éééééééé", "ééééééééé", "漢漢漢漢漢漢"]) {
    assert.throws(() => recordOf(new MemRefRecord({ varId: 0, dtype }, MrType.SB)), PlanError, dtype);
  }
});

test("the dtype refusal names the dtype, its length and the limit of 15 (P-014)", () => {
  assert.throws(() => recordOf(new MemRefRecord({ varId: 0, dtype: "float8_e4m3fn_x4" }, MrType.SB)), /Device print dtype float8_e4m3fn_x4 has 16 characters\. Only 15 /);
});

test("eight dimensions round-trip as u64, unused ones are zero, nine are refused (P-013, P-084)", () => {
  const shape = [1, 2, 3, 2 ** 32, 5, 6, 7, 2 ** 52];
  const record = KbinMemRef.over(recordOf(new MemRefRecord({ varId: 0, shape }, MrType.SB)));
  assert.deepEqual(shape.map((_, index) => record.$get("shape", index)), shape);
  const two = KbinMemRef.over(recordOf(new MemRefRecord({ varId: 0, shape: [4, 5] }, MrType.SB)));
  assert.deepEqual([0, 1, 2, 3, 4, 5, 6, 7].map((index) => two.$get("shape", index)), [4, 5, 0, 0, 0, 0, 0, 0]);
  assert.throws(() => recordOf(new MemRefRecord({ varId: 0, shape: [...shape, 1] }, MrType.SB)), PlanError);
});

test("the shape refusal names the limit of 8, in the runtime's spelling (P-015)", () => {
  assert.throws(() => recordOf(new MemRefRecord({ varId: 0, shape: [1, 1, 1, 1, 1, 1, 1, 1, 1] }, MrType.SB)), /Device print only supports shape dimentions of up to 8/);
});

test("a refused dump leaves no cut value in the record (P-016)", () => {
  const writer = new PlanWriter({ name: "sg00", count: 1, localScratchpadBytes: 0, sharedScratchpadBytes: 0 });
  const before = writer.finish().bytes.slice();
  for (const object of [new MemRefRecord({ varId: 0, dtype: "x".repeat(40) }, MrType.SB), new IoRef({ varId: 0, shape: Array(9).fill(3), size: 8, alignment: 0 }, MrType.INPUT)]) {
    assert.throws(() => object.dump(writer), PlanError);
    assert.deepEqual(writer.finish().bytes, before);
  }
});

test("an input or output writes size and alignment and clears the union (P-085)", () => {
  const record = KbinMemRef.over(recordOf(new IoRef({ ...base, size: 2 ** 32, alignment: 4096 }, MrType.OUTPUT)));
  assert.deepEqual([record.size, record.alignment], [2 ** 32, 4096]);
  assert.deepEqual([...record.union], Array(16).fill(0));
});

test("a list writes its count and a copy of its ids; an empty one has length 0 (P-086)", () => {
  const ids = [4, 5, 6];
  const list = new ListRef({ ...base, list: ids });
  ids[0] = 99;
  assert.deepEqual(list.list, [4, 5, 6]);
  const empty = KbinMemRefList.over(recordOf(new ListRef({ ...base, list: [] })));
  assert.deepEqual([empty.length, empty.list], [0, 0]);
});

test("a print prefix of 512 bytes is kept, a longer one refused (P-051)", () => {
  const withPrefix = (prefix: string) => recordOf(new TmpBufRef({ ...base, size: 8, alignment: 0 }, { prefix, pipe: 1 }));
  assert.notEqual(withPrefix("p".repeat(512)).getBigUint64(AT.dtensorMd, true), 0n);
  assert.throws(() => withPrefix("p".repeat(513)), PlanError);
  assert.throws(() => withPrefix("é".repeat(257)), PlanError);
});

test("an alignment that is no power of two is refused, 0 and powers pass (P-073)", () => {
  for (const alignment of [0, 1, 2, 4096, 2 ** 40]) assert.equal(new IoRef({ ...base, size: 8, alignment }, MrType.INPUT).alignment, alignment);
  for (const alignment of [3, 4097, -4, 0.5, NaN]) assert.throws(() => new TmpBufRef({ ...base, size: 8, alignment }), /alignment provided not power of 2/);
});

test("every type word is built as its own class (P-075, P-076, P-077, P-078)", () => {
  const common = { name: "x", varId: 0, dtype: null, shape: [] };
  const print = { prefix: null, pipe: 0 };
  const words: [Variable, unknown, number][] = [
    [{ ...common, type: "state-buffer" }, StateBufferRef, MrType.SB],
    [{ ...common, ...print, type: "file", size: 1, alignment: 0, fileName: "f", member: "sg00/f", fabricPath: null }, BufferRef, MrType.BUFFER],
    [{ ...common, ...print, type: "tmp-buf", size: 1, alignment: 0 }, TmpBufRef, MrType.TMP_BUF],
    [{ ...common, type: "input", size: 1, alignment: 0 }, IoRef, MrType.INPUT],
    [{ ...common, type: "output", size: 1, alignment: 0 }, IoRef, MrType.OUTPUT],
    [{ ...common, type: "pointer", size: 8, referencedVarId: 0 }, PointerRef, MrType.PTR],
    [{ ...common, ...print, type: "virtual", size: 1, backingOffset: 0, backingBuffer: "local", fabricPath: null }, VirtualTmpBufRef, MrType.VIRTUAL_TMP_BUF],
    [{ ...common, type: "list", list: Array.from({ length: 42 }, () => 0) }, ListRef, MrType.LIST],
    [{ ...common, type: "dge-table", list: [0] }, PtrTableRef, MrType.PTR_TABLE],
    [{ ...common, type: "ptr-table", list: [0] }, PtrTableRef, MrType.PTR_TABLE],
    [{ ...common, type: "remote", base: "x", subgraph: 1 }, RemoteRef, MrType.REMOTE],
  ];
  const anything: Variable = { ...common, type: "input", size: 1, alignment: 0 };
  for (const [variable, Class, type] of words) {
    const object = memRefOf(variable, { variable: () => anything, payload: () => payload });
    assert.equal(object.constructor, Class, variable.type);
    assert.equal(object.type, type, variable.type);
  }
  assert.equal(new Set(words.map(([{ type }]) => type)).size, 11);
});

test("the words of a backing buffer map to 0 to 3 (P-044)", () => {
  const words = ["local", "shared", "sharded", "main"] as const;
  const backings = words.map((backingBuffer) => {
    const variable: Variable = { name: "x", varId: 0, dtype: null, shape: [], prefix: null, pipe: 0, type: "virtual", size: 1, backingOffset: 0, backingBuffer, fabricPath: null };
    return (memRefOf(variable, { variable: () => undefined, payload: () => payload }) as VirtualTmpBufRef).backing;
  });
  assert.deepEqual(backings, [0, 1, 2, 3]);
});
