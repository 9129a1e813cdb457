/** Events of device memory: trace brackets, memory events, log lines. Nothing is emitted unless someone observes. */

/** Ids of the runtime's trace events for memory operations. */
export const TraceId = { COPY_IN: 30, COPY_OUT: 31, BATCH_IN: 32, BATCH_OUT: 33, ALLOC: 34, FREE: 35 } as const;

/** One end of a traced operation. Every `begin` is followed by one `stop`, also on failure. */
export interface TraceEvent {
  /** One of {@linkcode TraceId}. */
  readonly id: number;
  /** Which end. */
  readonly phase: "begin" | "stop";
  /** Core the operation is charged to. */
  readonly core: number;
  /** What the operation is about (begin) or how it ended (stop). */
  readonly data: Readonly<Record<string, number>>;
}

/** A completed allocation or free (`MEM_ALLOC`, `MEM_FREE`). */
export interface MemoryEvent {
  /** What happened. */
  readonly action: "alloc" | "free";
  /** Bytes charged. */
  readonly bytes: number;
  /** Device index in the runtime's list for `alloc`, device id for `free`, as the runtime has it. */
  readonly device: number;
  /** Always 0. */
  readonly reserved: 0;
  /** The allocation's hint. */
  readonly hint: string | null;
}

/** Severity of a log line, as the runtime names them. */
export type LogLevel = "ERROR" | "WARN" | "INFO" | "DEBUG" | "TRACE";

/** One line of the runtime's log, without its prefix. */
export interface LogLine {
  /** Severity. */
  readonly level: LogLevel;
  /** Component, `TDRV` here. */
  readonly component: string;
  /** The runtime's name of the function that logs. */
  readonly function: string;
  /** The text. */
  readonly message: string;
}

/** Who wants to know. Every member is optional and called synchronously; it must not throw. */
export interface MemoryObserver {
  /** Trace brackets. */
  trace?(event: TraceEvent): void;
  /** Completed allocations and frees. */
  memory?(event: MemoryEvent): void;
  /** Log lines, in the runtime's own words. */
  log?(line: LogLine): void;
  /** Whether TRACE lines are wanted (one per allocation and free). Default false. */
  readonly traceLines?: boolean;
}
