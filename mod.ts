/**
 * Device memory of AWS Neuron accelerators for scripts: open a device or a fake,
 * load compiled models, see where everything lies and what it costs.
 *
 * @example
 * import { openNeuron, readNeff } from "neuron-dmem";
 *
 * const neff = await readNeff("model.neff");
 * using neuron = openNeuron({ fake: neff.target });
 * using model = await neuron.logicalCore(0).load(neff);
 * console.log(model.resolve("input0", 4096));
 */

// Sizes and errors
export { GiB, KiB, MiB } from "./lib/text/size.ts";
export { ArgumentError, ClosedError, NeuronError, type NeuronErrorOptions } from "./ffi/error.ts";
export { Errno, errnoName, errnoText } from "./ffi/errno.ts";
export { SystemError } from "./ffi/errno.ts";
export { NrtError, type RuntimeNote } from "./lib/runtime/errors.ts";
export { NrtStatus, nrtStatusName, type UsageName, usageNames, UsageType } from "./lib/abi/runtime_dmem.ts";
export { defaultHbm, type Geometry, geometries, type Hbm, type Product, productOfTarget, type Target } from "./lib/abi/architecture.ts";

// The runtime: devices, cores, models, tensors
export { type FakeChoice, openNeuron, type OpenNeuronOptions } from "./lib/runtime/open_neuron.ts";
export { type CoreAddress, Neuron } from "./lib/runtime/neuron.ts";
export { type CloseReport, type ContextOptions, NeuronContext } from "./lib/runtime/context.ts";
export { type ContextDevice, type CoreAllocOptions, NeuronCore, POOL_STDIO_BYTES } from "./lib/runtime/core.ts";
export { LogicalCore, type MemoryStats } from "./lib/runtime/logical_core.ts";
export { Model, type ResolveOptions } from "./lib/runtime/model.ts";
export type { LoadOptions, LoadStep } from "./lib/runtime/model_load.ts";
export type { Execution, ExecutionWork, ModelHold } from "./lib/runtime/execution.ts";
export { type DrainOptions, ModelDatabase, ModelReference } from "./lib/runtime/model_database.ts";
export { Tensor } from "./lib/runtime/tensor.ts";
export type { AccessOptions, PlacementName, TensorAllocation, TensorOptions, TensorShape } from "./lib/runtime/tensor_storage.ts";
export { allocateTensor, type TensorRequest } from "./lib/runtime/tensor_allocate.ts";
export { type BatchOptions, checksumTensor, copyTensor, readBatch, type TensorBatch, type TensorCopyOptions, writeBatch } from "./lib/runtime/tensor_operations.ts";
export type { BytesSource, ByteSource } from "./lib/dmem/host_data.ts";
export { TensorSet } from "./lib/runtime/tensor_set.ts";
export { TensorStorage } from "./lib/runtime/tensor_storage.ts";
export type { UcodeLibrary, UcodeLibSet } from "./lib/runtime/ucode.ts";
export {
  type CoreUsage, type DeviceUsage, type HbmUsage, type MemoryRow, memoryUsage, type ModelUsage, type UsageBytes,
} from "./lib/runtime/memory_usage.ts";
export { coresOnHbm, logicalCoreSize, logicalCoresOnHbm, logicalPlaceOf, physicalCoreAt, physicalCoresOf } from "./lib/runtime/logical_cores.ts";
export { parseCoreList, readCoreRequest } from "./lib/runtime/visible_cores.ts";
export { createHandleMinter, type HandleMinter } from "./lib/runtime/model_database.ts";
export { type DeviceList, listDevices } from "./lib/host/device_list.ts";
export { log, type LogLayer } from "./lib/runtime/log_file.ts";
export type { Environment } from "./lib/runtime/environment.ts";

// Compiled models
export * from "./lib/neff/mod.ts";
export * from "./lib/neff_write/mod.ts";
export type { StreamOptions as NeffStreamOptions } from "./lib/neff/stream.ts";

// Models that are not compiled yet
export * from "./lib/sharding/mod.ts";

// Plans, staging, prediction
export { planNeff } from "./lib/plan/build.ts";
export { PlanError, ResolveError, type ResolveFault } from "./lib/plan/error.ts";
export type { Plan } from "./lib/plan/plan.ts";
export { stage, type StageOptions } from "./lib/stage/stage.ts";
export { stageCores, type StageCore } from "./lib/stage/stage_part.ts";
export { StagedModel, StagedSubgraph, type StagedVariable } from "./lib/stage/staged_model.ts";
export { fit, fitAll, type FitOptions } from "./lib/fit/fit.ts";
export type { FitAnswer, FitVerdict } from "./lib/fit/fit_trial.ts";
export { INSTANCES, instanceNamed, type Machine } from "./lib/abi/architecture.ts";
export { type LoadItem, loadItems, planItems, tensorItems } from "./lib/plan/footprint.ts";
export { pageAdvice, scratchpadMode, type ScratchpadMode } from "./lib/plan/scratchpad.ts";

// Device memory without the runtime, and the device below it
export * from "./lib/dmem/mod.ts";
export type { StreamOptions } from "./lib/dmem/types.ts";
export * from "./lib/driver/mod.ts";

// The fake, and the seam everything reaches a device through
export { createFake, FakeMachine } from "./lib/fake/machine.ts";
export type { FakeOptions } from "./lib/fake/options.ts";
export { type Fault as FakeFault, parseFault, ProcessDied } from "./lib/fake/faults.ts";
export { FakeAbort } from "./lib/fake/faults.ts";
export { type Clock, realClock, virtualClock } from "./lib/fake/options.ts";
export { type LogSink, recordRequests, type ReplayResult as RequestReplay, replayRequests } from "./lib/fake/recorder.ts";
export { FakeProcess } from "./lib/fake/process.ts";
export { type RunResult, runUnderFake, type RunUnderFakeOptions } from "./lib/shim/run.ts";
export { ShimError, shimObstacle } from "./lib/shim/seccomp.ts";
export { type Kernel, linuxKernel } from "./ffi/kernel.ts";
export { Mapping } from "./ffi/kernel.ts";
