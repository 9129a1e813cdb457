/** One element type of the host graph. */
export interface Dtype {
  readonly name: string;
  /** The runtime's number (kelf notes, dltype table). */
  readonly number: number;
  readonly bytes: number;
}

const TABLE: readonly (readonly [string, number, number])[] = [
  ["float32", 10, 4],
  ["float16", 7, 2],
  ["bfloat16", 6, 2],
  ["float32r", 11, 4],
  ["int8", 2, 1],
  ["int16", 4, 2],
  ["int32", 8, 4],
  ["int64", 12, 8],
  ["uint8", 3, 1],
  ["uint16", 5, 2],
  ["uint32", 9, 4],
  ["uint64", 1, 8],
  // The 8-bit floats' spellings in the host graph are not established; these are the descriptors' ones.
  ["float8e3", 13, 1],
  ["float8e4", 14, 1],
  ["float8e5", 15, 1],
  ["float8_e4m3fn", 14, 1],
];

const BY_NAME: ReadonlyMap<string, Dtype> = new Map(TABLE.map(([name, number, bytes]) => [name, { name, number, bytes }]));

/** The element type of a host-graph name; undefined for one nobody knows (the runtime counts it as 1 byte). */
export function dtypeOf(name: string): Dtype | undefined {
  return BY_NAME.get(name);
}

/**
 * Bytes of a tensor, or undefined when its element type is unknown.
 *
 * @example
 * console.log(tensorBytes([128, 128], "bfloat16")); // → 32768
 */
export function tensorBytes(shape: readonly number[], dtype: string): number | undefined {
  const bytes = dtypeOf(dtype)?.bytes;
  return bytes === undefined ? undefined : shape.reduce((product, dimension) => product * dimension, bytes);
}
