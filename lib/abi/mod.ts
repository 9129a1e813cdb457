/** The driver's and the runtime's binary interface as data: structs, requests, enums, geometry. */
import "../../ffi/memory.ts";

export * from "./architecture.ts";
export * from "./driver_copy.ts";
export * from "./driver_core.ts";
export * from "./driver_enums.ts";
export * from "./driver_info.ts";
export * from "./driver_memory.ts";
export * from "./driver_queues.ts";
export * from "./request.ts";
export * from "./requests.ts";
export * from "./runtime_build.ts";
export * from "./runtime_context.ts";
export * from "./runtime_dmem.ts";
export * from "./runtime_kbin.ts";
export * from "./runtime_tensor.ts";
export * from "./topology.ts";
