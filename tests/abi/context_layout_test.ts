import assert from "node:assert/strict";
import { test } from "node:test";
import * as abi from "../../lib/abi/mod.ts";
import { assertOffsets, golden, layoutOf, structOf } from "./support.ts";

/** Asserts that every field of the struct ends where the next begins, or at most `align` − 1 bytes before it. */
function assertChain(cName: string, align: number): void {
  const struct = structOf(cName);
  const layout = layoutOf(struct);
  for (const [index, [name, offset, size]] of layout.entries()) {
    const next = layout[index + 1]?.[1] ?? struct.byteLength;
    assert.ok(next - (offset + size) >= 0 && next - (offset + size) < align, `${cName}: ${next - offset - size} bytes between ${name} and the next field`);
  }
}

test("the context is 18884656 bytes: 32 devices from 8, the id map and the architecture behind them (C-013)", () => {
  assertOffsets("tdrv_ctx_t", 18884656, {
    num_mla: 0, mla: 8, num_ptpb: 18880264, ptpbs: 18880272, host_did_to_rid_map: 18884368, size: 18884496, reservation_id: 18884504,
    pod_type: 18884512, pod_sz: 18884516, pod_node_id: 18884520, pod_mode: 18884524, target: 18884528,
  });
  const { mla, ptpbs, hostDidToRidMap } = abi.TdrvContext.fields;
  assert.equal(mla.size, 18880256);
  assert.equal(mla.size, abi.MAX_DEVICES * abi.MlaRecord.byteLength);
  assert.equal(mla.offset + mla.size, 18880264);
  assert.equal(ptpbs.size / abi.PtpbEntry.byteLength, 256);
  assert.equal(hostDidToRidMap.count, abi.MAX_DEVICES);
  assertChain("tdrv_ctx_t", 8);
});

test("a device slot is 590008 bytes, without gaps but padding, and keeps the driver's device at 314664 (C-020, D-029)", () => {
  assertOffsets("mla_t", 590008, {
    is_used: 0, init_state: 4, mla_idx: 8, bars: 16, _tpbs: 80, tpb_map: 314640, device_id: 314648, host_device_id: 314652, routing_id: 314656,
    device: 314664, top_sps: 314672, bdf: 576688, dmem_logger: 576768, v2_last_nc_memory_error_ts: 578368, xt_cc: 578376, intc: 578576,
  });
  const { tpbs, topSps, dmemLogger } = abi.MlaRecord.fields;
  assert.equal(tpbs.size, abi.MAX_CORES * abi.TpbRecord.byteLength);
  assert.deepEqual([topSps.size, topSps.size % 16, topSps.offset + topSps.size], [262016, 0, 576688]);
  assert.equal(dmemLogger.size, abi.MemLogRecord.byteLength);
  assertChain("mla_t", 8);
});

test("a core is 39320 bytes and 24 members, without gaps but padding (C-023)", () => {
  assertOffsets("tpb_t", 0x9998, {
    idx: 24, tpb_allocator: 17024, model_db_lock: 19992, model_db: 20032, h_running_model: 20040, scratchpad: 22200, pooling_q7_cores: 39232,
    nrtucode_context: 39312,
  });
  assert.equal(Object.keys(abi.TpbRecord.fields).length, 24);
  assert.equal(abi.TpbRecord.fields.modelDbLock.size, 40);
  assert.equal(abi.TpbRecord.fields.poolingQ7Cores.count, 8);
  assertChain("tpb_t", 8);
});

test("the architecture's part of a core is 2960 bytes at 17032, its library cache at 19936, that one's lock at 19944 (C-102)", () => {
  assertOffsets("tpb_sunda_t", 2960, { hal: 0, instr_fetch_queues: 1104, ulib_set_info_extisa_only: 2904, ulib_staging_lock: 2912, set_ulib_reg: 2952 });
  const base = abi.TpbRecord.offsets.sunda;
  assert.deepEqual(
    [base, abi.TpbRecord.fields.sunda.size, base + abi.TpbSunda.offsets.ulibSetInfoExtisaOnly, base + abi.TpbSunda.offsets.ulibStagingLock, base + abi.TpbSunda.offsets.setUlibReg],
    [17032, 2960, 19936, 19944, 19984],
  );
  assertChain("tpb_sunda_t", 8);
});

test("a core's place is arithmetic over two strides, and distinct cores have distinct places inside their device (C-016)", () => {
  assert.deepEqual([abi.MLA_BYTES, abi.TPB_BYTES, abi.TdrvContext.offsets.mla, abi.MlaRecord.offsets.tpbs], [590008, 39320, 8, 80]);
  for (const [device, core, mla, tpb] of golden.resolver) {
    assert.deepEqual([abi.mlaOffset(device), abi.tpbOffset(device, core)], [mla, tpb], `${device},${core}`);
  }
  const places = new Set<number>();
  for (let device = 0; device < abi.MAX_DEVICES; device++) {
    for (let core = 0; core < abi.MAX_CORES; core++) {
      const at = abi.tpbOffset(device, core);
      assert.ok(at >= abi.mlaOffset(device) && at + abi.TPB_BYTES <= abi.mlaOffset(device) + abi.MLA_BYTES);
      places.add(at);
    }
  }
  assert.equal(places.size, 256);
});

test("the tree has 32 device slots of 8 core slots; what is beyond is refused (C-002)", () => {
  assert.ok(abi.tpbOffset(31, 7) > abi.tpbOffset(31, 0));
  for (const [device, core] of [[32, 0], [0, 8], [-1, 0], [0, -1], [0.5, 0], [0, 1.5], [NaN, 0]] as const) {
    assert.throws(() => abi.tpbOffset(device, core), { name: "ArgumentError" }, `${device},${core}`);
  }
  assert.throws(() => abi.mlaOffset(32), { name: "ArgumentError" });
});

test("a logical core is 64 bytes: index, unit, device key, count, two cores of 24 (C-144)", () => {
  assertOffsets("virtual_core_t", 64, { vtpb_idx: 0, vtpb: 4, nec_dev_id: 8, num_tpbs: 12, tpbs: 16 });
  assertOffsets("physical_core_t", 24, { device_id: 0, device_tpb_idx: 4, vcore: 8, pad: 16 });
  assert.equal(abi.VirtualCoreRecord.fields.tpbs.size, abi.MAX_CORES_PER_LOGICAL * abi.PhysicalCoreRecord.byteLength);
  assert.equal(abi.VirtualCoreRecord.offsets.tpbs + abi.VirtualCoreRecord.fields.tpbs.size, abi.VirtualCoreRecord.byteLength);
});

test("a model is 7744 bytes; from its node at 7496 it is found, 21 nodes behind its reference count (C-089, C-072)", () => {
  assertOffsets("model_t", 0x1e40, {
    name: 0, dma_queue_set: 272, dbtc_storage: 6296, kbin_patch_info: 6304, h_model: 6384, param: 6432, dmem_allocator: 6464, gc_tracker: 6472,
    ulib_set_info: 6480, ref_count: 6488, input_fmap_set: 6496, output_fmap_set: 6512, target: 6528, num_hw_exec_queue_descs: 6656,
    static_mr_set: 6664, io_mr_to_name_map: 6672, cc_ctx: 6856, scratchpad_cleanup_info: 7480, ht_node: 7496,
  });
  const { htNode, refCount } = abi.ModelRecord.offsets;
  assert.equal(abi.hashNodeOffset.model_t, htNode);
  assert.equal(htNode - refCount, 1008);
  assert.equal(21 * abi.HashNode.byteLength, 1008);
  assert.equal(157 * abi.HashNode.byteLength - 40, htNode);
  assert.equal(abi.ModelRecord.fields.htNode.size, abi.HashNode.byteLength);
  const model = abi.ModelRecord.alloc({ hModel: 1001, refCount: 2 });
  const node = abi.HashNode.over(model.$view, htNode);
  node.key = model.hModel;
  const found = abi.ModelRecord.over(node.$view, node.$base - abi.hashNodeOffset.model_t);
  assert.deepEqual([found.hModel, found.refCount], [1001, 2]);
});

test("the flags that the reservation check drives lie at 7584 and 7585 of a model", () => {
  assert.deepEqual([abi.ModelRecord.offsets.resetEvtAccel, abi.ModelRecord.offsets.programFp8Cfg], [7584, 7585]);
});

test("the slot a load builds is 32 bytes: set, allocator, list, scratchpad (C-084)", () => {
  assertOffsets("vtpb_info_shared_mr_set_t", 32, { mem_ref_set: 0, model_allocator: 8, gc_tracker: 16, scratchpad_cleanup_info: 24 });
  assertChain("vtpb_info_shared_mr_set_t", 1);
});

test("a library set is 48 bytes, a library 32 (C-109)", () => {
  assertOffsets("ucode_lib_set_info_t", 48, { scratch_space: 0, ucode_table: 8, extram: 16, num_libs: 24, libs: 32, lib_dmem: 40 });
  assertOffsets("ucode_lib_info_t", 32, { address: 0, flags: 8, cpu_id: 12, total_cpus: 16, num_funcs: 20, funcs: 24 });
});

test("the device-side library table has 97 entries of 280 bytes (C-112)", () => {
  const { entries, entryBytes, bytes } = abi.deviceLibraryTable;
  assert.deepEqual([entries, entryBytes, bytes, entries * entryBytes], [97, 280, 27160, 27160]);
});

test("the table of a hash is 32 bytes, its node 48", () => {
  assertOffsets("ht_t", 32, { size: 0, size_mask: 8, count: 16, free_node_fn: 24 });
  assert.equal(abi.MEM_REF_BUCKETS & (abi.MEM_REF_BUCKETS - 1), 0);
  assert.deepEqual([abi.MEM_REF_BUCKETS, abi.MEM_REF_BUCKETS - 1], [0x400, 0x3ff]);
});

test("architectures are INVALID 0, INVALID_1 1, SUNDA 2, CAYMAN 3, MARIANA 4, NUM 5, and only 2, 3 and 4 have a geometry (C-014)", () => {
  assert.deepEqual(abi.TpbArch, { INVALID: 0, INVALID_1: 1, SUNDA: 2, CAYMAN: 3, MARIANA: 4, NUM: 5 });
  for (let value = -1; value < 8; value++) assert.equal(abi.geometryOf(value) !== undefined, value >= 2 && value <= 4, String(value));
  assert.deepEqual([abi.Architecture.V2, abi.Architecture.V3, abi.Architecture.V4], [abi.TpbArch.SUNDA, abi.TpbArch.CAYMAN, abi.TpbArch.MARIANA]);
});
