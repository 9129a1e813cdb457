/**
 * The runtime's device memory layer as data: the `dmem` handle, its allocator
 * and lists, the copy buffer, the ledger, the usage types and the tables that
 * map them. Offsets in bytes, little-endian, 64-bit; see `docs/abi.md`, "Device
 * memory".
 *
 * Pointer fields are 0 or an index the owner chooses: these records describe
 * memory to programs and dumps, they are not handed to the vendor's library.
 */
import { bytes, i32, id64, ptr, struct, u16, u32, u64, u8 } from "../../ffi/layout.ts";

/** `dmem_t`, 192 bytes, 64-byte aligned: one allocation. `docs/abi.md`, "dmem_t". */
export const DmemRecord = struct("dmem_t", 192, {
  pcore: ptr(0),
  memHandle: id64(8),
  size: u64(16),
  pa: u64(24, "_pa"),
  va: ptr(32, "_va"),
  alignOffset: u64(40),
  allocatedSize: u64(48),
  memType: u32(56),
  memUsageType: u32(60),
  tdramChannel: u32(64),
  refCount: u64(128),
  hint: ptr(136),
  cpyBuf: ptr(144),
  next: ptr(152),
  prev: ptr(160),
  allocator: ptr(168),
});

/** `dmem_allocator_t`, 512 bytes: a list of allocations between two sentinel `dmem_t`. `docs/abi.md`, "dmem_allocator_t". */
export const DmemAllocatorRecord = struct("dmem_allocator_t", 512, {
  type: u32(0),
  pcore: ptr(8),
  lock: bytes(16, 40),
  dummyHead: bytes(64, 192),
  dummyTail: bytes(256, 192),
  largestOversizedScratchpadVar: u64(448),
});

/** `dmem_list_t`, 16 bytes: what an owner frees in one go. `docs/abi.md`, "Lists". */
export const DmemListRecord = struct("dmem_list_t", 16, { head: ptr(0), tail: ptr(8) });

/** `dmem_ref_node_t`, 16 bytes: one entry of a {@linkcode DmemListRecord}. `docs/abi.md`, "Lists". */
export const DmemRefNode = struct("dmem_ref_node_t", 16, { dmem: ptr(0), next: ptr(8) });

/** `ndl_copy_buf_t`, 56 bytes: the bounce buffer of one core. `docs/abi.md`, "Copy buffer". */
export const CopyBuffer = struct("ndl_copy_buf_t", 56, { memHandle: id64(0), mmapVa: ptr(8), lock: bytes(16, 40) });

/**
 * `ndl_device_t`, 640 bytes: one open device. `cpyBufs` holds eight
 * {@linkcode CopyBuffer}, `context` leads to the descriptor. `docs/abi.md`, "ndl_device_t".
 */
export const NdlDevice = struct("ndl_device_t", 640, {
  deviceIndex: u8(0),
  deviceType: u8(1),
  deviceRevision: u16(2),
  connectedDeviceCount: u8(4),
  connectedDevices: u8(5, 64),
  csrBase: ptr(72, 2),
  csrSize: u64(88, 2),
  cpyBufs: bytes(104, 448),
  hbmVa: ptr(552, 4),
  hbmSize: u64(584),
  hbmVaCnt: u32(592),
  shiftHbmSize: u32(596),
  hbmOffset: u64(600, 4),
  context: ptr(632),
});

/** The NDL memory record, 64 bytes: what `dmem_t.mem_handle` points to. `docs/abi.md`, "NDL memory record". */
export const NdlMemory = struct("ndl_mem_t", 64, {
  device: ptr(0),
  driverHandle: id64(8),
  pa: u64(16),
  mmapOffset: u64(24),
  size: u64(32),
  align: u32(40),
  mmapVa: ptr(48),
  hostMemory: u32(56),
  ncId: u32(60),
});

/** Columns of a ledger row: 22 usages and the core's total. `docs/abi.md`, "dma_mem_log_t". */
export const LEDGER_ROW = 23;

/**
 * `dma_mem_log_t`, 1600 bytes: the ledger of one device. `memoryUsageNc` is
 * [8][{@linkcode LEDGER_ROW}]: element `core * 23 + usage`, and `core * 23 + 22`
 * for the core's total. `docs/abi.md`, "dma_mem_log_t".
 */
export const MemLogRecord = struct("dma_mem_log_t", 1600, {
  lock: bytes(0, 40),
  mlaIdx: u32(40),
  maxEntries: u64(48),
  entryCount: u64(56),
  nextEntryIdx: u64(64),
  entriesDropped: u64(72),
  memoryUsage: u64(80, 4),
  memoryUsageNc: u64(112, 184),
  entries: ptr(1584),
  verboseLogDevMem: u8(1592),
});

/** `dma_mem_log_entry_t`, 64 bytes: one entry of the ledger's ring. `docs/abi.md`, "dma_mem_log_t". */
export const MemLogEntry = struct("dma_mem_log_entry_t", 64, {
  action: i32(0),
  memLoc: i32(4),
  memUsage: i32(8),
  tdramChannel: u32(12),
  hint: ptr(16),
  ncIdx: u32(24),
  size: u64(32),
  pa: u64(40),
  alignOffset: u64(48),
  totalMemUsed: u64(56),
});

/** `dma_mem_location_t`: where an allocation lies; the driver uses the same numbers. `docs/abi.md`, "Enumerations". */
export const MemLocation = { INVALID: 0, HOST_DRAM: 1, TONGA_DRAM: 2 } as const;

/** `dmem_allocator_type_t`: GLOBAL lives with the core, MODEL with one loaded model. `docs/abi.md`, "Enumerations". */
export const AllocatorKind = { GLOBAL: 0, MODEL: 1 } as const;

/** `dmem_action_t`: what a ledger entry records. `docs/abi.md`, "Enumerations". */
export const MemAction = { ALLOC: 1, FREE: 2 } as const;

/** `dma_mem_usage_type_t`: what memory is for. `MAX` is no usage but the index of a core's total. `docs/abi.md`, "Usage types". */
export const UsageType = {
  GENERIC: 0, INSTR_PE: 1, INSTR_ACT: 2, INSTR_POOL: 3, IO: 4, DRAM_SPILL: 5, WEIGHT: 6, NOTIFICATION: 7,
  ACT_TABLE: 8, INSTR_DVE: 9, INSTR_SP: 10, SCRATCHPAD: 11, TENSOR: 12, UCODE_LIB: 13, POOL_STDIO: 14, CC: 15,
  SCRATCHPAD_NOT_SHARED: 16, XT_CC: 17, DMA_RING: 18, DMA_RING_SPILL: 19, DMA_RING_IO: 20, DMA_RING_COLLECTIVES: 21,
  MAX: 22,
} as const;

/** The name of a usage type: a key of {@linkcode UsageType} except `MAX`. */
export type UsageName = Exclude<keyof typeof UsageType, "MAX">;

/** Usage names by value, 0 … 21. `docs/abi.md`, "Usage types". */
export const usageNames: readonly UsageName[] = (Object.keys(UsageType) as (keyof typeof UsageType)[])
  .filter((name): name is UsageName => name !== "MAX");

/**
 * Usage names by value as log lines spell them. Two spellings are attested in
 * public logs (`tensors`, `shared scratchpad`); the others are ours, in the same
 * manner, from the report's column names. `docs/abi.md`, "Usage types".
 */
export const usageLabels: readonly string[] = [
  "generic", "pe instructions", "act instructions", "pool instructions", "io", "dram spill", "model constants",
  "profiler buffers", "act tables", "dve instructions", "sp instructions", "shared scratchpad", "tensors", "ucode lib",
  "pool stdio", "collectives", "scratchpad", "xt cc", "dma rings runtime", "dma rings spill", "dma rings io",
  "dma rings collectives",
];

/** The entry of a category table that means "refuse": one past the driver's last category. `docs/abi.md`, "Category tables". */
export const CATEGORY_NONE = 20;

/**
 * Driver category of a host allocation by usage type, 22 entries and the pad
 * byte behind them. 11, 15 and 16 are refused ({@linkcode CATEGORY_NONE}).
 *
 * Check the usage first: index 22 is the pad and reads as category 0. By their
 * names one would expect 3 (INSTR_POOL) to be code and 4 (IO) to be misc; both
 * tables have it the other way round, so either the library does that or the
 * two enum names are swapped in what is known. The bytes are kept as read.
 * `docs/abi.md`, "Category tables".
 */
export const hostCategories: readonly number[] = [
  0x04, 0x01, 0x01, 0x04, 0x01, 0x04, 0x03, 0x06, 0x04, 0x01, 0x01, 0x14, 0x02, 0x01, 0x04, 0x14, 0x14, 0x04, 0x11, 0x11, 0x11, 0x11,
  0x00,
];

/**
 * Driver category of a device allocation by usage type, 22 entries and the pad
 * byte; none is refused. The remarks of {@linkcode hostCategories} hold.
 */
export const deviceCategories: readonly number[] = [
  0x0c, 0x08, 0x08, 0x0c, 0x08, 0x0c, 0x0a, 0x10, 0x0c, 0x08, 0x08, 0x0b, 0x09, 0x08, 0x0c, 0x0e, 0x0f, 0x0c, 0x12, 0x12, 0x12, 0x12,
  0x00,
];

/** Names of the report's 12 columns as flat reports print them. `docs/abi.md`, "Report columns". */
export const aggregateColumnNames: readonly string[] = [
  "model code", "model constants", "tensors", "shared scratchpad", "scratchpad", "runtime", "dma rings io", "dma rings spill",
  "dma rings collectives", "dma rings runtime", "collectives", "profiler buffers",
];

/**
 * Report column by usage type, 12 columns. The printed source row lost one
 * byte; this repair mirrors the category tables at 3 and 4, everything else is
 * certain. `docs/abi.md`, "Report columns".
 */
export const aggregateColumns: readonly number[] = [5, 0, 0, 5, 0, 5, 1, 11, 5, 0, 0, 3, 2, 0, 5, 10, 4, 5, 9, 7, 6, 8];

/** Names of the 13 columns of reports of 2025: `xt cc` stands before the profiler's. `docs/abi.md`, "Report columns". */
export const aggregateColumnNames13: readonly string[] = [...aggregateColumnNames.slice(0, 11), "xt cc", "profiler buffers"];

/** Report column by usage type with 13 columns: XT_CC has its own. `docs/abi.md`, "Report columns". */
export const aggregateColumns13: readonly number[] = [5, 0, 0, 5, 0, 5, 1, 12, 5, 0, 0, 3, 2, 0, 5, 10, 4, 11, 9, 7, 6, 8];

/** `NRT_STATUS`: result codes of the runtime, 28 values; 8 and 12 are holes. `docs/abi.md`, "Result codes". */
export const NrtStatus = {
  SUCCESS: 0, FAILURE: 1, INVALID: 2, INVALID_HANDLE: 3, RESOURCE: 4, TIMEOUT: 5, HW_ERROR: 6, QUEUE_FULL: 7,
  LOAD_NOT_ENOUGH_NC: 9, UNSUPPORTED_NEFF_VERSION: 10, FAIL_HOST_MEM_ALLOC: 11, UNINITIALIZED: 13, CLOSED: 14, QUEUE_EMPTY: 15,
  EXEC_UNIT_UNRECOVERABLE: 101, EXEC_BAD_INPUT: 1002, EXEC_COMPLETED_WITH_NUM_ERR: 1003, EXEC_COMPLETED_WITH_ERR: 1004,
  EXEC_NC_BUSY: 1005, EXEC_OOB: 1006, COLL_PENDING: 1100, EXEC_HW_ERR_COLLECTIVES: 1200, EXEC_HW_ERR_HBM_UE: 1201,
  EXEC_HW_ERR_NC_UE: 1202, EXEC_HW_ERR_DMA_ABORT: 1203, EXEC_SW_NQ_OVERFLOW: 1204, EXEC_HW_ERR_REPAIRABLE_HBM_UE: 1205,
  NETWORK_PROXY_FAILURE: 1206,
} as const;

const STATUS_NAMES = new Map<number, string>(Object.entries(NrtStatus).map(([name, value]) => [value, `NRT_${name}`]));

/**
 * The C name of a result code (`"NRT_RESOURCE"`), or `"NRT_STATUS n"` for one without a name.
 *
 * @example
 * console.log(nrtStatusName(4)); // → NRT_RESOURCE
 */
export function nrtStatusName(status: number): string {
  return STATUS_NAMES.get(status) ?? `NRT_STATUS ${status}`;
}
