/**
 * Half-open address ranges, overlapping freely, and the question which of them
 * cover an address. Built once, in O(n log n); a query costs O(log n) per hit.
 *
 * The ranges are sorted by start; above them stands an implicit binary tree whose
 * nodes hold the largest end below them, so that a query visits only nodes with
 * a hit underneath.
 */
export interface IntervalIndex {
  /** Number of ranges. */
  readonly count: number;
  /** Numbers of all ranges that cover `address`, ascending by start. */
  covering(address: number): number[];
}

/**
 * Indexes the ranges `[starts[i], ends[i])`. Empty ranges cover nothing.
 *
 * @param starts first addresses
 * @param ends addresses behind the last byte, one per start
 */
export function intervalIndex(starts: Float64Array, ends: Float64Array): IntervalIndex {
  const order = sortedOrder(starts);
  const count = order.length;
  const sortedStarts = Float64Array.from(order, (range) => starts[range] as number);
  let leaves = 1;
  while (leaves < count) leaves *= 2;
  const largest = new Float64Array(2 * leaves).fill(-1);
  order.forEach((range, position) => {
    largest[leaves + position] = ends[range] as number;
  });
  for (let node = leaves - 1; node >= 1; node--) {
    largest[node] = Math.max(largest[2 * node] as number, largest[2 * node + 1] as number);
  }

  const collect = (node: number, first: number, width: number, limit: number, address: number, into: number[]): void => {
    if (first >= limit || !((largest[node] as number) > address)) return;
    if (width === 1) {
      into.push(order[first] as number);
      return;
    }
    const half = width / 2;
    collect(2 * node, first, half, limit, address, into);
    collect(2 * node + 1, first + half, half, limit, address, into);
  };

  return {
    count,
    covering(address) {
      const found: number[] = [];
      collect(1, 0, leaves, upperBound(sortedStarts, address), address, found);
      return found;
    },
  };
}

/** Number of elements of the ascending `values` that are ≤ `value`. */
function upperBound(values: Float64Array, value: number): number {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((values[middle] as number) <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * The order that sorts `values` ascending, ties by position. The values are
 * sorted natively and every position put into its value's slot: several times
 * faster than a sort with a comparison function.
 */
function sortedOrder(values: Float64Array): Uint32Array {
  const sorted = values.slice().sort();
  const order = new Uint32Array(values.length);
  const used = new Uint32Array(values.length);
  values.forEach((value, position) => {
    const first = lowerBound(sorted, value);
    const slot = first + (used[first] as number);
    used[first] = (used[first] as number) + 1;
    order[slot] = position;
  });
  return order;
}

function lowerBound(values: Float64Array, value: number): number {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((values[middle] as number) < value) low = middle + 1;
    else high = middle;
  }
  return low;
}
