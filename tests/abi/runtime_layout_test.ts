import assert from "node:assert/strict";
import { test } from "node:test";
import * as abi from "../../lib/abi/mod.ts";
import { assertOffsets, Comparisons, golden, layoutOf, structOf } from "./support.ts";

test("every runtime struct has the size, offsets and field sizes of the golden tables", () => {
  const compare = new Comparisons();
  const structs = Object.entries(golden.structs);
  for (const [cName, expected] of structs) {
    const struct = structOf(cName);
    const layout = layoutOf(struct);
    compare.same(struct.byteLength, expected.size, `size of ${cName}`);
    compare.same(layout.map(([name]) => name), expected.fields.map(([name]) => name), `fields of ${cName}`);
    for (const [index, [name, offset, size]] of expected.fields.entries()) {
      compare.same(layout[index]![1], offset, `offset of ${cName}.${name}`);
      if (size !== null) compare.same(layout[index]![2], size, `size of ${cName}.${name}`);
    }
  }
  console.log(`runtime structs: ${compare.count} comparisons over ${structs.length}`);
  assert.ok(structs.length >= 71 && compare.count >= 900, `only ${compare.count} comparisons over ${structs.length} structs`);
});

test("every runtime enum and table has the values of the golden tables", () => {
  const compare = new Comparisons();
  const exports = abi as unknown as Readonly<Record<string, unknown>>;
  for (const [name, expected] of Object.entries(golden.enums)) {
    const ours = exports[name] as Readonly<Record<string, number>>;
    for (const [key, value] of Object.entries(expected)) compare.same(ours[key], value, `${name}.${key}`);
    compare.same(Object.keys(ours).length, Object.keys(expected).length, `number of values of ${name}`);
  }
  for (const [name, expected] of Object.entries(golden.tables)) {
    const ours = exports[name] as readonly number[];
    for (const [index, value] of expected.entries()) compare.same(ours[index], value, `${name}[${index}]`);
    compare.same(ours.length, expected.length, `length of ${name}`);
  }
  console.log(`runtime enums and tables: ${compare.count} comparisons`);
  assert.ok(compare.count >= 250, `only ${compare.count} comparisons`);
});

test("dmem_t is 192 bytes, its gaps lie at 68 and 176, its reference count has a cache line of its own (D-006, D-008)", () => {
  assertOffsets("dmem_t", 192, {
    pcore: 0, mem_handle: 8, size: 16, _pa: 24, _va: 32, align_offset: 40, allocated_size: 48, mem_type: 56, mem_usage_type: 60,
    tdram_channel: 64, ref_count: 128, hint: 136, cpy_buf: 144, next: 152, prev: 160, allocator: 168,
  });
  const covered = new Set(layoutOf(structOf("dmem_t")).flatMap(([, offset, size]) => Array.from({ length: size }, (_, at) => offset + at)));
  const free = Array.from({ length: 192 }, (_, at) => at).filter((at) => !covered.has(at));
  assert.deepEqual([free[0], free[59], free[60], free.length], [68, 127, 176, 60 + 16]);
  const line = (offset: number) => Math.floor(offset / 64);
  const { refCount, memHandle, pa } = abi.DmemRecord.offsets;
  assert.equal(refCount % 64, 0);
  assert.ok(line(refCount) !== line(memHandle) && line(refCount) !== line(pa));
});

test("the allocator is 512 bytes with two dmem_t sentinels, and its core lies where sentinel arithmetic puts it (D-011, D-012)", () => {
  assertOffsets("dmem_allocator_t", 512, { type: 0, pcore: 8, lock: 16, dummy_head: 64, dummy_tail: 256, largest_oversized_scratchpad_var: 448 });
  const { dummyHead, dummyTail } = abi.DmemAllocatorRecord.fields;
  assert.equal(dummyHead.size, abi.DmemRecord.byteLength);
  assert.equal(dummyTail.size, abi.DmemRecord.byteLength);
  const dmem = abi.DmemRecord.byteLength;
  assert.equal(dummyTail.offset - 2 * dmem + abi.DmemRecord.offsets.hint, abi.DmemAllocatorRecord.offsets.pcore);
  assert.deepEqual(abi.AllocatorKind, { GLOBAL: 0, MODEL: 1 });
});

test("the list of an owner is 16 bytes, its node 16 (C-029)", () => {
  assertOffsets("dmem_list_t", 16, { head: 0, tail: 8 });
  assertOffsets("dmem_ref_node_t", 16, { dmem: 0, next: 8 });
});

test("the record behind a memory handle is 64 bytes (D-051)", () => {
  assertOffsets("ndl_mem_t", 64, {
    device: 0, driver_handle: 8, pa: 16, mmap_offset: 24, size: 32, align: 40, mmap_va: 48, host_memory: 56, nc_id: 60,
  });
});

test("ndl_device_t holds eight copy buffers of 56 bytes from 104 to 552 and its context at 632 (D-055)", () => {
  assertOffsets("ndl_device_t", 640, { cpy_bufs: 104, hbm_va: 552, context: 632 });
  assertOffsets("ndl_copy_buf_t", 56, { mem_handle: 0, mmap_va: 8, lock: 16 });
  const buffers = abi.NdlDevice.fields.cpyBufs;
  assert.equal(buffers.size / abi.CopyBuffer.byteLength, abi.MAX_CORES);
  assert.equal(buffers.offset + buffers.size, abi.NdlDevice.offsets.hbmVa);
});

test("the ledger is 1600 bytes; its matrix is 8 rows of 23, so that a row's total never meets the next row (C-057, D-127, D-133)", () => {
  assertOffsets("dma_mem_log_t", 0x640, {
    lock: 0, mla_idx: 40, max_entries: 48, entry_count: 56, next_entry_idx: 64, entries_dropped: 72, memory_usage: 80,
    memory_usage_nc: 112, entries: 1584, verbose_log_dev_mem: 1592,
  });
  const matrix = abi.MemLogRecord.fields.memoryUsageNc;
  assert.equal(matrix.size, 1472);
  assert.equal(matrix.count, abi.MAX_CORES * abi.LEDGER_ROW);
  assert.equal(abi.LEDGER_ROW * 8, 184);
  const log = abi.MemLogRecord.alloc();
  log.$set("memoryUsageNc", abi.UsageType.MAX, 7);
  log.$set("memoryUsageNc", abi.LEDGER_ROW + abi.UsageType.GENERIC, 9);
  assert.equal(log.$get("memoryUsageNc", abi.UsageType.MAX), 7);
  assert.equal(log.$view.getBigUint64(112 + 22 * 8, true), 7n);
  assert.equal(log.$view.getBigUint64(112 + 23 * 8, true), 9n);
});

test("a ring entry is 64 bytes, actions are ALLOC 1 and FREE 2", () => {
  assertOffsets("dma_mem_log_entry_t", 64, {
    action: 0, mem_loc: 4, mem_usage: 8, tdram_channel: 12, hint: 16, nc_idx: 24, size: 32, pa: 40, align_offset: 48, total_mem_used: 56,
  });
  assert.deepEqual(abi.MemAction, { ALLOC: 1, FREE: 2 });
});

test("location and usage read as one eight-byte store (D-068)", () => {
  const dmem = abi.DmemRecord.alloc({ memType: abi.MemLocation.TONGA_DRAM, memUsageType: abi.UsageType.SCRATCHPAD });
  assert.equal(dmem.$view.getBigUint64(abi.DmemRecord.offsets.memType, true), 0xb_0000_0002n);
  dmem.$view.setBigUint64(56, 0xb_0000_0002n, true);
  assert.deepEqual([dmem.memType, dmem.memUsageType], [2, 11]);
});

test("a tensor view is 192 bytes with each counter on its own line (C-114)", () => {
  assertOffsets("nrt_tensor_t", 192, { name: 0, sto: 8, _offset: 16, _size: 24, extra: 32, ref_count: 64, output_completion_count: 128 });
});

test("a tensor storage is 320 bytes; its types are INVALID 0, MALLOC 1, DMA 2, FAKE 3 (C-115)", () => {
  assertOffsets("nrt_tensor_storage_t", 320, {
    hbm_idx: 0, allocated_size: 8, type: 16, mem: 24, ref_count: 64, mem_owned_by_tensor: 72, tensor_op_cv_lock: 80, tensor_op_cv: 120,
    pending_exec_count_read: 192, pending_exec_count_write: 256, vtpb_idx: 264,
  });
  assert.deepEqual(abi.StorageKind, { INVALID: 0, MALLOC: 1, DMA: 2, FAKE: 3 });
  const storage = abi.TensorStorageRecord.alloc({ vtpbIdx: -1, hbmIdx: abi.NO_HBM });
  assert.deepEqual([storage.vtpbIdx, storage.hbmIdx], [-1, 4294967295]);
});

test("the flat form of a tensor set is 16 bytes: array, count", () => {
  assertOffsets("nrt_tensor_list_t", 16, { tensors: 0, num_tensors: 8 });
});

test("the scratchpad is 16440 bytes at 22200 of a core, with 1024 pages of 16 (C-138)", () => {
  assertOffsets("tdrv_scratchpad_t", 16440, { lock: 0, page_size: 40, num_pages: 48, is_contiguous: 52, pages: 56 });
  assertOffsets("tdrv_scratchpad_page_t", 16, { mem: 0, refs: 8 });
  assert.equal(56 + abi.SCRATCHPAD_MAX_PAGES * abi.ScratchpadPage.byteLength, abi.ScratchpadRecord.byteLength);
  assert.equal(abi.TpbRecord.offsets.scratchpad, 22200);
  assert.equal(abi.TpbRecord.fields.scratchpad.size, abi.ScratchpadRecord.byteLength);
  assertOffsets("tdrv_scratchpad_info_t", 24, { pcore: 0, size: 8, offset: 16 });
  assertOffsets("tdrv_scratchpad_cleanup_info_t", 48, { pcores: 0, sizes: 16, num_entries: 32, contiguous_scratchpad_va: 40 });
  assert.deepEqual([abi.SCRATCHPAD_PAGE_BYTES, abi.SCRATCHPAD_CONTIGUOUS_PAGE_BYTES, abi.SCRATCHPAD_PAGE_ALIGNMENT], [512 * 2 ** 20, 64 * 2 ** 20, 4 * 2 ** 20]);
});
