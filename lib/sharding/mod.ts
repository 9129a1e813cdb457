/** What a model takes per rank before it is compiled: from a folder of weights, or from its `config.json` alone. */
export {
  type Budget,
  type BudgetAccuracy,
  type BudgetLine,
  type BudgetLineName,
  type BudgetQuestion,
  rankBudget,
  rankHbmBytes,
} from "./budget.ts";
export {
  type Checkpoint,
  type CheckpointTensor,
  type RankCheckpoint,
  type RankCheckpoints,
  readCheckpoint,
  readRankCheckpoints,
} from "./checkpoint.ts";
export { type CheckpointComparison, compareCheckpoint } from "./checkpoint.ts";
export { elementBytes, type ElementType, elementTypeNamed } from "./element_type.ts";
export { ModelFileError, type ModelFileFault } from "./error.ts";
export { kvBytesPerToken, kvCacheBytes, type KvRequest, type PagedCache } from "./kv_cache.ts";
export { type ExpertShape, type ModelShape, type ModelType, readModelConfig } from "./model_config.ts";
export { type ModelFit, modelFit, type ModelMachine } from "./model_fit.ts";
export {
  type AskedSettings,
  type ModelFolder,
  type ModelQuestion,
  questionOf,
  readModelFolder,
} from "./model_folder.ts";
export type { ModelFileSource } from "./model_file.ts";
export { type KvSettings, type NeuronConfig, readNeuronConfig } from "./neuron_config.ts";
export { readSafetensors, type SafetensorsFile, type SafetensorsTensor } from "./safetensors.ts";
export {
  type HeadSplit,
  type KvStrategy,
  type QuantizedWeights,
  type RankTensor,
  type RankWeights,
  rankWeights,
  type Sharding,
  splitHeads,
} from "./sharding.ts";
export { type ModelTensor, modelTensors, type TensorSplit } from "./tensors.ts";
export {
  type Degree,
  largestBatch,
  legalDegrees,
  longestSequence,
  type SearchOptions,
  whatIf,
  type WhatIfRange,
  type WhatIfRow,
} from "./what_if.ts";
