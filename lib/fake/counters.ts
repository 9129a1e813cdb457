/** Cores the driver keeps counters for, whatever the device has. */
const CORES = 8;
const CATEGORIES = 20;

/** Category a host allocation of an unknown kind counts as, and a device allocation. */
const UNKNOWN_HOST = 0;
const UNKNOWN_DEVICE = 7;
/** Types that are host memory: 0 … 6 and 17. */
const HOST_TYPES: readonly boolean[] = Array.from({ length: CATEGORIES }, (_, type) => type < UNKNOWN_DEVICE || type === 17);
/** Type 19 is shown together with 11. */
const SHOWN: readonly number[] = Array.from({ length: CATEGORIES }, (_, type) => (type === 19 ? 11 : type));

/** One memory counter as sysfs shows it. */
export interface Counter {
  /** Bytes in use. */
  total: number;
  /** Size of the last change. */
  present: number;
  /** Highest `total`. */
  peak: number;
}

/** The memory counters of one device. */
export interface Counters {
  /** Host memory booked on each core, including cores the device does not have. */
  readonly host: readonly Counter[];
  /** Device memory booked on each core. */
  readonly device: readonly Counter[];
  /** Host memory by type, whole device. */
  readonly hostByType: readonly Counter[];
  /** Device memory by core and type. */
  readonly deviceByType: readonly (readonly Counter[])[];
  /** Changes since the start: tells whether a copy of the files is current. */
  changes: number;
}

/** All counters at 0. */
export function createCounters(): Counters {
  const counter = (): Counter => ({ total: 0, present: 0, peak: 0 });
  const list = (length: number) => Array.from({ length }, counter);
  return {
    host: list(CORES),
    device: list(CORES),
    hostByType: list(CATEGORIES),
    deviceByType: Array.from({ length: CORES }, () => list(CATEGORIES)),
    changes: 0,
  };
}

/**
 * Books `size` bytes: on the core's sum and on the category. A type of the other
 * side changes the sum only.
 *
 * @param type memory category; 20 and above count as uncategorized
 */
export function book(counters: Counters, host: boolean, core: number, type: number, size: number): void {
  counters.changes++;
  grow(host ? counters.host[core]! : counters.device[core]!, size);
  const category = categoryOf(counters, host, core, type);
  if (category !== undefined) grow(category, size);
}

/** Releases `size` bytes; the counterpart of {@linkcode book}. */
export function unbook(counters: Counters, host: boolean, core: number, type: number, size: number): void {
  counters.changes++;
  shrink(host ? counters.host[core]! : counters.device[core]!, size);
  const category = categoryOf(counters, host, core, type);
  if (category !== undefined) shrink(category, size);
}

function categoryOf(counters: Counters, host: boolean, core: number, type: number): Counter | undefined {
  const known = type < CATEGORIES ? type : host ? UNKNOWN_HOST : UNKNOWN_DEVICE;
  if (HOST_TYPES[known] !== host) return undefined;
  const shown = SHOWN[known]!;
  return host ? counters.hostByType[shown] : counters.deviceByType[core]![shown];
}

function grow(counter: Counter, size: number): void {
  counter.total += size;
  counter.present = size;
  if (counter.total > counter.peak) counter.peak = counter.total;
}

function shrink(counter: Counter, size: number): void {
  counter.total -= size;
  counter.present = size;
}

/** The text of a counter's file: decimal, wrapping below 0 like the driver's u64. */
export function counterText(value: number): string {
  return value >= 0 ? String(value) : String(BigInt(value) + 2n ** 64n);
}
