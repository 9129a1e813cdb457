/** Which allocation each variable lies in. */
import type { AllocationInput, UnplacedVariable, VariableInput } from "./model.ts";

/** A range of addresses. */
export interface Range {
  /** First byte. */
  readonly start: number;
  /** Bytes, ≥ 1. */
  readonly size: number;
}

/** Order by address; of those that start together the largest first. */
export function byAddress(a: Range, b: Range): number {
  return a.start - b.start || b.size - a.size;
}

/**
 * Gives every range the lowest lane that is free where it starts, so that ranges
 * sharing a byte are in different lanes; uses as many lanes as ranges overlap at
 * the worst place, never more. O(n log n).
 *
 * @param ranges in the order of {@linkcode byAddress}
 * @returns the lane of each range, and their number
 */
export function assignLanes(ranges: readonly Range[]): { readonly lanes: readonly number[]; readonly count: number } {
  const busy: Entry[] = [];
  const free: Entry[] = [];
  let count = 0;
  const lanes = ranges.map(({ start, size }) => {
    while (busy.length > 0 && busy[0]!.key <= start) {
      const { lane } = popLeast(busy);
      push(free, { key: lane, lane });
    }
    const lane = free.length > 0 ? popLeast(free).lane : count++;
    push(busy, { key: start + size, lane });
    return lane;
  });
  return { lanes, count };
}

/** How many bytes at least one, and at least two, of the ranges cover. @param ranges in the order of {@linkcode byAddress} */
export function coverage(ranges: readonly Range[]): { readonly coveredBytes: number; readonly sharedBytes: number } {
  let coveredBytes = 0;
  let sharedBytes = 0;
  // Everything below `once` is covered; everything below `twice` that could be covered twice was counted.
  let once = -Infinity;
  let twice = -Infinity;
  for (const { start, size } of ranges) {
    const end = start + size;
    coveredBytes += Math.max(0, end - Math.max(start, once));
    sharedBytes += Math.max(0, Math.min(end, once) - Math.max(start, twice));
    twice = Math.max(twice, Math.min(end, once));
    once = Math.max(once, end);
  }
  return { coveredBytes, sharedBytes };
}

/** Groups ranges that hang together by sharing bytes; ranges that only touch stay apart. @param ranges in the order of {@linkcode byAddress} */
export function overlapGroups<T extends Range>(ranges: readonly T[]): readonly (readonly T[])[] {
  const groups: T[][] = [];
  let end = -Infinity;
  for (const range of ranges) {
    if (range.start < end) groups.at(-1)!.push(range);
    else groups.push([range]);
    end = Math.max(end, range.start + range.size);
  }
  return groups;
}

interface Entry {
  readonly key: number;
  readonly lane: number;
}

/** Adds to a binary heap with the least key first. */
function push(heap: Entry[], entry: Entry): void {
  let at = heap.length;
  heap.push(entry);
  while (at > 0) {
    const parent = (at - 1) >> 1;
    if (heap[parent]!.key <= entry.key) break;
    heap[at] = heap[parent]!;
    at = parent;
  }
  heap[at] = entry;
}

function popLeast(heap: Entry[]): Entry {
  const least = heap[0]!;
  const last = heap.pop()!;
  if (heap.length === 0) return least;
  let at = 0;
  for (;;) {
    let child = 2 * at + 1;
    if (child >= heap.length) break;
    if (child + 1 < heap.length && heap[child + 1]!.key < heap[child]!.key) child++;
    if (heap[child]!.key >= last.key) break;
    heap[at] = heap[child]!;
    at = child;
  }
  heap[at] = last;
  return least;
}

/** One or more adjacent allocations, before variables are put in. */
export interface Extent {
  /** Device physical address of the first byte. */
  readonly start: number;
  /** Bytes taken. */
  readonly size: number;
  /** Bytes asked for, or null. */
  readonly requestedBytes: number | null;
  /** The allocation it stands for; the first of several. */
  readonly allocation: AllocationInput;
  /** How many allocations. */
  readonly chunks: number;
}

/** A variable with its place. */
export interface PlacedVariable {
  /** Its name. */
  readonly name: string;
  /** Device physical address. */
  readonly start: number;
  /** Bytes, ≥ 1. */
  readonly size: number;
  /** Variable type, or an empty text. */
  readonly type: string;
  /** Usage, or null to take the allocation's. */
  readonly usage: string | null;
  /** Model, or null. */
  readonly model: string | null;
  /** Subgraph, or null. */
  readonly subgraph: string | null;
}

/** The outcome of {@linkcode placeVariables}. */
export interface Placement {
  /** Extents by device, those joined that a variable straddles. */
  readonly extents: ReadonlyMap<number, readonly Extent[]>;
  /** Variables of each extent, by address. */
  readonly variables: ReadonlyMap<Extent, readonly PlacedVariable[]>;
  /** Variables outside every allocation. */
  readonly unplaced: readonly UnplacedVariable[];
}

/**
 * Finds the allocation of every variable. Adjacent allocations that one variable
 * straddles (contiguous scratchpad pages) become one extent.
 *
 * @param extents by device, in address order, disjoint
 */
export function placeVariables(inputs: readonly VariableInput[], extents: ReadonlyMap<number, readonly Extent[]>): Placement {
  const unplaced: UnplacedVariable[] = [];
  const placed = new Map<number, PlacedVariable[]>();
  for (const input of inputs) {
    const { name, device, start, size } = input;
    const problem = problemOf(input, extents.get(device));
    if (problem !== undefined) {
      unplaced.push({ name, model: input.model ?? null, size, reason: problem });
      continue;
    }
    const list = placed.get(device) ?? [];
    list.push({
      name, start: start!, size: size!, type: input.type ?? "", usage: input.usage ?? null, model: input.model ?? null, subgraph: input.subgraph ?? null,
    });
    placed.set(device, list);
  }
  const joined = new Map<number, readonly Extent[]>();
  const variables = new Map<Extent, readonly PlacedVariable[]>();
  for (const [device, list] of extents) {
    const inOrder = (placed.get(device) ?? []).sort((a, b) => byAddress(a, b) || compare(a.name, b.name));
    const whole = join(list, inOrder);
    joined.set(device, whole);
    distribute(whole, inOrder, variables);
  }
  return { extents: joined, variables, unplaced };
}

function problemOf({ start, size }: VariableInput, extents: readonly Extent[] | undefined): string | undefined {
  if (start === null) return "no place in device memory";
  if (size === null || size <= 0) return "no size";
  if (extents === undefined) return "on a device that is not drawn";
  let at = indexAt(extents, start);
  if (at < 0) return "outside every allocation";
  const end = start + size;
  while (extents[at]!.start + extents[at]!.size < end) {
    const next = extents[at + 1];
    if (next === undefined || next.start !== extents[at]!.start + extents[at]!.size) return "reaches beyond its allocation";
    at++;
  }
  return undefined;
}

/** Index of the extent that contains an address, or −1. */
function indexAt(extents: readonly Extent[], address: number): number {
  let low = 0;
  let high = extents.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (extents[middle]!.start <= address) low = middle + 1;
    else high = middle;
  }
  const found = extents[low - 1];
  return found !== undefined && address < found.start + found.size ? low - 1 : -1;
}

/** Joins what variables straddle. */
function join(extents: readonly Extent[], variables: readonly PlacedVariable[]): readonly Extent[] {
  const joinedToNext = new Set<number>();
  for (const { start, size } of variables) {
    for (let at = indexAt(extents, start); extents[at]!.start + extents[at]!.size < start + size; at++) joinedToNext.add(at);
  }
  const result: Extent[] = [];
  extents.forEach((extent, index) => {
    const before = result.at(-1);
    if (before === undefined || !joinedToNext.has(index - 1)) {
      result.push(extent);
      return;
    }
    const requestedBytes = before.requestedBytes === null || extent.requestedBytes === null ? null : before.requestedBytes + extent.requestedBytes;
    result[result.length - 1] = { ...before, size: before.size + extent.size, requestedBytes, chunks: before.chunks + 1 };
  });
  return result;
}

function distribute(extents: readonly Extent[], inOrder: readonly PlacedVariable[], into: Map<Extent, readonly PlacedVariable[]>): void {
  let at = 0;
  for (const extent of extents) {
    const from = at;
    while (at < inOrder.length && inOrder[at]!.start < extent.start + extent.size) at++;
    into.set(extent, inOrder.slice(from, at));
  }
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
