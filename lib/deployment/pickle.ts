/** Pickles as PyTorch writes them, as a tree of data. Nothing is imported or called. `docs/deployments.md`, "Pickles". */
import { viewOf } from "../neff/header.ts";
import { printable } from "../neff/error.ts";
import type { FileBytes } from "../neff/source.ts";
import { ModelFileError } from "../sharding/error.ts";

/** A string: its place always, its text when it is short. */
export interface PickleText {
  readonly kind: "text";
  /** Of its first byte in the pickle. */
  readonly offset: number;
  readonly length: number;
  /** Null above 4096 bytes. */
  readonly text: string | null;
}

/** A tuple or list. */
export interface PickleList {
  readonly kind: "list";
  readonly items: PickleValue[];
}

/** A dictionary, in its order. */
export interface PickleDict {
  readonly kind: "dict";
  readonly entries: [PickleValue, PickleValue][];
}

/** An object of a class that was not made: what its constructor and its state would have been. */
export interface PickleObject {
  readonly kind: "object";
  readonly className: string;
  readonly args: PickleValue;
  state: PickleValue;
}

/** What a pickle holds. `global` is the name of a class, `reference` a storage outside of the pickle. */
export type PickleValue =
  | null | boolean | number | PickleText | PickleList | PickleDict | PickleObject
  | { readonly kind: "global"; readonly name: string }
  | { readonly kind: "reference" };

const TEXT_BYTES = 4096;
const VALUES = 20_000_000;
const WINDOW_BYTES = 64 * 1024;

/** What a pickle may name; only the latter may be called, and what is called becomes an object. */
const CLASSES = /^(__torch__\.|torch\.[A-Za-z0-9]*Storage$|torch\.(?:storage\.)?(?:Typed|Untyped)Storage$|torch\.device$)/;
const CALLS = /^(torch\._utils\._rebuild_(tensor|tensor_v2|parameter|qtensor)|torch\.jit\._pickle\.(restore_type_tag|build_(int|tensor|double|bool)list|build_tensor_from_id)|torch\.device|collections\.OrderedDict)$/;

/** The pickle names something that may run: no search helps, the file is not to be trusted. */
export class PickleCodeError extends ModelFileError {
  override name = "PickleCodeError";
}

/**
 * Reads a pickle of protocol 2 to 4 in constant memory, but for its short strings and its structure.
 *
 * @throws {PickleCodeError} for one that would import or call anything but PyTorch's own builders
 * @throws {ModelFileError} for one that is cut off, damaged, or has operations that PyTorch does not write
 */
export async function readPickle(source: FileBytes): Promise<PickleValue> {
  return new Unpickler(source).run();
}

class Unpickler {
  readonly #source: FileBytes;
  readonly #file: string;
  #stack: PickleValue[] = [];
  readonly #marks: PickleValue[][] = [];
  readonly #memo = new Map<number, PickleValue>();
  #window: Uint8Array = new Uint8Array(0);
  #windowAt = 0;
  #at = 0;

  constructor(source: FileBytes) {
    this.#source = source;
    this.#file = source.name ?? "the pickle";
  }

  async run(): Promise<PickleValue> {
    for (let count = 0; count < VALUES; count++) {
      const at = this.#at;
      const code = (await this.#take(1))[0]!;
      if (code === 0x2e) return this.#pop();
      if (!await this.#read(code) && !this.#build(code)) {
        throw this.#fault(`operation 0x${code.toString(16).padStart(2, "0")} at byte ${at} is none that PyTorch writes`, "unsupported");
      }
    }
    throw this.#fault(`it has more than ${VALUES} operations`, "limit");
  }

  /** Operations with something behind them. */
  async #read(code: number): Promise<boolean> {
    switch (code) {
      case 0x80: return void await this.#take(1), true;
      case 0x95: return void await this.#take(8), true;
      case 0x63: return this.#push({ kind: "global", name: this.#allowed(`${await this.#line()}.${await this.#line()}`) });
      case 0x58: case 0x54: case 0x42: return this.#push(await this.#text(await this.#u32()));
      case 0x8c: case 0x55: case 0x43: return this.#push(await this.#text((await this.#take(1))[0]!));
      case 0x8d: case 0x8e: return this.#push(await this.#text(await this.#u64()));
      case 0x71: return this.#remember((await this.#take(1))[0]!);
      case 0x72: return this.#remember(await this.#u32());
      case 0x94: return this.#remember(this.#memo.size);
      case 0x68: return this.#push(this.#recall((await this.#take(1))[0]!));
      case 0x6a: return this.#push(this.#recall(await this.#u32()));
      case 0x4b: return this.#push((await this.#take(1))[0]!);
      case 0x4d: return this.#push(viewOf(await this.#take(2)).getUint16(0, true));
      case 0x4a: return this.#push(viewOf(await this.#take(4)).getInt32(0, true));
      case 0x8a: return this.#push(await this.#long());
      case 0x47: return this.#push(viewOf(await this.#take(8)).getFloat64(0));
      default: return false;
    }
  }

  /** Operations on what is on the stack. */
  #build(code: number): boolean {
    switch (code) {
      case 0x4e: return this.#push(null);
      case 0x88: return this.#push(true);
      case 0x89: return this.#push(false);
      case 0x29: case 0x5d: return this.#push({ kind: "list", items: [] });
      case 0x7d: return this.#push({ kind: "dict", entries: [] });
      case 0x28: return this.#marks.push(this.#stack), this.#stack = [], true;
      case 0x74: return this.#push({ kind: "list", items: this.#marked() });
      case 0x85: case 0x86: case 0x87: return this.#tuple(code - 0x84);
      case 0x61: return this.#append([this.#pop()]);
      case 0x65: return this.#append(this.#marked());
      case 0x73: return this.#set([this.#pop(), this.#pop()].reverse());
      case 0x75: return this.#set(this.#marked());
      case 0x51: return this.#pop(), this.#push({ kind: "reference" });
      case 0x30: return this.#pop(), true;
      case 0x52: case 0x81: return this.#make(code === 0x52);
      case 0x93: return this.#stackGlobal();
      case 0x62: return this.#state();
      default: return false;
    }
  }

  #tuple(count: number): boolean {
    const items = Array.from({ length: count }, () => this.#pop()).reverse();
    return this.#push({ kind: "list", items });
  }

  #append(items: readonly PickleValue[]): boolean {
    const list = this.#top();
    if (!isKind(list, "list")) throw this.#fault("something is added to what is no list");
    for (const item of items) list.items.push(item);
    return true;
  }

  #set(items: readonly PickleValue[]): boolean {
    const dict = this.#top();
    const target = isKind(dict, "object") && isKind(dict.state, "dict") ? dict.state : dict;
    if (!isKind(target, "dict") || items.length % 2 !== 0) throw this.#fault("something is set in what is no dictionary");
    for (let index = 0; index < items.length; index += 2) target.entries.push([items[index]!, items[index + 1]!]);
    return true;
  }

  #make(called: boolean): boolean {
    const args = this.#pop();
    const made = this.#pop();
    if (!isKind(made, "global")) throw this.#fault("it makes an object of what is no class");
    if (called && !CALLS.test(made.name)) throw this.#code(made.name);
    if (made.name.endsWith("restore_type_tag") && isKind(args, "list")) return this.#push(args.items[0] ?? null);
    return this.#push({ kind: "object", className: made.name, args, state: made.name === "collections.OrderedDict" ? { kind: "dict", entries: [] } : null });
  }

  #stackGlobal(): boolean {
    const [name, module] = [this.#pop(), this.#pop()];
    if (!isKind(name, "text") || !isKind(module, "text")) throw this.#fault("a class has no name");
    return this.#push({ kind: "global", name: this.#allowed(`${module.text ?? ""}.${name.text ?? ""}`) });
  }

  #state(): boolean {
    const state = this.#pop();
    const object = this.#top();
    if (!isKind(object, "object")) throw this.#fault("something that is no object gets a state");
    object.state = state;
    return true;
  }

  #allowed(name: string): string {
    if (CLASSES.test(name) || CALLS.test(name)) return name;
    throw this.#code(name);
  }

  #code(name: string): PickleCodeError {
    return new PickleCodeError(`it asks for "${printable(name, 100)}", which is code and not data; nothing was run`, {
      file: this.#file, kind: "unsupported", hint: "Files that PyTorch writes for Neuron name only classes of their own: do not load this one.",
    });
  }

  #push(value: PickleValue): true {
    this.#stack.push(value);
    return true;
  }

  #pop(): PickleValue {
    const value = this.#stack.pop();
    if (value === undefined) throw this.#fault("it takes more from the stack than is there");
    return value;
  }

  #top(): PickleValue {
    const value = this.#stack.at(-1);
    if (value === undefined) throw this.#fault("it uses more of the stack than is there");
    return value;
  }

  #marked(): PickleValue[] {
    const before = this.#marks.pop();
    if (before === undefined) throw this.#fault("a list ends that has not begun");
    const items = this.#stack;
    this.#stack = before;
    return items;
  }

  #remember(index: number): boolean {
    this.#memo.set(index, this.#top());
    return true;
  }

  #recall(index: number): PickleValue {
    const value = this.#memo.get(index);
    if (value === undefined) throw this.#fault(`it recalls ${index}, which it has not kept`);
    return value;
  }

  async #text(length: number): Promise<PickleText> {
    const offset = this.#at;
    if (offset + length > this.#source.size) throw this.#fault(`a string of ${length} bytes at byte ${offset} ends after its ${this.#source.size} bytes`, "truncated");
    if (length <= TEXT_BYTES) return { kind: "text", offset, length, text: new TextDecoder().decode(await this.#take(length)) };
    this.#at += length;
    return { kind: "text", offset, length, text: null };
  }

  async #line(): Promise<string> {
    for (let text = "", count = 0; count < 1024; count++) {
      const byte = (await this.#take(1))[0]!;
      if (byte === 0x0a) return text;
      text += String.fromCharCode(byte);
    }
    throw this.#fault("the name of a class does not end");
  }

  async #u32(): Promise<number> {
    return viewOf(await this.#take(4)).getUint32(0, true);
  }

  async #u64(): Promise<number> {
    const view = viewOf(await this.#take(8));
    return view.getUint32(0, true) + view.getUint32(4, true) * 2 ** 32;
  }

  async #long(): Promise<number> {
    const bytes = await this.#take((await this.#take(1))[0]!);
    if (bytes.length > 8) throw this.#fault(`a number has ${bytes.length} bytes`);
    const value = bytes.reduce((sum, byte, index) => sum + byte * 256 ** index, 0);
    return bytes.length > 0 && bytes.at(-1)! > 127 ? value - 256 ** bytes.length : value;
  }

  async #take(count: number): Promise<Uint8Array> {
    if (this.#at < this.#windowAt || this.#at + count > this.#windowAt + this.#window.length) {
      this.#window = await this.#source.read(this.#at, Math.max(count, WINDOW_BYTES));
      this.#windowAt = this.#at;
    }
    const start = this.#at - this.#windowAt;
    if (start + count > this.#window.length) throw this.#fault(`it ends at byte ${this.#source.size} without its last operation`, "truncated");
    this.#at += count;
    return this.#window.subarray(start, start + count);
  }

  #fault(reason: string, kind: "damaged" | "truncated" | "limit" | "unsupported" = "damaged"): ModelFileError {
    return new ModelFileError(reason, { file: this.#file, kind });
  }
}

type Kinds = Exclude<PickleValue, null | boolean | number>;

/** Whether a value is of a kind. */
export function isKind<Kind extends Kinds["kind"]>(value: PickleValue, kind: Kind): value is Extract<Kinds, { kind: Kind }> {
  return typeof value === "object" && value !== null && value.kind === kind;
}
