/**
 * The classes a definition is parsed into before it becomes records, as data:
 * nine kinds of variable under one base. Layouts are those of the C++ objects
 * (libstdc++ strings of 32 and vectors of 24 bytes); see `docs/abi.md`, "Build
 * tree".
 */
import { bytes, type Fields, ptr, struct, u32, u64, u8 } from "../../ffi/layout.ts";
import { MrType } from "./runtime_kbin.ts";

/** The fields every variable has; the virtual table pointer comes first. */
const BASE = {
  vptr: ptr(0),
  varId: u32(8),
  type: u32(12),
  dtype: bytes(16, 32),
  shape: bytes(48, 24),
} as const;

/** `mem_ref`, 72 bytes: the base of all variables. `docs/abi.md`, "Build tree". */
export const BuildMemRef = struct("mem_ref", 72, BASE);

/** `mem_ref_sp`, 72 bytes: the state buffer. `docs/abi.md`, "Build tree". */
export const BuildStateBuffer = struct("mem_ref_sp", 72, BASE);

/** `mem_ref_io`, 88 bytes: an input or output. `docs/abi.md`, "Build tree". */
export const BuildIo = struct("mem_ref_io", 88, { ...BASE, size: u64(72), alignment: u32(80) });

/** `mem_ref_buffer`, 136 bytes: a constant with its payload. `docs/abi.md`, "Build tree". */
export const BuildBuffer = struct("mem_ref_buffer", 136, { ...BASE, size: u64(72), alignment: u32(80), buffer: ptr(88), debugMd: bytes(96, 40) });

/** `mem_ref_tmp_buf`, 128 bytes: private memory of the model. `docs/abi.md`, "Build tree". */
export const BuildTmpBuf = struct("mem_ref_tmp_buf", 128, { ...BASE, size: u64(72), alignment: u32(80), debugMd: bytes(88, 40) });

/** `mem_ref_virtual_tmp_buf`, 136 bytes: a place in the scratchpad. `docs/abi.md`, "Build tree". */
export const BuildVirtualTmpBuf = struct("mem_ref_virtual_tmp_buf", 136, {
  ...BASE, size: u64(72), offset: u64(80), backingBuf: u32(88), debugMd: bytes(96, 40),
});

/** `mem_ref_pointer`, 80 bytes: a slot that holds another variable's address. `docs/abi.md`, "Build tree". */
export const BuildPointer = struct("mem_ref_pointer", 80, { ...BASE, referencedVarId: u32(72), ioRef: u8(76) });

/** `mem_ref_list`, 96 bytes: a vector of variable ids. `docs/abi.md`, "Build tree". */
export const BuildList = struct("mem_ref_list", 96, { ...BASE, list: bytes(72, 24) });

/** `mem_ref_ptr_table`, 120 bytes: a list with a second vector, which is not written out. `docs/abi.md`, "Build tree". */
export const BuildPtrTable = struct("mem_ref_ptr_table", 120, { ...BASE, list: bytes(72, 24), pointers: bytes(96, 24) });

/** `mem_ref_remote_variable`, 72 bytes: a variable of another subgraph. `docs/abi.md`, "Build tree". */
export const BuildRemote = struct("mem_ref_remote_variable", 72, BASE);

/** `debug_tensor_md` of the build tree, 40 bytes: device-print prefix and pipe. `docs/abi.md`, "Build tree". */
export const BuildDebugTensor = struct("debug_tensor_md", 40, { prefix: bytes(0, 32), pipeId: u32(32) });

/** `mem_ref_info`, 144 bytes: three ordered maps of 48 over the same variables. `docs/abi.md`, "Build tree". */
export const MemRefInfo = struct("mem_ref_info", 144, { nameToId: bytes(0, 48), idToName: bytes(48, 48), idToObject: bytes(96, 48) });

/** `mla_resources`, 440 bytes, known fields: the parser's state. `docs/abi.md`, "Build tree". */
export const MlaResources = struct("mla_resources", 440, { memRefInfo: bytes(48, 144), numInputs: u32(432), numOutputs: u32(436) });

/** What a layout says, whatever its fields: a {@linkcode struct} without its views. */
export interface LayoutTable {
  /** The C name. */
  readonly cName: string;
  /** Bytes. */
  readonly byteLength: number;
  /** The fields by TypeScript name. */
  readonly fields: Fields;
}

/** One class of the build tree. */
export interface BuildClass {
  /** C++ name. */
  readonly name: string;
  /** C++ name of the only base class, or null for the root. */
  readonly parent: string | null;
  /** The object's layout, inherited fields included. */
  readonly layout: LayoutTable;
  /** Variable types the class stands for; none for the root. */
  readonly mrTypes: readonly number[];
  /** The class whose serialiser it uses: its own, or an inherited one. */
  readonly dump: string;
}

/** The ten classes: one root, eight children, and `mem_ref_ptr_table` below `mem_ref_list`. `docs/abi.md`, "Build tree". */
export const buildClasses: readonly BuildClass[] = [
  { name: "mem_ref", parent: null, layout: BuildMemRef, mrTypes: [], dump: "mem_ref" },
  { name: "mem_ref_sp", parent: "mem_ref", layout: BuildStateBuffer, mrTypes: [MrType.SB], dump: "mem_ref_sp" },
  { name: "mem_ref_io", parent: "mem_ref", layout: BuildIo, mrTypes: [MrType.INPUT, MrType.OUTPUT], dump: "mem_ref_io" },
  { name: "mem_ref_buffer", parent: "mem_ref", layout: BuildBuffer, mrTypes: [MrType.BUFFER], dump: "mem_ref_buffer" },
  { name: "mem_ref_tmp_buf", parent: "mem_ref", layout: BuildTmpBuf, mrTypes: [MrType.TMP_BUF], dump: "mem_ref_tmp_buf" },
  {
    name: "mem_ref_virtual_tmp_buf", parent: "mem_ref", layout: BuildVirtualTmpBuf, mrTypes: [MrType.VIRTUAL_TMP_BUF],
    dump: "mem_ref_virtual_tmp_buf",
  },
  { name: "mem_ref_pointer", parent: "mem_ref", layout: BuildPointer, mrTypes: [MrType.PTR], dump: "mem_ref_pointer" },
  { name: "mem_ref_list", parent: "mem_ref", layout: BuildList, mrTypes: [MrType.LIST], dump: "mem_ref_list" },
  { name: "mem_ref_ptr_table", parent: "mem_ref_list", layout: BuildPtrTable, mrTypes: [MrType.PTR_TABLE], dump: "mem_ref_list" },
  { name: "mem_ref_remote_variable", parent: "mem_ref", layout: BuildRemote, mrTypes: [MrType.REMOTE], dump: "mem_ref_remote_variable" },
];
