/** What the layout tests share: every struct of `lib/abi/` by C name, the golden tables, and a counter of comparisons. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { cFieldName, type Field, type Struct } from "../../ffi/layout.ts";
import * as abi from "../../lib/abi/mod.ts";

/** A struct of `lib/abi/` with its fields' types forgotten. */
export type AnyStruct = Pick<Struct<Readonly<Record<string, Field>>>, "cName" | "byteLength" | "fields" | "offsets"> & {
  over(view: DataView, base?: number): AnyView;
};

/** A view of a struct whose fields are not known to the compiler. */
export interface AnyView {
  readonly $bytes: Uint8Array;
  $get(name: string, index: number): unknown;
  $set(name: string, index: number, value: unknown): void;
  [field: string]: unknown;
}

/** One struct of the golden runtime tables; a field is `[C name, offset, size or null]`. */
export interface GoldenStruct {
  readonly size: number;
  readonly align?: number;
  readonly section: string;
  readonly fields: readonly (readonly [string, number, number | null])[];
}

/** `tests/golden/runtime_layouts.json`. */
export interface Golden {
  readonly structs: Readonly<Record<string, GoldenStruct>>;
  readonly enums: Readonly<Record<string, Readonly<Record<string, number>>>>;
  readonly tables: Readonly<Record<string, readonly number[]>>;
  readonly architectures: Readonly<Record<abi.Product, {
    readonly architecture: number; readonly cores: number; readonly channels: number; readonly coresPerChannel: number;
    readonly channelSize: number; readonly bases: readonly number[]; readonly stateBuffers: readonly number[];
  }>>;
  readonly decodedCategories: readonly (readonly [string | null, string])[];
  readonly resolver: readonly (readonly [number, number, number, number])[];
  readonly stateBufferBytes: number;
}

/** The runtime side's golden tables. */
export const golden = JSON.parse(readFileSync(new URL("../golden/runtime_layouts.json", import.meta.url), "utf8")) as Golden;

/** Every struct `lib/abi/` exports, by C name. */
export const allStructs: ReadonlyMap<string, AnyStruct> = new Map(
  (Object.values(abi) as readonly unknown[]).filter(isStruct).map((one) => [one.cName, one]),
);

/** Names of the exports that are structs, to tell two exports of one C name apart. */
export const structExports: readonly string[] = Object.entries(abi as Readonly<Record<string, unknown>>).filter(([, value]) => isStruct(value)).map(([name]) => name);

/** The struct with this C name. Fails the test when there is none. */
export function structOf(cName: string): AnyStruct {
  const found = allStructs.get(cName);
  assert.ok(found !== undefined, `lib/abi has no layout of ${cName}`);
  return found;
}

/** Offset and size of every field by C name, in order of offset. */
export function layoutOf(struct: AnyStruct): readonly (readonly [string, number, number])[] {
  return Object.entries(struct.fields).map(([key, field]) => [cFieldName(key, field), field.offset, field.size] as const)
    .sort((a, b) => a[1] - b[1]);
}

/** Asserts `offsets`, given as C name → offset, and the struct's size. */
export function assertOffsets(cName: string, size: number, offsets: Readonly<Record<string, number>>): void {
  const struct = structOf(cName);
  const layout = new Map(layoutOf(struct).map(([name, offset]) => [name, offset]));
  assert.equal(struct.byteLength, size, `size of ${cName}`);
  for (const [name, offset] of Object.entries(offsets)) assert.equal(layout.get(name), offset, `${cName}.${name}`);
}

/** Counts comparisons that hold; a failed one throws like `assert.deepEqual`. */
export class Comparisons {
  count = 0;
  /** Compares one value. */
  same(actual: unknown, expected: unknown, what: string): void {
    assert.deepEqual(actual, expected, what);
    this.count++;
  }
}

function isStruct(value: unknown): value is AnyStruct {
  return typeof value === "object" && value !== null && "cName" in value && "byteLength" in value && "over" in value;
}
