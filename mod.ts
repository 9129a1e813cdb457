/**
 * Device memory of AWS Neuron accelerators for scripts: open a device or a fake,
 * load compiled models, see where everything lies and what it costs.
 *
 * What a script needs first is here. More is on sub-paths: `neuron-dmem/neff` (reading,
 * comparing and writing compiled models), `/fit` (plans, predictions, models that are not
 * compiled yet), `/driver` (one device, and its memory without the runtime), `/fake` (fake
 * devices, and programs under them), `/map` (pictures of memory), `/abi` (structs and requests).
 *
 * @example
 * import { openNeuron, readNeff } from "neuron-dmem";
 *
 * const neff = await readNeff("model.neff");
 * using neuron = openNeuron({ fake: neff.target });
 * using model = await neuron.logicalCore(0).load(neff);
 * console.log(model.resolve("input0", 4096));
 */

// Sizes
export { GiB, KiB, MiB } from "./lib/text/size.ts";

// Errors: one family, with a code, a status where the runtime has one, an errno where the kernel has one
export { ArgumentError, ClosedError, NeuronError } from "./ffi/error.ts";
export { Errno, errnoName, errnoText, SystemError } from "./ffi/errno.ts";
export { NrtError, type RuntimeNote } from "./lib/runtime/errors.ts";
export { MemoryError } from "./lib/dmem/error.ts";
export { NeffError } from "./lib/neff/error.ts";
export { PlanError, ResolveError } from "./lib/plan/error.ts";
export { DeviceOpenError, RequestError } from "./lib/driver/error.ts";
export { NrtStatus, nrtStatusName, type UsageName, usageNames, UsageType } from "./lib/abi/runtime_dmem.ts";
export { type Geometry, geometries, type Product, productOfTarget, type Target } from "./lib/abi/architecture.ts";

// Devices and cores
export { type FakeChoice, openNeuron, type OpenNeuronOptions } from "./lib/runtime/open_neuron.ts";
export { type CoreAddress, Neuron } from "./lib/runtime/neuron.ts";
export type { CloseReport } from "./lib/runtime/context.ts";
export { type ContextDevice, type CoreAllocOptions, NeuronCore } from "./lib/runtime/core.ts";
export { LogicalCore, type MemoryStats } from "./lib/runtime/logical_core.ts";
export { parseCoreList, readCoreRequest } from "./lib/runtime/visible_cores.ts";
export type { Environment } from "./lib/runtime/environment.ts";
export { type DeviceList, listDevices } from "./lib/host/device_list.ts";

// Models
export { Model, type ResolveOptions } from "./lib/runtime/model.ts";
export type { LoadOptions, LoadStep } from "./lib/runtime/model_load.ts";
export type { Execution, ExecutionWork, ModelHold } from "./lib/runtime/execution.ts";
export type { DrainOptions } from "./lib/runtime/model_database.ts";
export type { UcodeLibrary } from "./lib/runtime/ucode.ts";
export type { StagedVariable } from "./lib/stage/staged_model.ts";

// Tensors and buffers
export { Tensor } from "./lib/runtime/tensor.ts";
export type { AccessOptions, PlacementName, TensorAllocation, TensorOptions, TensorShape } from "./lib/runtime/tensor_storage.ts";
export { type TensorRequest } from "./lib/runtime/tensor_allocate.ts";
export { checksumTensor, copyTensor, readBatch, type TensorBatch, type TensorBatchOptions, type TensorCopyOptions, writeBatch } from "./lib/runtime/tensor_operations.ts";
export { TensorSet } from "./lib/runtime/tensor_set.ts";
export type { Allocator, AllocRequest, CopyOptions, CopyToOptions, Dmem, StreamOptions } from "./lib/dmem/types.ts";
export type { BytesSource, ByteSource, HostData } from "./lib/dmem/host_data.ts";

// What holds the memory, and layers on allocations
export { type CoreUsage, type DeviceUsage, type HbmUsage, type MemoryRow, memoryUsage, type ModelUsage, type UsageBytes } from "./lib/runtime/memory_usage.ts";
export { allocationFaults, limit, statistics } from "./lib/dmem/adaptors.ts";
export { allocationLog, parseAllocationLog } from "./lib/dmem/allocation_log.ts";
export { replayAllocations } from "./lib/dmem/replay.ts";
export { withLayers } from "./lib/dmem/layers.ts";
export type { AllocatorLayer } from "./lib/dmem/types.ts";
export { log, type LogLayer } from "./lib/runtime/log_file.ts";

// The first of the other paths
export { readNeff, type ReadOptions } from "./lib/neff/read_neff.ts";
export { openNeff } from "./lib/neff/open_neff.ts";
export { parseNeff } from "./lib/neff/read.ts";
export type { Neff, TensorInfo } from "./lib/neff/model.ts";
export { fit, type FitOptions } from "./lib/fit/fit.ts";
export type { FitAnswer } from "./lib/fit/fit_trial.ts";
export { createFake, FakeMachine } from "./lib/fake/machine.ts";
export type { FakeOptions } from "./lib/fake/options.ts";
export { type RunResult, runUnderFake, type RunUnderFakeOptions } from "./lib/shim/run.ts";
