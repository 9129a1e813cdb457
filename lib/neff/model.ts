/**
 * The plain data a NEFF is read into. Everything is readonly; sizes and offsets
 * are bytes in safe integers. Nothing here parses: see `read.ts`.
 *
 * Parts that are costly to read (engine files, the hash) are getters that do
 * their work at the first look and keep the result; they throw the same
 * `NeffError` a direct read would.
 */

/** Code names of the architectures a NEFF can be compiled for; `*` runs on any. */
export type NeffTarget = "sunda" | "cayman" | "mariana" | "*";

/** One compiled model. */
export interface Neff {
  readonly header: NeffHeader;
  readonly archive: ArchiveFacts;
  /** `tool_version` of `info.json`, the only place with the compiler's version; null without it. */
  readonly compiler: string | null;
  /** Architecture of the kelf file, aliases (`v3`) and absence (sunda) resolved. */
  readonly target: NeffTarget;
  /** `version` of the kelf file, such as `0.5`. */
  readonly kelfVersion: string;
  readonly kelf: KelfFacts;
  /** In the order of the kelf file: entry i runs on physical core i of the logical core. */
  readonly subgraphs: readonly Subgraph[];
  /** Inputs in the order of the host graph (`arg_nodes`). */
  readonly inputs: readonly TensorInfo[];
  /** Outputs in the order of the host graph; names repeated per subgraph are listed once. */
  readonly outputs: readonly TensorInfo[];
  /** What is odd about the file but does not stop it from loading. */
  readonly notes: readonly Note[];
  /** Files of the archive by exact name, in archive order; without directories. */
  readonly members: ReadonlyMap<string, Member>;
  /** Offset of the NEFF inside a protobuf file, or null for a plain file. */
  readonly wrappedAt: number | null;
  /** Length of the whole file the NEFF was read from. */
  readonly fileBytes: number;
}

/** The 1024-byte header (NEFF notes, header table), every field, as stored. */
export interface NeffHeader {
  readonly pkgVersion: number;
  readonly headerSize: number;
  /** Length of the payload as stored, zero padding included. */
  readonly dataSize: number;
  readonly major: number;
  readonly minor: number;
  readonly buildVersion: string;
  /** Logical cores the model needs; 1 also for a file with two subgraphs. */
  readonly numTpb: number;
  /** 64 hex digits; MD5 uses the first 32. */
  readonly hash: string;
  /** 32 hex digits in text order. */
  readonly uuid: string;
  /** Name given by the build host: display text only. */
  readonly name: string;
  readonly requestedTpb: number;
  /** One count per kelf node. */
  readonly tpbPerNode: readonly number[];
  /** All 64 bits, unknown ones included. */
  readonly featureBits: bigint;
  /** Logical-core size (physical cores per logical core) the file was compiled for. */
  readonly lncSize: number;
}

/** How the archive is stored. */
export interface ArchiveFacts {
  readonly format: "gzip" | "tar";
  /** Zero bytes after the gzip stream that `dataSize` counts. */
  readonly paddingBytes: number;
  /** Bytes after the stream that are not padding; 0 in every healthy file. */
  readonly junkBytes: number;
  /** Length of the tar, inflated. */
  readonly tarBytes: number;
  /** Entries of the tar, directories included, extended header records not. */
  readonly members: number;
  /** Whether the tar carries pax extended headers. */
  readonly pax: boolean;
  /** Whether the header's hash fits the payload; null when the payload was not kept (`retain: "definitions"`). */
  readonly hashMatches: boolean | null;
}

/** The kelf file: what ties the subgraphs together. */
export interface KelfFacts {
  readonly member: string;
  readonly version: string;
  /** The text as stored, or null when absent. */
  readonly target: string | null;
  readonly revision: string | null;
}

/** One file of the archive. */
export interface Member {
  readonly name: string;
  readonly size: number;
  /** Offset of the data in the (inflated) tar. */
  readonly offset: number;
  readonly mode: number;
  /** The data, a view of the tar; null when it was not kept (`retain: "definitions"`). */
  readonly bytes: Uint8Array | null;
  /** The first bytes, kept in every case; holds the whole `.npy` header. */
  readonly head: Uint8Array;
  /** Set for a constant of a NEFF opened with `openNeff` that has not passed by yet: `size` is then what its variable says. */
  readonly pending?: true;
}

/** One input or output of the host graph. */
export interface TensorInfo {
  readonly name: string;
  /** Shape; empty for a scalar, null when the host graph does not tell. */
  readonly shape: readonly number[] | null;
  /** Element type in the host graph's spelling, null when it does not tell. */
  readonly dtype: string | null;
  /** Size of the variable of this name. */
  readonly size: number;
}

/** One definition: what runs on one physical core. */
export interface Subgraph {
  /** `sg00`, from the kelf file. */
  readonly name: string;
  /** Position in the logical core; the number in `SB{1}`. */
  readonly index: number;
  /** Directory of the definition without a final slash; empty for the archive's root. */
  readonly directory: string;
  readonly definitionPath: string;
  /** Length of the definition's text. */
  readonly definitionBytes: number;
  /** `version` of the definition, such as `0.6`; empty when absent. */
  readonly version: string;
  /** `neff_features` as declared; independent of the header's feature bits. */
  readonly features: readonly string[];
  /** Variables by name, in the order of the document. */
  readonly variables: ReadonlyMap<string, Variable>;
  /** The same variables: index = `varId`. */
  readonly byId: readonly Variable[];
  /** The five engines in the order pe, act, pool, dve, sp. */
  readonly engines: readonly EngineFile[];
  /** Sum of the `.bin` members of the directory (instructions and tables, constants excluded). */
  readonly codeBytes: number;
  readonly dmaQueues: readonly DmaQueue[];
  /** Transfer entries over all engine files. Parses them at the first look. */
  readonly dmaDescriptors: number;
  /** `runtime_statebuffer_reservation`; null when the key is absent. */
  readonly reservations: readonly Reservation[] | null;
  /** `cc_streams.num_streams`; 1 when absent. */
  readonly ccStreams: number;
  readonly replicaGroups: readonly (readonly number[])[];
  readonly sourceTargetPairs: readonly (readonly number[])[];
  /** Names of custom-operator library descriptions; empty in ordinary files. */
  readonly ucodeLibraries: readonly string[];
}

/** The `type` words of a definition's variables. */
export type VariableType = Variable["type"];

/** One named piece of memory of a subgraph. */
export type Variable =
  | StateBufferVariable
  | FileVariable
  | TmpBufVariable
  | InputVariable
  | OutputVariable
  | PointerVariable
  | VirtualVariable
  | ListVariable
  | DgeTableVariable
  | PtrTableVariable
  | RemoteVariable;

/** What every variable has. */
export interface VariableBase {
  readonly name: string;
  readonly varId: number;
  /** Debug print only; null when absent. The record holds at most 15 bytes: checked where it is written. */
  readonly dtype: string | null;
  /** Debug print only; empty when absent. The record holds at most 8: checked where it is written. */
  readonly shape: readonly number[];
}

/** What a variable with memory of its own has. */
export interface SizedVariable extends VariableBase {
  /** Bytes, at least 1. */
  readonly size: number;
  /** A power of two, or 0 for the allocator's default. */
  readonly alignment: number;
}

/** Device-print metadata. */
export interface PrintMetadata {
  /** Text before the printed tensor; null when absent. */
  readonly prefix: string | null;
  readonly pipe: number;
}

/** The core's on-chip buffer. No memory is allocated for it. */
export interface StateBufferVariable extends VariableBase {
  readonly type: "state-buffer";
}

/** A constant: its bytes are a member of the archive. */
export interface FileVariable extends SizedVariable, PrintMetadata {
  readonly type: "file";
  /** As written in the definition. */
  readonly fileName: string;
  /** Full name of the member: directory of the subgraph and `fileName`. */
  readonly member: string;
  readonly fabricPath: string | null;
}

/** Private device memory. */
export interface TmpBufVariable extends SizedVariable, PrintMetadata {
  readonly type: "tmp-buf";
}

/** A tensor the caller gives. */
export interface InputVariable extends SizedVariable {
  readonly type: "input";
}

/** A tensor the caller takes. */
export interface OutputVariable extends SizedVariable {
  readonly type: "output";
}

/** A slot of 8 bytes that holds another variable's address. */
export interface PointerVariable extends VariableBase {
  readonly type: "pointer";
  readonly size: 8;
  readonly referencedVarId: number;
}

/** Where a virtual variable's arena lies. */
export type PageBacking = "local" | "shared" | "sharded" | "main";

/** A place in the scratchpad; places overlap on purpose. */
export interface VirtualVariable extends VariableBase, PrintMetadata {
  readonly type: "virtual";
  readonly size: number;
  /** `backing_variable_off`: offset in the scratchpad area. */
  readonly backingOffset: number;
  /** `backing_buf`; `local` when absent. */
  readonly backingBuffer: PageBacking;
  readonly fabricPath: string | null;
}

/** An array of variable ids. */
export interface ListVariable extends VariableBase {
  readonly type: "list";
  readonly list: readonly number[];
}

/** Ids whose addresses the descriptor-generating engine looks up. */
export interface DgeTableVariable extends VariableBase {
  readonly type: "dge-table";
  readonly list: readonly number[];
}

/** Ids whose addresses form a table. */
export interface PtrTableVariable extends VariableBase {
  readonly type: "ptr-table";
  readonly list: readonly number[];
}

/** A variable of another subgraph, named `BASE{N}`. */
export interface RemoteVariable extends VariableBase {
  readonly type: "remote";
  /** Name of the variable in the other subgraph. */
  readonly base: string;
  /** Position of the other subgraph in the logical core. */
  readonly subgraph: number;
}

/** The engines of a core, in the order of the runtime's numbers 0 to 4. */
export type Engine = "pe" | "act" | "pool" | "dve" | "sp";

/** One engine's file. */
export interface EngineFile {
  readonly engine: Engine;
  /** Full member name, or null when the definition names none. */
  readonly member: string | null;
  /** False when the member is not in the archive: an empty engine. */
  readonly present: boolean;
  /** Length of the engine file's text. */
  readonly size: number;
  /** The parsed file; parsed at the first look. Empty for an absent one. */
  readonly contents: EngineContents;
}

/** What an engine file says. */
export interface EngineContents {
  readonly name: string;
  /** Full member name of the instructions, or null. */
  readonly instructionMember: string | null;
  /** Length of the instructions. */
  readonly instructionBytes: number;
  /** Whole instructions of 64 bytes. */
  readonly instructions: number;
  readonly blocks: readonly DmaBlock[];
  /** Number of transfer entries in all blocks. */
  readonly descriptors: number;
  /** Names of the activation function sets in use. */
  readonly activationSets: readonly string[];
  /** Full member names of the tables of the vector engine. */
  readonly tables: readonly string[];
}

/** One DMA block: entries that are started together. */
export interface DmaBlock {
  readonly id: number;
  readonly queue: string;
  readonly semaphore: number | null;
  readonly event: number | null;
  readonly entries: readonly DmaEntry[];
}

/** One transfer. */
export interface DmaEntry {
  /** `copy` when absent, `transpose` for an entry with a transpose order. */
  readonly op: string;
  /** One source, or up to 16 for a gathered transfer. */
  readonly from: readonly DmaReference[];
  readonly to: readonly DmaReference[];
}

/** A range of a variable a transfer touches. */
export interface DmaReference {
  readonly variable: string;
  readonly offset: number;
  /** Element counts, innermost first, the innermost one in bytes. */
  readonly sizes: readonly number[];
  /** Steps in bytes, one per size. */
  readonly steps: readonly number[];
  readonly dtype: string;
  /** Bytes from `offset` to the end of the last byte touched. */
  readonly extent: number;
}

/** One entry of `dma_queue`. */
export interface DmaQueue {
  readonly name: string;
  /** `in`, `out`, `data`, `dynamic`, …: the role. */
  readonly type: string;
  readonly owner: Engine;
  /** `num_queues`; 1 when absent. */
  readonly queues: number;
  readonly semaphores: readonly number[];
  readonly fabricPath: string | null;
}

/** One entry of `runtime_statebuffer_reservation`: on-chip, not device memory. */
export interface Reservation {
  readonly type: string;
  readonly basePartition: number;
  readonly partitions: number;
  readonly offset: number;
  readonly size: number;
}

/** Something odd that does not stop a load. */
export interface Note {
  /** Stable word for programs, such as `junk-after-payload`. */
  readonly code: string;
  /** One sentence. */
  readonly message: string;
}

/** Engines in the order of the runtime's numbers. */
export const ENGINES: readonly Engine[] = ["pe", "act", "pool", "dve", "sp"];
