/**
 * The scratchpad of a core as data: pages, claims and limits. Offsets in bytes,
 * little-endian, 64-bit; see `docs/abi.md`, "Scratchpad".
 */
import { bytes, ptr, struct, u32, u64, u8 } from "../../ffi/layout.ts";

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
