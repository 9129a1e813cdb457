/** Rows for ranges that overlap. */

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
