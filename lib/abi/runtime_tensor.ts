/**
 * Tensors as the runtime holds them: a view over a counted storage, and the
 * structs of its public header. Offsets in bytes, little-endian, 64-bit; see
 * `docs/abi.md`, "Tensors".
 */
import { bytes, chars, i32, ptr, struct, u32, u64, u8 } from "../../ffi/layout.ts";

/** `nrt_tensor_t`, 192 bytes: a name and a window into a storage; each counter has a cache line. `docs/abi.md`, "nrt_tensor_t". */
export const TensorRecord = struct("nrt_tensor_t", 192, {
  name: ptr(0),
  sto: ptr(8),
  offset: u64(16, "_offset"),
  size: u64(24, "_size"),
  extra: ptr(32),
  refCount: u64(64),
  outputCompletionCount: u64(128),
});

/** `nrt_tensor_storage_t`, 320 bytes: the memory behind views. `mem` is a dmem or a host address by `type`. `docs/abi.md`, "nrt_tensor_storage_t". */
export const TensorStorageRecord = struct("nrt_tensor_storage_t", 320, {
  hbmIdx: u32(0),
  allocatedSize: u64(8),
  type: u32(16),
  mem: ptr(24),
  refCount: u64(64),
  memOwnedByTensor: u8(72),
  tensorOpCvLock: bytes(80, 40),
  tensorOpCv: bytes(120, 48),
  pendingExecCountRead: u64(192),
  pendingExecCountWrite: u64(256),
  vtpbIdx: i32(264),
});

/** `hbm_idx` of a storage that is not on the device. `docs/abi.md`, "nrt_tensor_storage_t". */
export const NO_HBM = 0xffff_ffff;

/** `nrt_tensor_batch_t`, 24 bytes: one tensor's operations in a batch. `docs/abi.md`, "Tensors". */
export const TensorBatchRecord = struct("nrt_tensor_batch_t", 24, { tensor: ptr(0), ops: ptr(8), numOps: u32(16) });

/** `nrt_tensor_device_allocation_info_t`, 24 bytes: where a tensor's allocation lies. `docs/abi.md`, "Tensors". */
export const TensorAllocationInfo = struct("nrt_tensor_device_allocation_info_t", 24, {
  physicalAddress: u64(0),
  size: u64(8),
  hbmIndex: i32(16),
});

/** `nrt_tensor_list_t`, 16 bytes: the flat form of a tensor set. `docs/abi.md`, "Tensors". */
export const TensorListRecord = struct("nrt_tensor_list_t", 16, { tensors: ptr(0), numTensors: u64(8) });

/** `nrt_tensor_info_t`, 296 bytes: one input or output of a model. `docs/abi.md`, "Tensors". */
export const TensorInfoRecord = struct("nrt_tensor_info_t", 296, {
  name: chars(0, 256),
  usage: u32(256),
  size: u64(264),
  dtype: u32(272),
  shape: ptr(280),
  ndim: u32(288),
});

/** `io_node_info`, 144 bytes: shape and type of an input or output from the host graph. `docs/abi.md`, "Tensors". */
export const IoNodeInfo = struct("io_node_info", 144, { size: u64(0), dtype: u32(8), shape: u32(12, 32), ndim: u32(140) });

/** `nrt_tensor_storage_type_t`: what backs a storage. `docs/abi.md`, "Tensors". */
export const StorageKind = { INVALID: 0, MALLOC: 1, DMA: 2, FAKE: 3 } as const;

/** `nrt_tensor_placement_t`: where the caller wants a tensor; HOST is pinned memory, VIRTUAL plain memory. `docs/abi.md`, "Tensors". */
export const TensorPlacement = { DEVICE: 0, HOST: 1, VIRTUAL: 2 } as const;

/** `nrt_tensor_usage_t`. `docs/abi.md`, "Tensors". */
export const TensorUsage = { INPUT: 0, OUTPUT: 1 } as const;

/** `nrt_dtype_t`: element types by number, of `nrt_tensor_info_t` and `io_node_info`. `docs/abi.md`, "Tensors". */
export const TensorDtype = {
  UNKNOWN: 0, UINT64: 1, INT8: 2, UINT8: 3, INT16: 4, UINT16: 5, BFLOAT16: 6, FLOAT16: 7, INT32: 8, UINT32: 9, FLOAT32: 10,
  FLOAT32R: 11, INT64: 12, FP8_E3: 13, FP8_E4: 14, FP8_E5: 15,
} as const;

/** Bytes of one element, index = {@linkcode TensorDtype}. `docs/abi.md`, "Tensors". */
export const dtypeBytes: readonly number[] = [1, 8, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 8, 1, 1, 1];

/** Pages a scratchpad can have. `docs/abi.md`, "Scratchpad". */
export const SCRATCHPAD_MAX_PAGES = 1024;

/** Page size of the paged mode when nothing else is asked for, bytes. `docs/abi.md`, "Scratchpad". */
export const SCRATCHPAD_PAGE_BYTES = 0x20000000;

/** Page size of the contiguous mode, bytes. `docs/abi.md`, "Scratchpad". */
export const SCRATCHPAD_CONTIGUOUS_PAGE_BYTES = 0x4000000;

/** Alignment asked for a page of the paged mode, bytes. `docs/abi.md`, "Scratchpad". */
export const SCRATCHPAD_PAGE_ALIGNMENT = 0x400000;

/** `tdrv_scratchpad_t`, 16440 bytes: the scratchpad of a core; `pages` is [1024] of {@linkcode ScratchpadPage}. `docs/abi.md`, "Scratchpad". */
export const ScratchpadRecord = struct("tdrv_scratchpad_t", 16440, {
  lock: bytes(0, 40),
  pageSize: u64(40),
  numPages: u32(48),
  isContiguous: u8(52),
  pages: bytes(56, 16384),
});

/** One page, 16 bytes: its memory and how many models claim it. `docs/abi.md`, "Scratchpad". */
export const ScratchpadPage = struct("tdrv_scratchpad_page_t", 16, { mem: ptr(0), refs: u32(8) });

/** `tdrv_scratchpad_info_t`, 24 bytes: an arena's place on a core. `docs/abi.md`, "Scratchpad". */
export const ScratchpadInfo = struct("tdrv_scratchpad_info_t", 24, { pcore: ptr(0), size: u64(8), offset: u64(16) });

/** `tdrv_scratchpad_cleanup_info_t`, 48 bytes: what a model gives back when it is unloaded. `docs/abi.md`, "Scratchpad". */
export const ScratchpadCleanup = struct("tdrv_scratchpad_cleanup_info_t", 48, {
  pcores: ptr(0, 2),
  sizes: u64(16, 2),
  numEntries: u32(32),
  contiguousScratchpadVa: ptr(40),
});
