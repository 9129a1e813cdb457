import assert from "node:assert/strict";
import { test } from "node:test";
import * as abi from "../../lib/abi/mod.ts";
import { assertOffsets, layoutOf, structOf } from "./support.ts";

const classOf = (name: string): abi.BuildClass => {
  const found = abi.buildClasses.find((one) => one.name === name);
  assert.ok(found !== undefined, `no class ${name}`);
  return found;
};

test("build object, record and staged form share no offsets of type, id, element type and shape (P-006, P-010, P-041)", () => {
  const build = abi.BuildMemRef.offsets;
  const staged = abi.MemRef.offsets;
  assert.deepEqual([build.type, staged.type], [12, 8]);
  assert.deepEqual([build.varId, staged.varId], [8, 24]);
  assert.deepEqual([build.dtype, staged.dtype], [16, 72]);
  assert.deepEqual([build.shape, staged.shape], [48, 88]);
  assert.equal(abi.KbinMemRef.offsets.mrType, 0);
  assert.deepEqual([abi.BuildMemRef.byteLength, abi.MemRef.byteLength], [72, 0xd0]);
  assert.deepEqual([build.vptr, staged.name], [0, 0]);
});

test("record and staged form hold sixteen bytes of element type and eight dimensions (P-011)", () => {
  const { dtype, shape } = abi.KbinMemRef.fields;
  assert.deepEqual([dtype.offset, dtype.size, shape.offset, shape.size, shape.count], [36, 16, 56, 64, 8]);
  const staged = abi.MemRef.fields;
  assert.deepEqual([staged.dtype.offset, staged.dtype.size, staged.shape.offset, staged.shape.size, staged.shape.count], [72, 16, 88, 64, 8]);
});

test("there are ten classes, nine with one parent; only ptr_table lies two levels down (P-020, P-021)", () => {
  assert.equal(abi.buildClasses.length, 10);
  assert.equal(new Set(abi.buildClasses.map((one) => one.name)).size, 10);
  assert.equal(abi.buildClasses.filter((one) => one.parent !== null).length, 9);
  const depth = (name: string): number => {
    const { parent } = classOf(name);
    return parent === null ? 0 : 1 + depth(parent);
  };
  const depths = abi.buildClasses.map((one) => depth(one.name));
  assert.deepEqual([0, 1, 2].map((level) => depths.filter((one) => one === level).length), [1, 8, 1]);
  assert.equal(depth("mem_ref_ptr_table"), 2);
  assert.equal(classOf("mem_ref_ptr_table").parent, "mem_ref_list");
});

test("every class keeps its parent's fields where the parent has them", () => {
  for (const { name, parent, layout } of abi.buildClasses.filter((one) => one.parent !== null)) {
    const inherited = classOf(parent!).layout;
    assert.ok(layout.byteLength >= inherited.byteLength, name);
    for (const [key, field] of Object.entries(inherited.fields)) assert.deepEqual(layout.fields[key], field, `${name}.${key}`);
  }
});

const BASE = { vptr: 0, var_id: 8, type: 12, dtype: 16, shape: 48 };

test("the base is 72 bytes: pointer, id, type, a string of 32 and a vector of 24 (P-036)", () => {
  assertOffsets("mem_ref", 72, BASE);
  const { dtype, shape } = abi.BuildMemRef.fields;
  assert.deepEqual([dtype.size, shape.size, shape.offset + shape.size], [32, 24, 72]);
});

const CLASSES: readonly (readonly [string, string, number, readonly number[], Readonly<Record<string, number>>])[] = [
  ["P-022", "mem_ref_sp", 72, [1], {}],
  ["P-023", "mem_ref_io", 88, [5, 6], { size: 72, alignment: 80 }],
  ["P-024", "mem_ref_buffer", 136, [3], { size: 72, alignment: 80, buffer: 88, debug_md: 96 }],
  ["P-025", "mem_ref_tmp_buf", 128, [4], { size: 72, alignment: 80, debug_md: 88 }],
  ["P-026", "mem_ref_virtual_tmp_buf", 136, [8], { size: 72, offset: 80, backing_buf: 88, debug_md: 96 }],
  ["P-027", "mem_ref_pointer", 80, [7], { referenced_var_id: 72, io_ref: 76 }],
  ["P-028", "mem_ref_list", 96, [9], { list: 72 }],
  ["P-029", "mem_ref_ptr_table", 120, [10], { list: 72, pointers: 96 }],
  ["P-030", "mem_ref_remote_variable", 72, [11], {}],
];

for (const [id, name, size, types, own] of CLASSES) {
  test(`${id} ${name} is ${size} bytes and stands for type ${types.join(" and ")}`, () => {
    assertOffsets(name, size, { ...BASE, ...own });
    assert.equal(layoutOf(structOf(name)).length, Object.keys(BASE).length + Object.keys(own).length);
    assert.deepEqual(classOf(name).mrTypes, types);
    assert.equal(classOf(name).layout.byteLength, size);
  });
}

test("only ptr_table has two vectors, of 24 bytes each (P-028, P-029, P-038)", () => {
  const vectors = (name: string) => layoutOf(structOf(name)).filter(([field, offset, length]) => offset >= 72 && length === 24 && field !== "shape").map(([, offset]) => offset);
  assert.deepEqual(abi.buildClasses.filter((one) => vectors(one.name).length === 2).map((one) => one.name), ["mem_ref_ptr_table"]);
  assert.deepEqual(vectors("mem_ref_ptr_table"), [72, 96]);
  assert.deepEqual(vectors("mem_ref_list"), [72]);
});

test("ptr_table names its parent's serialiser, every other class its own", () => {
  assert.deepEqual(abi.buildClasses.filter((one) => one.dump !== one.name).map((one) => [one.name, one.dump]), [["mem_ref_ptr_table", "mem_ref_list"]]);
});

test("every type that a definition can name belongs to exactly one class", () => {
  const types = abi.buildClasses.flatMap((one) => one.mrTypes).sort((a, b) => a - b);
  assert.deepEqual(types, [1, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
});

test("the build-side debug record is 40 bytes and lies at the end of three classes (P-037)", () => {
  assertOffsets("debug_tensor_md", 40, { prefix: 0, pipe_id: 32 });
  assert.deepEqual(
    [abi.BuildBuffer, abi.BuildTmpBuf, abi.BuildVirtualTmpBuf].map(({ fields, byteLength }) => [fields.debugMd.offset, fields.debugMd.offset + fields.debugMd.size === byteLength]),
    [[96, true], [88, true], [96, true]],
  );
  assert.deepEqual(abi.buildClasses.filter(({ layout }) => "debugMd" in layout.fields).length, 3);
});

test("variable types are 0 … 11, without a twelfth (P-040)", () => {
  assert.deepEqual(abi.MrType, {
    INVALID: 0, SB: 1, BUFFER_STAGED: 2, BUFFER: 3, TMP_BUF: 4, INPUT: 5, OUTPUT: 6, PTR: 7, VIRTUAL_TMP_BUF: 8, LIST: 9, PTR_TABLE: 10, REMOTE: 11,
  });
  assert.deepEqual(abi.mrTypeNames.map((name) => abi.MrType[name]), Array.from({ length: 12 }, (_, value) => value));
  assert.equal(abi.mrTypeNames[12], undefined);
});

test("a record is 152 bytes", () => {
  assertOffsets("kbin_mem_ref", 152, {
    mr_type: 0, name: 8, size: 16, alignment: 24, var_id: 32, dtype: 36, shape: 56, dtensor_md: 120, buffer: 128, union: 136,
  });
});

test("the union of a record has the fields of its type (P-047, P-048, P-049, P-050)", () => {
  const bytes = abi.KbinMemRef.alloc();
  const ptr = abi.KbinMemRefPtr.over(bytes.$view);
  [ptr.referencedVarId, ptr.ioRef] = [0x01020304, 1];
  assert.deepEqual([...bytes.union.subarray(0, 8)], [4, 3, 2, 1, 1, 0, 0, 0]);
  bytes.union.fill(0);
  const virtual = abi.KbinMemRefVirtual.over(bytes.$view);
  [virtual.offset, virtual.backingBuf] = [2 ** 40, abi.BackingBuffer.MAIN];
  assert.equal(bytes.$view.getBigUint64(136, true), 2n ** 40n);
  assert.equal(virtual.offset, 2 ** 40);
  assert.equal(bytes.$view.getUint32(144, true), 3);
  bytes.union.fill(0);
  const list = abi.KbinMemRefList.over(bytes.$view);
  [list.length, list.list] = [42, 0x7fff_1234_5678];
  assert.equal(bytes.$view.getUint32(136, true), 42);
  assert.equal(bytes.$view.getBigUint64(144, true), 0x7fff_1234_5678n);
  bytes.union.fill(0);
  const remote = abi.KbinMemRefRemote.over(bytes.$view);
  [remote.remoteVtpbRelSgId, remote.remoteVarId] = [1, 9];
  assert.deepEqual([bytes.$view.getUint32(136, true), bytes.$view.getUint32(140, true)], [1, 9]);
  for (const variant of [abi.KbinMemRefPtr, abi.KbinMemRefVirtual, abi.KbinMemRefList, abi.KbinMemRefRemote]) {
    for (const field of Object.values(variant.fields)) assert.ok(field.offset >= 136 && field.offset + field.size <= 152, variant.cName);
  }
});

test("the stored debug record is 516 bytes and its prefix holds 512 (P-051)", () => {
  assertOffsets("kbin_debug_tensor_md_t", 516, { prefix_str: 0, pipe_id: 512 });
  const record = abi.KbinDebugTensorMd.alloc();
  assert.throws(() => record.prefixStr = "p".repeat(513), { name: "ArgumentError" });
  record.prefixStr = "p".repeat(511);
  assert.equal(record.prefixStr.length, 511);
  record.$bytes.fill(0x71, 0, 512);
  record.pipeId = 5;
  assert.equal(record.prefixStr, "q".repeat(512));
});

test("a plan is a header of 24 bytes and records of 152 without gaps (P-045, P-052, P-053)", () => {
  assertOffsets("kbin_mem_ref_set", 24, { local_scratchpad_size: 0, shared_scratchpad_size: 8, nmem: 16 });
  assert.deepEqual([5, 4, 10, 7, 13, 11, 0].map(abi.planBytes), [784, 632, 1544, 1088, 2000, 1696, 24]);
  const view = new DataView(new ArrayBuffer(abi.planBytes(3)));
  const record = abi.KbinMemRef.over(view, abi.planBytes(0));
  for (let index = 0; index < 3; index++) {
    record.$base = abi.planBytes(index);
    record.varId = index;
  }
  assert.deepEqual([0, 1, 2].map((index) => view.getUint32(24 + 152 * index + 32, true)), [0, 1, 2]);
  assert.throws(() => abi.KbinMemRef.over(view, abi.planBytes(3)), { name: "ArgumentError" });
});

test("kbin_t is 424 bytes and keeps its plan at 296 (P-055)", () => {
  assertOffsets("kbin_t", 424, { engines: 0, dmas: 40, mem_ref_set: 296, target: 416 });
  assert.deepEqual(abi.engineSlots.map((name) => abi.EngineNumber[name]), [1, 3, 0, 2, 4]);
  assert.deepEqual([...abi.engineSlots].sort(), abi.engineSlots);
  assert.equal(abi.RingInstance.byteLength + 3 * abi.DmaDesc.byteLength, 264 + 5456 * 3);
});

test("the staged form ends in a hash node of 48 bytes at 160 (P-060, P-065, P-066)", () => {
  assertOffsets("mem_ref_t", 208, {
    name: 0, type: 8, size: 16, var_id: 24, remote: 28, shared_virtual_scratchpad: 29, union: 32, dtype: 72, shape: 88, debug_md: 152, node: 160,
  });
  assertOffsets("ht_node_t", 48, { key: 0, value: 8, buf_size: 16, bucket: 24, key_type: 32, next: 40 });
  assertOffsets("ht_t", 32, { size: 0, size_mask: 8, count: 16, free_node_fn: 24 });
  assert.equal(abi.MemRef.offsets.node + abi.HashNode.byteLength, abi.MemRef.byteLength);
  assert.equal(abi.hashNodeOffset.mem_ref_t, abi.MemRef.offsets.node);
  const staged = abi.MemRef.alloc({ varId: 77 });
  const node = abi.HashNode.over(staged.$view, abi.MemRef.offsets.node);
  node.key = staged.varId;
  assert.equal(abi.MemRef.over(node.$view, node.$base - abi.hashNodeOffset.mem_ref_t).varId, 77);
  assert.equal(node.$address - 160, staged.$address);
});

test("the placement of a staged form is 40 bytes with the fields of its kind (P-061)", () => {
  assert.deepEqual([abi.MemRef.offsets.union, abi.MemRef.fields.union.size], [32, 40]);
  assert.deepEqual(abi.MemRefStaged.offsets, { physicalAddress: 32, dmem: 40, memOffset: 48, va: 56 });
  assert.deepEqual(abi.MemRefPtr.offsets, { ptrMemAddr: 32, pointerId: 40, isIo: 48 });
  assert.deepEqual(abi.MemRefList.offsets, { length: 32, list: 40 });
  assert.deepEqual(abi.MemRefPtrTable.offsets, { length: 32, varIds: 40, needsTranslation: 48, addresses: 56, tableIndex: 64 });
  for (const variant of [abi.MemRefStaged, abi.MemRefPtr, abi.MemRefList, abi.MemRefPtrTable]) {
    assert.equal(variant.byteLength, abi.MemRef.byteLength);
    for (const field of Object.values(variant.fields)) assert.ok(field.offset >= 32 && field.offset + field.size <= 72, variant.cName);
  }
});

test("an address that is not set reads as all ones, and 0 is an address", () => {
  const staged = abi.MemRefStaged.alloc({ physicalAddress: abi.ADDRESS_UNSET });
  assert.equal(staged.$view.getBigUint64(32, true), 0xffff_ffff_ffff_ffffn);
  assert.equal(staged.physicalAddress, abi.ADDRESS_UNSET);
  staged.physicalAddress = 0;
  assert.equal(staged.physicalAddress, 0);
});

test("the symbol table is three maps of 48 bytes (P-069)", () => {
  assertOffsets("mem_ref_info", 144, { name_to_id: 0, id_to_name: 48, id_to_object: 96 });
});

test("backing kinds are LOCAL 0, SHARED 1, SHARDED 2, MAIN 3", () => {
  assert.deepEqual(abi.BackingBuffer, { LOCAL: 0, SHARED: 1, SHARDED: 2, MAIN: 3 });
});

test("the only reservation in the state buffer is EVTACCEL", () => {
  assert.deepEqual(abi.CarveoutType, { INVALID: 0, EVTACCEL: 1 });
  assert.deepEqual(abi.evtAccelCarveout, { startPartition: 0, partitions: 128, size: 8, offset: { cayman: 229368, mariana: 262136 } });
});
