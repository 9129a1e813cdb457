/**
 * The context tree of a process as data: devices, cores, models, hash tables and
 * the shared libraries of a core. Offsets in bytes, little-endian, 64-bit; see
 * `docs/abi.md`, "Context".
 *
 * The big structs describe addresses and dumps; nothing has to allocate them.
 */
import { ArgumentError } from "../../ffi/error.ts";
import { bytes, chars, i32, id64, ptr, struct, u32, u64, u8 } from "../../ffi/layout.ts";

/** Devices the tree has room for; the driver allows 64. `docs/abi.md`, "tdrv_ctx_t". */
export const MAX_DEVICES = 32;

/** Cores a device has room for. `docs/abi.md`, "mla_t". */
export const MAX_CORES = 8;

/** Bytes of one device in the tree: the stride of `mla`. `docs/abi.md`, "mla_t". */
export const MLA_BYTES = 590008;

/** Bytes of one core in a device: the stride of `_tpbs`. `docs/abi.md`, "tpb_t". */
export const TPB_BYTES = 39320;

/** `tdrv_ctx_t`, 18884656 bytes: one per process. `docs/abi.md`, "tdrv_ctx_t". */
export const TdrvContext = struct("tdrv_ctx_t", 18884656, {
  numMla: u32(0),
  mla: bytes(8, MAX_DEVICES * MLA_BYTES),
  numPtpb: u32(18880264),
  ptpbs: bytes(18880272, 4096),
  hostDidToRidMap: i32(18884368, 32),
  size: u64(18884496),
  reservationId: id64(18884504),
  podType: u32(18884512),
  podSz: u32(18884516),
  podNodeId: i32(18884520),
  podMode: u32(18884524),
  target: u32(18884528),
  debug: bytes(18884532, 124),
});

/** One of `tdrv_ctx_t.ptpbs`, 16 bytes: a core and its device. `docs/abi.md`, "tdrv_ctx_t". */
export const PtpbEntry = struct("tdrv_ptpb_t", 16, { tpbIdx: u32(0), mla: ptr(8) });

/** `mla_t`, 590008 bytes: one device. `docs/abi.md`, "mla_t". */
export const MlaRecord = struct("mla_t", MLA_BYTES, {
  isUsed: u8(0),
  initState: u32(4),
  mlaIdx: u32(8),
  bars: bytes(16, 64),
  tpbs: bytes(80, MAX_CORES * TPB_BYTES, "_tpbs"),
  tpbMap: bytes(314640, 8),
  deviceId: i32(314648),
  hostDeviceId: i32(314652),
  routingId: u32(314656),
  device: ptr(314664),
  topSps: bytes(314672, 262016),
  bdf: bytes(576688, 80),
  dmemLogger: bytes(576768, 1600),
  v2LastNcMemoryErrorTs: u64(578368, "v2_last_nc_memory_error_ts"),
  xtCc: bytes(578376, 200),
  intc: bytes(578576, 11432),
});

/** `tpb_t`, 39320 bytes: one core. `docs/abi.md`, "tpb_t". */
export const TpbRecord = struct("tpb_t", TPB_BYTES, {
  memBase: ptr(0),
  regsBase: ptr(8),
  ens: ptr(16),
  idx: u32(24),
  notification: bytes(32, 15816),
  poolStdio: bytes(15848, 1176),
  tpbAllocator: ptr(17024),
  sunda: bytes(17032, 2960),
  modelDbLock: bytes(19992, 40),
  modelDb: ptr(20032),
  hRunningModel: u32(20040),
  dma: bytes(20048, 1280),
  globalCcResource: bytes(21328, 872),
  scratchpad: bytes(22200, 16440),
  hwExecQueue: bytes(38640, 224),
  syncPoint: bytes(38864, 16),
  readyExecIbAddrs: bytes(38880, 280),
  switchBufs: bytes(39160, 16),
  instrMemTracker: bytes(39176, 16),
  nrtucodeCore: ptr(39192, 5),
  poolingQ7Cores: ptr(39232, 8, "pooling_q7_cores"),
  poolingQ7LlCore: ptr(39296, "pooling_q7_ll_core"),
  poolingQ7Count: u32(39304, "pooling_q7_count"),
  nrtucodeContext: ptr(39312),
});

/** The architecture's part of `tpb_t`, 2960 bytes: instruction queues and the core's shared library set. `docs/abi.md`, "tpb_t". */
export const TpbSunda = struct("tpb_sunda_t", 2960, {
  hal: bytes(0, 1104),
  instrFetchQueues: bytes(1104, 1800),
  ulibSetInfoExtisaOnly: ptr(2904),
  ulibStagingLock: bytes(2912, 40),
  setUlibReg: u64(2952),
});

/** `physical_core_t`, 24 bytes; the first 8 are its identity. `docs/abi.md`, "Cores". */
export const PhysicalCoreRecord = struct("physical_core_t", 24, { deviceId: u32(0), deviceTpbIdx: u32(4), vcore: ptr(8), pad: u64(16) });

/** `virtual_core_t`, 64 bytes: a logical core of one or two {@linkcode PhysicalCoreRecord}. `docs/abi.md`, "Cores". */
export const VirtualCoreRecord = struct("virtual_core_t", 64, {
  vtpbIdx: u32(0),
  vtpb: u32(4),
  necDevId: u32(8),
  numTpbs: u32(12),
  tpbs: bytes(16, 48),
});

/** Physical cores a logical core has room for. `docs/abi.md`, "Cores". */
export const MAX_CORES_PER_LOGICAL = 2;

/** `ht_t`, 32 bytes: the head of a hash table; `sizeMask` is `size` − 1. `docs/abi.md`, "Hash tables". */
export const HashTable = struct("ht_t", 32, { size: u64(0), sizeMask: u64(8), count: u64(16), freeNodeFn: ptr(24) });

/** `ht_node_t`, 48 bytes: an entry, embedded in its owner; the key is a number or a text's address. `docs/abi.md`, "Hash tables". */
export const HashNode = struct("ht_node_t", 48, {
  key: id64(0),
  value: id64(8),
  bufSize: u64(16),
  bucket: u64(24),
  keyType: u32(32),
  next: ptr(40),
});

/** Where the node lies in its owner: subtract it from a node's address. `docs/abi.md`, "Hash tables". */
export const hashNodeOffset = { model_t: 7496, mem_ref_t: 160, kbl_feature_map_t: 8 } as const;

/** `model_t`, 7744 bytes, known fields: one loaded subgraph. What lies between them is not known. `docs/abi.md`, "model_t". */
export const ModelRecord = struct("model_t", 7744, {
  name: chars(0, 256),
  dmaQueueSet: bytes(272, 6024),
  dbtcStorage: ptr(6296),
  kbinPatchInfo: bytes(6304, 80),
  hModel: u32(6384),
  param: bytes(6432, 32),
  dmemAllocator: ptr(6464),
  gcTracker: ptr(6472),
  ulibSetInfo: ptr(6480),
  refCount: u64(6488),
  inputFmapSet: bytes(6496, 16),
  outputFmapSet: bytes(6512, 16),
  target: u32(6528),
  numHwExecQueueDescs: u32(6656),
  staticMrSet: ptr(6664),
  ioMrToNameMap: ptr(6672),
  ccCtx: bytes(6856, 624),
  scratchpadCleanupInfo: ptr(7480),
  htNode: bytes(7496, 48),
  resetEvtAccel: u8(7584),
  programFp8Cfg: u8(7585, "program_fp8_cfg"),
});

/** `vtpb_info_shared_mr_set_t`, 32 bytes: what a subgraph's load builds before the model takes it over. `docs/abi.md`, "Shared slot". */
export const SharedMrSet = struct("vtpb_info_shared_mr_set_t", 32, {
  memRefSet: ptr(0),
  modelAllocator: ptr(8),
  gcTracker: ptr(16),
  scratchpadCleanupInfo: ptr(24),
});

/** `ucode_lib_set_info_t`, 48 bytes: the staged libraries of a core or model. `docs/abi.md`, "Libraries". */
export const UcodeLibSetInfo = struct("ucode_lib_set_info_t", 48, {
  scratchSpace: ptr(0),
  ucodeTable: ptr(8),
  extram: ptr(16),
  numLibs: i32(24),
  libs: ptr(32),
  libDmem: ptr(40),
});

/** `ucode_lib_info_t`, 32 bytes: one staged library; the offsets between 0 and 24 are inferred. `docs/abi.md`, "Libraries". */
export const UcodeLibInfo = struct("ucode_lib_info_t", 32, {
  address: u64(0),
  flags: u32(8),
  cpuId: u32(12),
  totalCpus: u32(16),
  numFuncs: u32(20),
  funcs: ptr(24),
});

/** Libraries a model may bring. `docs/abi.md`, "Libraries". */
export const MAX_UCODE_LIBS = 9;

/** The device-side library table: entries and bytes of one; contents are not known. `docs/abi.md`, "Libraries". */
export const deviceLibraryTable = { entries: 97, entryBytes: 280, bytes: 27160 } as const;

/** `al_hal_tpb_arch_type_t`: the runtime's architecture numbers; `NUM` is none. `docs/abi.md`, "Architectures". */
export const TpbArch = { INVALID: 0, INVALID_1: 1, SUNDA: 2, CAYMAN: 3, MARIANA: 4, NUM: 5 } as const;

/** States of the runtime as its API gates see them. `docs/abi.md`, "Enumerations of the context". */
export const RuntimeState = { START: 0, INIT: 1, CHILD: 2, CLOSED: 3 } as const;

/** The only reservation a model may make in the state buffer, and what it must be where it is checked. `docs/abi.md`, "Architectures". */
export const evtAccelCarveout = { startPartition: 0, partitions: 128, size: 8, offset: { cayman: 0x37ff8, mariana: 0x3fff8 } } as const;

/**
 * Byte offset of a device in the context tree: 8 + 590008 · device.
 *
 * @throws {ArgumentError} unless 0 ≤ device < {@linkcode MAX_DEVICES}
 */
export function mlaOffset(device: number): number {
  if (!(Number.isInteger(device) && device >= 0 && device < MAX_DEVICES)) {
    throw new ArgumentError(`Cannot locate device ${device}: the context has ${MAX_DEVICES} slots`, { details: { device, slots: MAX_DEVICES } });
  }
  return TdrvContext.offsets.mla + MLA_BYTES * device;
}

/**
 * Byte offset of a core in the context tree: its device's offset + 80 + 39320 · core.
 *
 * @throws {ArgumentError} unless the device and 0 ≤ core < {@linkcode MAX_CORES} are in range
 */
export function tpbOffset(device: number, core: number): number {
  if (!(Number.isInteger(core) && core >= 0 && core < MAX_CORES)) {
    throw new ArgumentError(`Cannot locate core ${core} of device ${device}: a device has ${MAX_CORES} slots`, {
      details: { device, core, slots: MAX_CORES },
    });
  }
  return mlaOffset(device) + MlaRecord.offsets.tpbs + TPB_BYTES * core;
}
