/**
 * The NEFF container and the documents in it: reading and comparing.
 * No device is needed for any of it.
 */
export { type ConstantPayload, constantPayload } from "./assemble.ts";
export { arenaOf, checkReservations, type Dtype, dtypeOf, sizeOfVariable, tensorBytes, VARIABLE_TYPES } from "./variable.ts";
export { addressableBytes, dmaReferences, extentOf, type ResolvedReference } from "./engine.ts";
export * from "./error.ts";
export * from "./summary.ts";
export { decodeHeader, encodeHeader, HEADER_BYTES, HEADER_OFFSETS, type HeaderFields, looksLikeNeff } from "./header.ts";
export { TARGET_FAMILIES, TARGET_WORDS } from "./kelf.ts";
export { DEFAULT_LIMITS, type NeffLimits } from "./limits.ts";
export * from "./model.ts";
export {
  encodeNpy,
  encodeNpyHeader,
  type NpyHeader,
  type NpySpec,
  type PayloadRange,
  payloadRange,
  readNpyHeader,
} from "./npy.ts";
export { parseNeff, type ParseOptions } from "./read.ts";
export { readNeff, type ReadOptions } from "./read_neff.ts";
export { openNeff, type OpenNeffOptions, type PassingConstant, type PassingNeff } from "./open_neff.ts";
export type { NeffSource } from "./source.ts";
export { type MemberStream, streamMembers, type NeffStreamOptions, type StreamSummary } from "./stream.ts";
export { type NeffSummary, type ScratchpadNeed, scratchpadNeed, type SubgraphSummary, summarizeNeff } from "./summary.ts";
export * from "./diff.ts";
export { scanFile, type ScanOptions, scanPaths, type ScanReport, type ScanResult, type ScanVerdict } from "./scan.ts";
