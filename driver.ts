/**
 * One Neuron device request by request, and its memory without the runtime: allocators, handles,
 * copies, ledger, and plans staged into it.
 */
export * from "./lib/driver/mod.ts";
export * from "./lib/dmem/mod.ts";
export { type Kernel, linuxKernel, Mapping } from "./ffi/kernel.ts";
export { defaultHbm, type Hbm } from "./lib/abi/architecture.ts";
export { stage, type StageOptions } from "./lib/stage/stage.ts";
export { stageCores, type StageCore } from "./lib/stage/stage_part.ts";
export { StagedModel, StagedSubgraph, type StagedVariable } from "./lib/stage/staged_model.ts";
