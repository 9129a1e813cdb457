/**
 * What will fit: plans, predictions, and models that are not compiled yet. No device is needed.
 */
export { fit, fitAll, type FitOptions } from "./lib/fit/fit.ts";
export type { FitAnswer, FitCore, FitHbm, FitLine, FitOnTop, FitShortage, FitVerdict } from "./lib/fit/fit_trial.ts";
export type { FitSettings, Setting, UsedMemory } from "./lib/fit/fit_question.ts";
export type { FitSharing, ShareChoice, SharedTensor } from "./lib/fit/fit_share.ts";
export { INSTANCES, instanceNamed, type Machine } from "./lib/abi/architecture.ts";
export { planNeff } from "./lib/plan/build.ts";
export { PlanError, ResolveError, type ResolveFault } from "./lib/plan/error.ts";
export type { Plan } from "./lib/plan/plan.ts";
export { type LoadItem, loadItems, planItems, tensorItems } from "./lib/plan/footprint.ts";
export { pageAdvice, scratchpadMode, type ScratchpadMode } from "./lib/plan/scratchpad.ts";
export { coresOnHbm, logicalCoresOnHbm, logicalPlaceOf, physicalCoreAt, physicalCoresOf } from "./lib/runtime/logical_cores.ts";
export { HbmSpace } from "./lib/hbm/space.ts";
export { parseExtra } from "./lib/text/size.ts";
export * from "./lib/sharding/mod.ts";
