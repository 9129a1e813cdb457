/** Device memory: allocators, handles, copies, ledger, reports of what holds it. */
export { openDeviceMemory } from "./memory.ts";
export { MemoryError, type MemoryErrorOptions } from "./error.ts";
export { TraceId, type LogLevel, type LogLine, type MemoryEvent, type MemoryObserver, type TraceEvent } from "./observer.ts";
export { alignOffset, driverSupportsAlignment } from "./allocation.ts";
export { chunkSize, chunkSizes, copyPath, type CopyPath, firstWaitHandle } from "./staging.ts";
export { BOUNCE_BYTES } from "./bounce_buffer.ts";
export { DEFAULT_LEDGER_ENTRIES } from "./ledger.ts";
export { type AllocationCounts, type AllocationFault, allocationFaults, type FaultLayer, limit, type LimitLayer, statistics, type StatisticsLayer } from "./adaptors.ts";
export { allocationLog, LOG_HEADER, type LogEvent, LogFormatError, parseAllocationLog } from "./allocation_log.ts";
export { type Misfit, replayAllocations, type ReplayedHbm, type AllocationReplayOptions, type AllocationReplay } from "./replay.ts";
export { datastoreMetrics, datastoreOffset } from "./datastore_metrics.ts";
export { type MemoryVariables, type EnvironmentOptions, memoryEnvironment } from "./environment.ts";
export { withLayers } from "./layers.ts";
export type { ByteSource, BytesSource, HostData } from "./host_data.ts";
export * from "./types.ts";
