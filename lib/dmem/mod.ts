/** Device memory: allocators, handles, copies, ledger, reports of what holds it. */
export { openDeviceMemory } from "./memory.ts";
export { MemoryError, type MemoryErrorOptions } from "./error.ts";
export { TraceId, type LogLevel, type LogLine, type MemoryEvent, type MemoryObserver, type TraceEvent } from "./observer.ts";
export { alignOffset, driverSupportsAlignment, resetAlignmentSupport } from "./aligned.ts";
export { chunkSize, chunkSizes, copyPath, type CopyPath, firstWaitHandle } from "./chunk_plan.ts";
export { BOUNCE_BYTES } from "./bounce_buffer.ts";
export { DEFAULT_LEDGER_ENTRIES } from "./ledger.ts";
export { withLayers } from "./layers.ts";
export type { HostData } from "./host_data.ts";
export * from "./types.ts";
