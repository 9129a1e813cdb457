/**
 * A thin layer over mitata's `measure`: rows with their floor in the same
 * process, a label for what was measured, and garbage per operation.
 */
import { measure } from "mitata";

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
  /** Bytes of garbage per operation, or null where the runtime does not tell. */
  readonly garbage: number | null;
  /** Bytes moved per operation, for rates. */
  readonly bytes?: number;
  /** The most the ratio may be (or the least for `atLeast`). */
  readonly target?: string;
  readonly met?: boolean;
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
  /** p50 in nanoseconds must not exceed the floor's by more than this. */
  readonly overFloor?: number;
  /** p50 in nanoseconds must not exceed this. */
  readonly within?: number;
  /** Garbage per operation must not exceed this many bytes. */
  readonly garbageAtMost?: number;
  /** Bytes moved per operation. */
  readonly bytes?: number;
  /** How many operations one call of the function does (default 1). */
  readonly operations?: number;
  /** Measure for at least this long, in milliseconds (default 300). */
  readonly milliseconds?: number;
}

/** Collects the rows of one bench file. */
export class Suite {
  readonly rows: Row[] = [];
  readonly #name: string;

  constructor(name: string) {
    this.#name = name;
  }

  /** Measures `action` and keeps the row. Returned values are kept from being optimised away by mitata. */
  async row(name: string, action: () => unknown, options: RowOptions = {}): Promise<Row> {
    const operations = options.operations ?? 1;
    const stats = await measure(action, { min_cpu_time: (options.milliseconds ?? 300) * 1e6 });
    const garbage = await garbagePer(action, operations, stats.p50);
    const p50 = stats.p50 / operations;
    const floor = options.floor === undefined ? undefined : this.rows.find((row) => row.name === options.floor);
    if (options.floor !== undefined && floor === undefined) throw new Error(`no floor named ${options.floor} in ${this.#name}`);
    const row: Row = {
      bench: this.#name, name, label: options.label ?? "host", p50, p99: stats.p99 / operations, min: stats.min / operations, garbage,
      ...(floor === undefined ? {} : { floor: floor.name, ratio: p50 / floor.p50 }),
      ...(options.bytes === undefined ? {} : { bytes: options.bytes }),
      ...verdict(p50, garbage, floor?.p50, options),
    };
    this.rows.push(row);
    return row;
  }

  /** Keeps a row measured by other means (inside C, or a whole process). */
  add(row: Omit<Row, "bench">): void {
    this.rows.push({ bench: this.#name, ...row });
  }
}

function verdict(p50: number, garbage: number | null, floor: number | undefined, options: RowOptions): { target?: string; met?: boolean } {
  const parts: [string, boolean][] = [];
  if (floor !== undefined && options.atMost !== undefined) parts.push([`≤ ${options.atMost} ×`, p50 / floor <= options.atMost]);
  if (floor !== undefined && options.atLeast !== undefined) parts.push([`≥ ${options.atLeast} of floor`, floor / p50 >= options.atLeast]);
  if (floor !== undefined && options.overFloor !== undefined) parts.push([`≤ floor + ${options.overFloor} ns`, p50 - floor <= options.overFloor]);
  if (options.within !== undefined) parts.push([`≤ ${options.within} ns`, p50 <= options.within]);
  if (options.garbageAtMost !== undefined && garbage !== null) parts.push([`≤ ${options.garbageAtMost} B garbage`, garbage <= options.garbageAtMost]);
  return parts.length === 0 ? {} : { target: parts.map(([text]) => text).join(", "), met: parts.every(([, met]) => met) };
}

/**
 * Growth of memory per operation between two collections, in runs of its own so
 * that it does not disturb the times. Bun tells only what the process holds,
 * which is exact for "none" and rough otherwise.
 */
async function garbagePer(action: () => unknown, operations: number, nanoseconds: number): Promise<number | null> {
  const heap = await heapReader();
  const runs = Math.max(1, Math.min(50_000, Math.floor(100e6 / Math.max(nanoseconds, 1))));
  const seen: number[] = [];
  for (let round = 0; round < 5; round++) {
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
  return grown.length === 0 ? null : Math.round(grown[Math.floor((grown.length - 1) / 2)]!);
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
