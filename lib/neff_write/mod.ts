/** Writing NEFFs: from a specification, from a folder, and into one. */
export { dataSize, type MemberData, type MemberSpec, type TarDialect, writeTar } from "./tar_write.ts";
export {
  type ArchiveSpec,
  type Compression,
  neffChunks,
  type NeffSpec,
  replaceMember,
  writeNeff,
  writeNeffFile,
} from "./write.ts";
export { buildModel, buildNeff, type ModelSpec } from "./build.ts";
export type {
  BlockSpec,
  DefinitionSpec,
  EngineSpec,
  QueueSpec,
  RangeSpec,
  TransferSpec,
  VariableSpec,
} from "./build_definition.ts";
export {
  MANIFEST_NAME,
  type NeffManifest,
  packFolder,
  packNeff,
  type PackOptions,
  type PackResult,
  type UnpackedFile,
  unpackNeff,
  unpackNeffTo,
} from "./pack.ts";
