import { ArgumentError } from "./error.ts";
import { type Id64, readI64, readId64, readU64, writeI64, writeId64, writeU64 } from "./u64.ts";

/** Buffers of this size and more are never kept inline by a runtime, so that their bytes do not move. */
const MINIMUM_BYTES = 1024;

/** Finds where a view's bytes lie; set by `memory.ts`, which can. */
let locate = (_view: DataView): number => {
  throw new ArgumentError("Cannot tell an address: nothing that can make system calls was imported", { hint: "Import neuron-dmem or neuron-dmem/abi." });
};

/** Tells the layouts how addresses are found. Layouts alone need no foreign function interface: they read files as well. */
export function provideAddresses(find: (view: DataView) => number): void {
  locate = find;
}

/** What a field holds. `u64` and `ptr` are checked safe numbers, `id64` a number or bigint, `chars` NUL-padded text. */
export type FieldKind = "u8" | "i8" | "u16" | "u32" | "i32" | "i64" | "u64" | "id64" | "ptr" | "chars" | "bytes";

/** One field of a struct. */
export interface Field<K extends FieldKind = FieldKind, N extends number | undefined = number | undefined> {
  /** What one element holds. */
  readonly kind: K;
  /** Byte offset in the struct. */
  readonly offset: number;
  /** Bytes of the whole field. */
  readonly size: number;
  /** Number of elements, or undefined for a single value. `chars` and `bytes` are single values. */
  readonly count: N;
  /** The C name, when it is not the snake_case form of the key. */
  readonly c: string | undefined;
}

/** The fields of a struct by TypeScript name. */
export type Fields = Readonly<Record<string, Field>>;

type ValueOf<K extends FieldKind> = K extends "id64" ? Id64 : K extends "chars" ? string : K extends "bytes" ? Uint8Array : number;

/** Names of single-valued fields, and of array fields. */
type ScalarName<F extends Fields> = { [N in keyof F]: F[N]["count"] extends number ? never : N }[keyof F];
type ArrayName<F extends Fields> = Exclude<keyof F, ScalarName<F>> & string;

/** Values with which a struct can be initialised. */
export type StructInit<F extends Fields> = { [N in ScalarName<F>]?: ValueOf<F[N]["kind"]> };

/**
 * A struct laid over bytes: one property per single-valued field, read and
 * written in place. Own members start with `$`.
 */
export type StructView<F extends Fields> =
  & { -readonly [N in ScalarName<F>]: ValueOf<F[N]["kind"]> }
  & StructBase<F>;

/** The members every struct view has besides its fields. */
export interface StructBase<F extends Fields> {
  /** The view the struct lies in. */
  $view: DataView;
  /** Byte offset of the struct in `$view`; assign it to walk an array of structs without garbage. */
  $base: number;
  /** Address of the struct in this process. */
  readonly $address: number;
  /** The struct's bytes, without a copy. */
  readonly $bytes: Uint8Array;
  /** Element `index` of an array field. @throws {ArgumentError} when out of bounds */
  $get<N extends ArrayName<F>>(name: N, index: number): ValueOf<F[N]["kind"]>;
  /** Sets element `index` of an array field. @throws {ArgumentError} when out of bounds */
  $set<N extends ArrayName<F>>(name: N, index: number, value: ValueOf<F[N]["kind"]>): void;
  /** A plain copy of all single-valued fields. */
  $read(): { [N in ScalarName<F>]: ValueOf<F[N]["kind"]> };
}

/** A struct type: its table, and the means to lay it over memory. */
export interface Struct<F extends Fields> {
  /** The C name, for example `struct neuron_ioctl_mem_free`. */
  readonly cName: string;
  /** Size in bytes. */
  readonly byteLength: number;
  /** The field table. */
  readonly fields: F;
  /** Byte offset of each field. */
  readonly offsets: { readonly [N in keyof F]: number };
  /** Lays the struct over `view` at byte `base`. @throws {ArgumentError} when it does not fit */
  over(view: DataView, base?: number): StructView<F>;
  /** A zeroed struct in memory of its own with a fixed address. */
  alloc(init?: StructInit<F>): StructView<F>;
}

/**
 * Declares a struct from its table of fields.
 *
 * @param cName the C name
 * @param byteLength its size in bytes, as the C compiler gives it
 * @throws {ArgumentError} when a field leaves the struct or overlaps another
 */
export function struct<const F extends Fields>(cName: string, byteLength: number, fields: F): Struct<F> {
  checkTable(cName, byteLength, fields);
  // Most programs use few of the structs: the class is made with the first view.
  let View: ReturnType<typeof viewClass> | undefined;
  const make = (view: DataView, base: number) => new (View ??= viewClass(byteLength, fields))(view, base) as unknown as StructView<F>;
  return {
    cName,
    byteLength,
    fields,
    offsets: offsetsOf(fields) as Struct<F>["offsets"],
    over(view, base = 0) {
      if (base < 0 || base + byteLength > view.byteLength) {
        throw new ArgumentError(`Cannot lay ${cName} (${byteLength} bytes) at offset ${base} of ${view.byteLength} bytes: it does not fit`);
      }
      return make(view, base);
    },
    alloc(init) {
      const value = make(new DataView(new ArrayBuffer(Math.max(byteLength, MINIMUM_BYTES)), 0, byteLength), 0);
      return init === undefined ? value : Object.assign(value, init);
    },
  };
}

/** The C name of a field: given, or the snake_case form of its key. */
export function cFieldName(key: string, field: Field): string {
  return field.c ?? key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

type Make<K extends FieldKind> = {
  (offset: number, c?: string): Field<K, undefined>;
  (offset: number, count: number, c?: string): Field<K, number>;
};

function maker<K extends FieldKind>(kind: K, bytes: number): Make<K> {
  return ((offset: number, second?: number | string, third?: string) => {
    const count = typeof second === "number" ? second : undefined;
    const c = typeof second === "string" ? second : third;
    return { kind, offset, size: bytes * (count ?? 1), count, c };
  }) as Make<K>;
}

/** An unsigned byte, or an array of them. */
export const u8: Make<"u8"> = maker("u8", 1);
/** A signed byte, or an array of them. */
export const i8: Make<"i8"> = maker("i8", 1);
/** An unsigned 16-bit field, or an array. */
export const u16: Make<"u16"> = maker("u16", 2);
/** An unsigned 32-bit field, or an array. */
export const u32: Make<"u32"> = maker("u32", 4);
/** A signed 32-bit field, or an array. */
export const i32: Make<"i32"> = maker("i32", 4);
/** A signed 64-bit field as a safe number, or an array. */
export const i64: Make<"i64"> = maker("i64", 8);
/** An unsigned 64-bit field as a safe number, or an array. */
export const u64: Make<"u64"> = maker("u64", 8);
/** A 64-bit identifier or mask, number or bigint, or an array. */
export const id64: Make<"id64"> = maker("id64", 8);
/** An address in the caller's memory, or an array. */
export const ptr: Make<"ptr"> = maker("ptr", 8);

/** NUL-padded text of `size` bytes. Writing refuses text that leaves no room for the NUL. */
export function chars(offset: number, size: number, c?: string): Field<"chars", undefined> {
  return { kind: "chars", offset, size, count: undefined, c };
}

/** `size` raw bytes, read without a copy (an embedded struct, a blob). */
export function bytes(offset: number, size: number, c?: string): Field<"bytes", undefined> {
  return { kind: "bytes", offset, size, count: undefined, c };
}

interface Cell {
  $view: DataView;
  $base: number;
}

type Getter = (view: DataView, offset: number) => unknown;
type Setter = (view: DataView, offset: number, value: never) => void;

const READ: Readonly<Record<Exclude<FieldKind, "chars" | "bytes">, Getter>> = {
  u8: (view, offset) => view.getUint8(offset),
  i8: (view, offset) => view.getInt8(offset),
  u16: (view, offset) => view.getUint16(offset, true),
  u32: (view, offset) => view.getUint32(offset, true),
  i32: (view, offset) => view.getInt32(offset, true),
  i64: readI64,
  u64: readU64,
  ptr: readU64,
  id64: readId64,
};

const WRITE: Readonly<Record<Exclude<FieldKind, "chars" | "bytes">, Setter>> = {
  u8: (view, offset, value: number) => view.setUint8(offset, value),
  i8: (view, offset, value: number) => view.setInt8(offset, value),
  u16: (view, offset, value: number) => view.setUint16(offset, value, true),
  u32: (view, offset, value: number) => view.setUint32(offset, value, true),
  i32: (view, offset, value: number) => view.setInt32(offset, value, true),
  i64: writeI64,
  u64: writeU64,
  ptr: writeU64,
  id64: writeId64,
};

function viewClass(byteLength: number, fields: Fields): new (view: DataView, base: number) => Cell {
  class View implements Cell {
    $view: DataView;
    $base: number;
    constructor(view: DataView, base: number) {
      this.$view = view;
      this.$base = base;
    }
    get $bytes(): Uint8Array {
      return new Uint8Array(this.$view.buffer, this.$view.byteOffset + this.$base, byteLength);
    }
    get $address(): number {
      return locate(this.$view) + this.$base;
    }
    $get(name: string, index: number): unknown {
      const field = element(fields, name, index);
      return READ[field.kind as "u8"](this.$view, this.$base + field.offset + index * (field.size / field.count));
    }
    $set(name: string, index: number, value: unknown): void {
      const field = element(fields, name, index);
      WRITE[field.kind as "u8"](this.$view, this.$base + field.offset + index * (field.size / field.count), value as never);
    }
    $read(): Record<string, unknown> {
      const self = this as unknown as Record<string, unknown>;
      return Object.fromEntries(Object.keys(fields).filter((name) => fields[name]?.count === undefined).map((name) => [name, self[name]]));
    }
  }
  for (const [name, field] of Object.entries(fields)) {
    if (field.count === undefined) Object.defineProperty(View.prototype, name, accessor(field));
  }
  return View;
}

function accessor(field: Field): PropertyDescriptor & ThisType<Cell> {
  const { kind, offset, size } = field;
  if (kind === "chars") return charsAccessor(offset, size);
  if (kind === "bytes") {
    return {
      get() {
        return new Uint8Array(this.$view.buffer, this.$view.byteOffset + this.$base + offset, size);
      },
      set(value: Uint8Array) {
        if (value.length !== size) throw new ArgumentError(`Cannot store ${value.length} bytes in a field of ${size}`);
        new Uint8Array(this.$view.buffer, this.$view.byteOffset + this.$base + offset, size).set(value);
      },
    };
  }
  const get = READ[kind];
  const set = WRITE[kind];
  return {
    get() {
      return get(this.$view, this.$base + offset);
    },
    set(value: never) {
      set(this.$view, this.$base + offset, value);
    },
  };
}

function charsAccessor(offset: number, size: number): PropertyDescriptor & ThisType<Cell> {
  return {
    get() {
      const all = new Uint8Array(this.$view.buffer, this.$view.byteOffset + this.$base + offset, size);
      const end = all.indexOf(0);
      return new TextDecoder().decode(end < 0 ? all : all.subarray(0, end));
    },
    set(value: string) {
      const encoded = new TextEncoder().encode(value);
      if (encoded.length >= size) {
        throw new ArgumentError(`Cannot store a text of ${encoded.length} bytes in a field of ${size}: one byte must stay for the NUL`);
      }
      const all = new Uint8Array(this.$view.buffer, this.$view.byteOffset + this.$base + offset, size);
      all.fill(0);
      all.set(encoded);
    },
  };
}

function element(fields: Fields, name: string, index: number): Field & { readonly count: number } {
  const field = fields[name];
  if (field?.count === undefined || !(index >= 0 && index < field.count)) {
    throw new ArgumentError(`Cannot access element ${index} of ${name}: the field has ${field?.count ?? "no"} elements`);
  }
  return field as Field & { readonly count: number };
}

function offsetsOf(fields: Fields): Record<string, number> {
  const offsets: Record<string, number> = {};
  for (const name in fields) offsets[name] = (fields[name] as Field).offset;
  return offsets;
}

function checkTable(cName: string, byteLength: number, fields: Fields): void {
  let end = 0;
  let sorted: Field[] | undefined;
  for (const name in fields) {
    const { offset, size } = fields[name] as Field;
    if (offset < end || offset + size > byteLength) sorted = Object.values(fields).sort((a, b) => a.offset - b.offset);
    end = offset + size;
  }
  if (sorted === undefined) return;
  // Not in the order of their offsets, or wrong: looked at in that order.
  end = 0;
  for (const field of sorted) {
    if (field.offset < end || field.offset + field.size > byteLength) {
      const name = Object.keys(fields).find((key) => fields[key] === field);
      throw new ArgumentError(`Cannot declare ${cName}: field ${name} at ${field.offset} overlaps another or leaves its ${byteLength} bytes`);
    }
    end = field.offset + field.size;
  }
}
