/**
 * The plan of one subgraph as data: the records a model is planned into, the
 * staged form with addresses, and the structs around them. Nothing of this is a
 * file; pointer fields are 0 or an index the writer chooses. Offsets in bytes,
 * little-endian, 64-bit; see `docs/abi.md`, "Plan".
 *
 * Unions are views of their own: `KbinMemRef` and `KbinMemRefPtr` lie over the
 * same 152 bytes.
 */
import { bytes, chars, i32, id64, ptr, struct, u32, u64, u8 } from "../../ffi/layout.ts";
import { UsageType } from "./runtime_dmem.ts";

/** `kbin_mr_type_t`: what a variable is, 12 values. `docs/abi.md`, "Variable types". */
export const MrType = {
  INVALID: 0, SB: 1, BUFFER_STAGED: 2, BUFFER: 3, TMP_BUF: 4, INPUT: 5, OUTPUT: 6, PTR: 7, VIRTUAL_TMP_BUF: 8, LIST: 9,
  PTR_TABLE: 10, REMOTE: 11,
} as const;

/** The name of a variable type: a key of {@linkcode MrType}. */
export type MrTypeName = keyof typeof MrType;

/** Variable type names by value, 0 … 11. `docs/abi.md`, "Variable types". */
export const mrTypeNames: readonly MrTypeName[] = Object.keys(MrType) as MrTypeName[];

/** `kbin_backing_buf_t`: which arena a scratch variable lies in. `docs/abi.md`, "Enumerations of the plan". */
export const BackingBuffer = { LOCAL: 0, SHARED: 1, SHARDED: 2, MAIN: 3 } as const;

/** `kbin_engine_type_t`: the engines of a core. `docs/abi.md`, "Enumerations of the plan". */
export const EngineNumber = { PE: 0, ACT: 1, POOL: 2, DVE: 3, SP: 4 } as const;

/** Engine names in the order `kbin_t` keeps them: alphabetical, not by number. `docs/abi.md`, "kbin_t". */
export const engineSlots: readonly (keyof typeof EngineNumber)[] = ["ACT", "DVE", "PE", "POOL", "SP"];

/** Usage type of an engine's instructions, index = {@linkcode EngineNumber}. `docs/abi.md`, "Usage types". */
export const instructionUsage: readonly number[] = [
  UsageType.INSTR_PE, UsageType.INSTR_ACT, UsageType.INSTR_POOL, UsageType.INSTR_DVE, UsageType.INSTR_SP,
];

/** `kbin_dma_ring_type_t`: what a DMA ring is for. `docs/abi.md`, "Enumerations of the plan". */
export const RingType = {
  ENG: 0, H2T: 1, H2T_SERVICE: 2, H2T_COPY: 3, COLLECTIVES: 4, MODEL: 5, DATA: 6, IN: 7, OUT: 8, INDIRECT_MEMCPY: 9, ACT_TBL: 10,
  DYNAMIC_ACT_TBL: 11, DVE_TBL: 12, IOQ_SWITCHER: 13, TOPSP_INIT: 14, EMBEDDING_UPDATE: 15, CUSTOM_OP: 16, GENERIC: 17, LAST: 18,
} as const;

/** Kinds of `dma_desc`. `docs/abi.md`, "Enumerations of the plan". */
export const DmaDescKind = { DATA: 0, EVENT: 1, SEMAPHORE_INCREMENT: 2 } as const;

/** Operations of a data descriptor. `docs/abi.md`, "Enumerations of the plan". */
export const DmaOp = { INVALID: -1, COPY: 0, FMA: 1, ADD: 2, MIN: 3, MAX: 4, TRANSPOSE: 5 } as const;

/** `kbin_sb_carveout_type_t`: reservations in the state buffer; one kind exists. `docs/abi.md`, "Enumerations of the plan". */
export const CarveoutType = { INVALID: 0, EVTACCEL: 1 } as const;

/** `kbin_mem_ref_set`, 24 bytes in front of the records: arena sizes and count. `docs/abi.md`, "kbin_mem_ref_set". */
export const KbinMemRefSetHeader = struct("kbin_mem_ref_set", 24, {
  localScratchpadSize: u64(0),
  sharedScratchpadSize: u64(8),
  nmem: u32(16),
});

/** `kbin_mem_ref`, 152 bytes: one variable of the plan, index = var_id. `docs/abi.md`, "kbin_mem_ref". */
export const KbinMemRef = struct("kbin_mem_ref", 152, {
  mrType: u32(0),
  name: ptr(8),
  size: u64(16),
  alignment: u64(24),
  varId: u32(32),
  dtype: chars(36, 16),
  shape: u64(56, 8),
  dtensorMd: ptr(120),
  buffer: ptr(128),
  union: bytes(136, 16),
});

/** `kbin_mem_ref` of type PTR: the union's fields. `docs/abi.md`, "kbin_mem_ref". */
export const KbinMemRefPtr = struct("kbin_mem_ref (ptr)", 152, { referencedVarId: u32(136), ioRef: u8(140) });

/** `kbin_mem_ref` of type VIRTUAL_TMP_BUF: the union's fields. `docs/abi.md`, "kbin_mem_ref". */
export const KbinMemRefVirtual = struct("kbin_mem_ref (virtual)", 152, { offset: u64(136), backingBuf: u32(144) });

/** `kbin_mem_ref` of types LIST and PTR_TABLE: the union's fields. `docs/abi.md`, "kbin_mem_ref". */
export const KbinMemRefList = struct("kbin_mem_ref (list)", 152, { length: u32(136), list: ptr(144) });

/** `kbin_mem_ref` of type REMOTE: the union's fields; the subgraph is a position in the logical core. `docs/abi.md`, "kbin_mem_ref". */
export const KbinMemRefRemote = struct("kbin_mem_ref (remote)", 152, { remoteVtpbRelSgId: u32(136), remoteVarId: u32(140) });

/** `kbin_debug_tensor_md_t`, 516 bytes: device-print prefix and pipe of a variable. `docs/abi.md`, "kbin_mem_ref". */
export const KbinDebugTensorMd = struct("kbin_debug_tensor_md_t", 516, { prefixStr: chars(0, 512), pipeId: u32(512) });

/** Bytes of a plan with `records` variables: header and records. `docs/abi.md`, "kbin_mem_ref_set". */
export function planBytes(records: number): number {
  return KbinMemRefSetHeader.byteLength + records * KbinMemRef.byteLength;
}

/** The address of a variable that is not staged: all ones. 0 is a legal address. `docs/abi.md`, "mem_ref_t". */
export const ADDRESS_UNSET = 0xffff_ffff_ffff_ffffn;

/** `mem_ref_t`, 208 bytes: a variable with its place. `node` is a `ht_node_t`. `docs/abi.md`, "mem_ref_t". */
export const MemRef = struct("mem_ref_t", 208, {
  name: ptr(0),
  type: u32(8),
  size: u64(16),
  varId: u32(24),
  remote: u8(28),
  sharedVirtualScratchpad: u8(29),
  union: bytes(32, 40),
  dtype: chars(72, 16),
  shape: u64(88, 8),
  debugMd: ptr(152),
  node: bytes(160, 48),
});

/** `mem_ref_t` of types with memory (1, 3, 4, 8, 11): the union's fields. `docs/abi.md`, "mem_ref_t". */
export const MemRefStaged = struct("mem_ref_t (staged)", 208, {
  physicalAddress: id64(32),
  dmem: ptr(40, "mem"),
  memOffset: u64(48),
  va: ptr(56),
});

/** `mem_ref_t` of type PTR: the union's fields. `docs/abi.md`, "mem_ref_t". */
export const MemRefPtr = struct("mem_ref_t (ptr)", 208, { ptrMemAddr: id64(32), pointerId: u64(40), isIo: u8(48) });

/** `mem_ref_t` of type LIST: the union's fields. `docs/abi.md`, "mem_ref_t". */
export const MemRefList = struct("mem_ref_t (list)", 208, { length: u32(32), list: ptr(40) });

/** `mem_ref_t` of type PTR_TABLE: the union's fields. `docs/abi.md`, "mem_ref_t". */
export const MemRefPtrTable = struct("mem_ref_t (ptr table)", 208, {
  length: u32(32),
  varIds: ptr(40),
  needsTranslation: ptr(48, "var_id_needs_translation"),
  addresses: ptr(56, "addrs"),
  tableIndex: u32(64, "pointers_to_tables_index"),
});

/** Buckets of a model's variable table. `docs/abi.md`, "mem_ref_t". */
export const MEM_REF_BUCKETS = 0x400;

/** `kbl_fmap`, 272 bytes: one input or output as a host sees it. `docs/abi.md`, "Feature maps". */
export const FeatureMapRecord = struct("kbl_fmap", 272, { name: chars(0, 256), size: u64(256), varId: u32(264) });

/** `kbin_t`, 424 bytes: one subgraph. Engine slots in the order of {@linkcode engineSlots}. `docs/abi.md`, "kbin_t". */
export const KbinT = struct("kbin_t", 424, {
  engines: ptr(0, 5),
  dmas: ptr(40, 32),
  memRefSet: ptr(296),
  actFunctionSets: ptr(304),
  actFunctionSetCount: u64(312),
  tableSemaphore: u32(320),
  dveConfig: ptr(328),
  sbCarveouts: ptr(336),
  replicaGroups: bytes(344, 16),
  srcTargetPairs: bytes(360, 16),
  ucodeLibSet: bytes(376, 16),
  ccStreams: u64(392),
  fp8ConvCfg: bytes(400, 16),
  target: u32(416),
});

/** The `fp8_conv_cfg` of `kbin_t`, 16 bytes; offsets are known, which flag is which follows the order in the NEFF. `docs/abi.md`, "kbin_t". */
export const Fp8Config = struct("kbin_fp8_conv_cfg", 16, {
  fp8RangeExtension: u8(0, "fp8_range_extension"),
  emaxFp8E4m3: u32(4, "emax_fp8_e4m3"),
  emaxFp8E5m2: u32(8, "emax_fp8_e5m2"),
  ocpSat: u8(12),
  fp8Sis: u8(13, "fp8_sis"),
  fp8Sns: u8(14, "fp8_sns"),
});

/** `kbin_engine`, a head of 320 bytes; instructions of 64 bytes follow. `docs/abi.md`, "kbin_t". */
export const KbinEngine = struct("kbin_engine", 320, { engType: u32(0), name: chars(4, 256), ninstr: u32(260) });

/** Bytes of one engine instruction: `ninstr` is the blob's size divided by it. `docs/abi.md`, "kbin_t". */
export const INSTRUCTION_BYTES = 64;

/** `kbin_dma`, 296 bytes; pointers to {@linkcode RingInstance} follow. `docs/abi.md`, "kbin_t". */
export const KbinDma = struct("kbin_dma", 296, {
  ringType: u32(0),
  owner: u32(4),
  queueSetCnt: u32(8),
  semaphoreCnt: u32(12),
  semaphores: u32(16, 32),
  pseudoCnt: u32(144),
  pseudo: u32(148, 32),
  dgeAddress: u32(276),
  dgeSize: u32(280),
  flags: u32(284),
  instanceCnt: u32(288),
});

/** `ring_instance`, 264 bytes; `ndesc` times {@linkcode DmaDesc} follow. `docs/abi.md`, "kbin_t". */
export const RingInstance = struct("kbin_ring_instance", 264, { name: chars(0, 256), ndesc: u32(256) });

/** `dma_desc`, 5456 bytes; the union's content depends on `kind`. `docs/abi.md`, "kbin_t". */
export const DmaDesc = struct("kbin_dma_desc", 5456, {
  kind: u32(0),
  op: i32(4),
  union: bytes(8, 5424),
  blockId: u32(5432),
  blockEnd: u8(5436),
  resetFlag: u8(5437),
  functionName: ptr(5440),
  priority: u32(5448),
});

/** `act_function_set`, 2192 bytes; `profile` is 25 entries of 76 bytes. `docs/abi.md`, "kbin_t". */
export const ActFunctionSet = struct("kbin_act_function_set", 2192, {
  name: chars(0, 256),
  bkt: ptr(256),
  bktSize: u32(264),
  ctl: ptr(272),
  ctlSize: u32(280),
  profile: bytes(284, 1900),
  count: u32(2184),
});

/** `dve_config`, 64 bytes: four tables with their sizes. `docs/abi.md`, "kbin_t". */
export const DveConfig = struct("kbin_dve_config", 64, {
  opcode: ptr(0),
  opcodeSize: u64(8),
  controlFast: ptr(16),
  controlFastSize: u64(24),
  controlSlow: ptr(32),
  controlSlowSize: u64(40),
  datapath: ptr(48),
  datapathSize: u64(56),
});

/** `sb_carveouts`, 16 bytes: a count and an array of {@linkcode SbCarveout}. `docs/abi.md`, "kbin_t". */
export const SbCarveouts = struct("kbin_sb_carveouts", 16, { count: u64(0), array: ptr(8) });

/** One reservation in the state buffer, 40 bytes. `docs/abi.md`, "kbin_t". */
export const SbCarveout = struct("kbin_sb_carveout", 40, {
  type: u32(0),
  offset: u64(8),
  size: u64(16),
  startPartition: u64(24),
  partitions: u64(32),
});

/** Bytes of one `ucode_lib` of a plan; its fields are not known. `docs/abi.md`, "kbin_t". */
export const UCODE_LIB_BYTES = 40;
