/**
 * A thin layer over mitata's `measure`: rows with their floor in the same
 * process, a label for what was measured, and garbage per operation.
 */
import { measure } from "mitata";
import { native, pinned } from "../../ffi/mod.ts";

/** What a figure was measured on. Fake and host figures say nothing about a device. */
export type Label = "fake" | "host" | "device";

/** One measured line. Times are nanoseconds per operation. */
export interface Row {
  readonly bench: string;
  readonly name: string;
  readonly label: Label;
  readonly p50: number;
  readonly p99: number;
  readonly min: number;
  /** Name of the row this one is compared with; absent on a floor. */
  readonly floor?: string;
  /** p50 divided by the floor's p50. */
  readonly ratio?: number;
  /** Nanoseconds over the floor, each at its best: where few are promised beside a system call. */
  readonly over?: number;
  /** Bytes of garbage per operation, or null where the runtime does not tell. */
  readonly garbage: number | null;
  /** Bytes moved per operation, for rates. */
  readonly bytes?: number;
  /** Bytes of memory it took at most, for whole processes. */
  readonly memory?: number;
  /** The most the ratio may be (or the least for `atLeast`). */
  readonly target?: string;
  readonly met?: boolean;
  /** Why a missed target is out of reach here; the design that would reach it is in the performance notes. */
  readonly limit?: string;
}

/** Options of one row. */
export interface RowOptions {
  readonly label?: Label;
  /** Name of the floor row, measured before. */
  readonly floor?: string;
  /** The ratio to the floor must not exceed this. */
  readonly atMost?: number;
  /** The speed relative to the floor (floor time / own time) must reach this. */
  readonly atLeast?: number;
  /** The fastest batch, in nanoseconds per operation, must not exceed the floor's fastest by more than this. */
  readonly overFloor?: number;
  /** p50 in nanoseconds must not exceed this. */
  readonly within?: number;
  /** Garbage per operation must not exceed this many bytes. */
  readonly garbageAtMost?: number;
  /** Bytes of memory it took at most; and what that must not exceed. */
  readonly memory?: number;
  readonly memoryAtMost?: number;
  /** Bytes moved per operation. */
  readonly bytes?: number;
  /** How many operations one call of the function does (default 1). */
  readonly operations?: number;
  /** Measure for at least this long, in milliseconds (default 300). */
  readonly milliseconds?: number;
  /** Why the target is out of reach where it is missed. */
  readonly limit?: string | undefined;
}

/** What a row is measured from; kept so that later rows can measure it again next to themselves. */
interface Subject {
  readonly action: () => unknown;
  readonly operations: number;
  /** How many calls mitata times at once, where it does. */
  readonly batch: number;
  readonly long: boolean;
}

/** Rounds of a row: it and its floor take turns, and the best of each counts, so that a busy machine hits neither alone. */
const ROUNDS = 4;
/** A few nanoseconds beside a system call need more of them. */
const DIFFERENCE_ROUNDS = 24;
/** Above this a single call is long enough to be a sample of its own, and few are taken. */
const LONG_CALL = 50e6;
/** mitata times short calls in batches, 4096 of them by default however long one takes; this is how long a batch should take. */
const BATCH_NANOSECONDS = 250_000;
/** mitata unrolls by this. */
const UNROLL = 4;
const GARBAGE_ROUNDS = 7;

/** Collects the rows of one bench file. */
export class Suite {
  readonly rows: Row[] = [];
  readonly #name: string;
  readonly #subjects = new Map<string, Subject>();

  constructor(name: string) {
    this.#name = name;
  }

  /**
   * Measures `action` and keeps the row. With a floor the two are measured in
   * turns; the ratio is that of their best rounds. Returned values are kept from
   * being optimised away by mitata.
   */
  async row(name: string, action: () => unknown, options: RowOptions = {}): Promise<Row> {
    const operations = options.operations ?? 1;
    const subject = await subjectOf(action, operations);
    const floor = options.floor === undefined ? undefined : this.#subjects.get(options.floor);
    if (options.floor !== undefined && floor === undefined) throw new Error(`no floor named ${options.floor} in ${this.#name}`);
    const rounds = options.overFloor === undefined ? ROUNDS : DIFFERENCE_ROUNDS;
    const nanoseconds = (options.milliseconds ?? 300) * 1e6 / ROUNDS;
    const own: Times[] = [];
    const below: Times[] = [];
    for (let round = 0; round < rounds; round++) {
      if (floor !== undefined) below.push(await timed(floor, nanoseconds));
      own.push(await timed(subject, nanoseconds));
    }
    const best = bestOf(own);
    const garbage = await garbagePer(action, operations, best.p50 * operations);
    if (floor === undefined) return this.#keep(name, { ...best, garbage }, options, subject);
    const least = bestOf(below);
    const over = options.overFloor === undefined ? undefined : best.min - least.min;
    return this.#keep(name, { ...best, garbage, floorP50: least.p50, over }, options, subject);
  }

  /** Keeps a row measured by other means (a whole process, or a load that takes seconds), from its samples in nanoseconds. */
  add(name: string, samples: readonly number[], options: RowOptions & { readonly garbage?: number | null } = {}): Row {
    const sorted = [...samples].sort((a, b) => a - b);
    const times = timesOf(sorted, options.operations ?? 1);
    const floor = options.floor === undefined ? undefined : this.rows.find((row) => row.name === options.floor);
    if (options.floor !== undefined && floor === undefined) throw new Error(`no floor named ${options.floor} in ${this.#name}`);
    // Whole processes: the fastest run of each is the one nobody disturbed.
    return this.#keep(name, { ...times, p50: times.p50, garbage: options.garbage ?? null, floorP50: floor?.min, compared: times.min }, options);
  }

  #keep(name: string, measured: Measured, options: RowOptions, subject?: Subject): Row {
    const { p50, p99, min, garbage, floorP50, compared = p50, over } = measured;
    const row: Row = {
      bench: this.#name, name, label: options.label ?? "host", p50, p99, min, garbage,
      ...(floorP50 === undefined || options.floor === undefined ? {} : { floor: options.floor, ratio: compared / floorP50 }),
      ...(options.bytes === undefined ? {} : { bytes: options.bytes }),
      ...(options.memory === undefined ? {} : { memory: options.memory }),
      ...(over === undefined ? {} : { over }),
      ...verdict(measured, options),
      ...(options.limit === undefined ? {} : { limit: options.limit }),
    };
    if (subject !== undefined) this.#subjects.set(name, subject);
    this.rows.push(row);
    return row;
  }
}

interface Times {
  readonly p50: number;
  readonly p99: number;
  readonly min: number;
}

/** What a row and its verdict are made from. */
interface Measured extends Times {
  readonly garbage: number | null;
  readonly floorP50?: number | undefined;
  /** What is compared with the floor, where it is not the median. */
  readonly compared?: number;
  /** Nanoseconds over the floor, where few are promised. */
  readonly over?: number | undefined;
}

function timesOf(sorted: readonly number[], operations: number): Times {
  const at = (part: number) => sorted[Math.floor(part * (sorted.length - 1))]! / operations;
  return { p50: at(0.5), p99: at(0.99), min: at(0) };
}

function bestOf(rounds: readonly Times[]): Times {
  return rounds.reduce((best, round) => (round.p50 < best.p50 ? { ...round, min: Math.min(best.min, round.min) } : { ...best, min: Math.min(best.min, round.min) }));
}

/**
 * `NEURON_DMEM_BENCH_CLOCK=cpu` counts the thread's processor time instead of the
 * time that passes: on a busy machine it shows what a change does. Reports and
 * gates use real time.
 */
const clock = process.env["NEURON_DMEM_BENCH_CLOCK"] === "cpu" ? { now: threadClock() } : {};

function threadClock(): () => number {
  const CLOCK_THREAD_CPUTIME_ID = 3;
  const clockGettime = process.arch === "arm64" ? 113 : 228;
  const system = native();
  const { address, view } = pinned(16);
  return () => {
    system.syscall(clockGettime, CLOCK_THREAD_CPUTIME_ID, address);
    return view.getUint32(0, true) * 1e9 + view.getUint32(8, true);
  };
}

/** Calls twice, to see how long one takes. */
async function subjectOf(action: () => unknown, operations: number): Promise<Subject> {
  let took = Infinity;
  for (let call = 0; call < 2; call++) {
    const begun = performance.now();
    const result = action();
    if (result instanceof Promise) await result;
    took = Math.min(took, (performance.now() - begun) * 1e6);
  }
  return { action, operations, batch: UNROLL * Math.min(1024, Math.ceil(BATCH_NANOSECONDS / took / UNROLL)), long: took > LONG_CALL };
}

async function timed({ action, operations, batch, long }: Subject, nanoseconds: number): Promise<Times> {
  const stats = await measure(action, { ...clock, min_cpu_time: nanoseconds, batch_samples: batch, ...(long ? { min_samples: 2 } : {}) });
  return { p50: stats.p50 / operations, p99: stats.p99 / operations, min: stats.min / operations };
}

function verdict({ p50, garbage, floorP50: floor, compared = p50, over }: Measured, options: RowOptions): { target?: string; met?: boolean } {
  const parts: [string, boolean][] = [];
  if (floor !== undefined && options.atMost !== undefined) parts.push([`≤ ${options.atMost} ×`, compared / floor <= options.atMost]);
  if (floor !== undefined && options.atLeast !== undefined) parts.push([`≥ ${options.atLeast} of floor`, floor / compared >= options.atLeast]);
  if (over !== undefined && options.overFloor !== undefined) parts.push([`≤ floor + ${options.overFloor} ns`, over <= options.overFloor]);
  if (options.within !== undefined) parts.push([`≤ ${options.within} ns`, compared <= options.within]);
  if (options.garbageAtMost !== undefined && garbage !== null) parts.push([`≤ ${options.garbageAtMost} B garbage`, garbage <= options.garbageAtMost]);
  if (options.memory !== undefined && options.memoryAtMost !== undefined) {
    parts.push([`≤ ${options.memoryAtMost / 2 ** 20} MiB memory`, options.memory <= options.memoryAtMost]);
  }
  return parts.length === 0 ? {} : { target: parts.map(([text]) => text).join(", "), met: parts.every(([, met]) => met) };
}

/**
 * Growth of memory per operation between two collections, in runs of its own so
 * that it does not disturb the times. Bun tells only what the process holds,
 * which is exact for "none" and rough otherwise.
 */
async function garbagePer(action: () => unknown, operations: number, nanoseconds: number): Promise<number | null> {
  const heap = await heapReader();
  const runs = Math.max(nanoseconds > LONG_CALL ? 1 : 16, Math.min(50_000, Math.floor(100e6 / Math.max(nanoseconds, 1))));
  const seen: number[] = [];
  for (let round = 0; round < GARBAGE_ROUNDS; round++) {
    heap.collect();
    const before = heap.used();
    for (let i = 0; i < runs; i++) {
      const result = action();
      if (result instanceof Promise) await result;
    }
    // The first rounds also pay for the heap's own blocks.
    if (round > 1) seen.push((heap.used() - before) / runs / operations);
  }
  const grown = seen.filter((value) => value >= 0).sort((a, b) => a - b);
  // The process's own threads take memory now and then: what an operation leaves behind shows in every round.
  return grown.length === 0 ? null : Math.round(grown[0]!);
}

interface HeapReader {
  used(): number;
  collect(): void;
}

let reader: HeapReader | undefined;

async function heapReader(): Promise<HeapReader> {
  if (reader !== undefined) return reader;
  if ("Bun" in globalThis) {
    const jsc = await import("bun:jsc");
    reader = { used: () => jsc.memoryUsage().current, collect: () => void jsc.gcAndSweep() };
  } else {
    reader = { used: () => process.memoryUsage().heapUsed, collect: (globalThis as { gc?: () => void }).gc ?? (() => {}) };
  }
  return reader;
}
