/**
 * A plan (`kbin_mem_ref_set`): one subgraph's variables as 152-byte records, in
 * one buffer with everything they point to. The format is described in
 * `docs/plan.md`.
 */
import { readU64, writeU64 } from "../../ffi/u64.ts";
import { KbinDebugTensorMd, KbinMemRef, KbinMemRefList, KbinMemRefSetHeader, planBytes } from "../abi/runtime_kbin.ts";
import { PlanError } from "./error.ts";
import type { DebugMetadata, Payload, RecordSink } from "./mem_ref.ts";

const AT = KbinMemRef.offsets;
const HEADER = KbinMemRefSetHeader.offsets;
const MOST_PREFIX_BYTES = 512;
/** A payload reference: offset and size in the member, and where the member's name stands. */
const PAYLOAD_BYTES = 24;

/**
 * One subgraph's plan. `bytes` begins with the `kbin_mem_ref_set` and goes on with
 * the side table; pointer fields hold offsets from the beginning of `bytes`, 0 for
 * none.
 */
export interface Plan {
  /** Name of the subgraph. */
  readonly name: string;
  /** Offset of the subgraph's name in `bytes`. */
  readonly nameAt: number;
  /** Set and side table. */
  readonly bytes: Uint8Array;
  /** The same bytes. */
  readonly view: DataView;
  /** Length of the set: 24 + 152 · `count`. */
  readonly setBytes: number;
  /** Number of variables; their ids are 0 … count − 1, and the index of their records. */
  readonly count: number;
  /** High-water mark of the variables in the core's own arena. */
  readonly localScratchpadBytes: number;
  /** High-water mark of the variables in the arena the subgraphs share. */
  readonly sharedScratchpadBytes: number;
}

/** Byte offset of a record in a plan. */
export function recordAt(varId: number): number {
  return KbinMemRefSetHeader.byteLength + KbinMemRef.byteLength * varId;
}

/** The name of a variable. */
export function planName(plan: Plan, varId: number): string {
  return planText(plan, readU64(plan.view, recordAt(varId) + AT.name));
}

/** A text of the side table. */
export function planText(plan: Plan, at: number): string {
  return readText(plan.bytes, plan.view, at);
}

/** The ids of a list or table. */
export function planIds(plan: Plan, varId: number): Uint32Array {
  const record = recordAt(varId);
  const ids = new Uint32Array(plan.view.getUint32(record + KbinMemRefList.offsets.length, true));
  const at = readU64(plan.view, record + KbinMemRefList.offsets.list);
  for (let index = 0; index < ids.length; index++) ids[index] = plan.view.getUint32(at + 4 * index, true);
  return ids;
}

/** Where the payload of a buffer is, or null for a buffer without one. */
export function planPayload(plan: Plan, varId: number): Payload | null {
  const at = readU64(plan.view, recordAt(varId) + AT.buffer);
  if (at === 0) return null;
  return { offset: readU64(plan.view, at), size: readU64(plan.view, at + 8), member: planText(plan, readU64(plan.view, at + 16)) };
}

/** The print metadata of a variable, or null. */
export function planDebug(plan: Plan, varId: number): DebugMetadata | null {
  const at = readU64(plan.view, recordAt(varId) + AT.dtensorMd);
  if (at === 0) return null;
  const { prefixStr, pipeId } = KbinDebugTensorMd.over(plan.view, at);
  return { prefix: prefixStr, pipe: pipeId };
}

/** A text: its length as u32 before it, its UTF-8 bytes, a NUL. `at` is the offset of the first byte. */
function readText(bytes: Uint8Array, view: DataView, at: number): string {
  const length = view.getUint32(at - 4, true);
  return new TextDecoder().decode(bytes.subarray(at, at + length));
}

/** What a plan is made from besides its records. */
export interface PlanParts {
  /** Name of the subgraph. */
  readonly name: string;
  readonly count: number;
  readonly localScratchpadBytes: number;
  readonly sharedScratchpadBytes: number;
}

/** Writes a plan: the set at its final place, the side table growing behind it. */
export class PlanWriter implements RecordSink {
  view: DataView;
  bytes: Uint8Array;
  base = recordAt(0);
  #used: number;
  readonly #parts: PlanParts;
  readonly #nameAt: number;

  constructor(parts: PlanParts) {
    this.#parts = parts;
    this.#used = planBytes(parts.count);
    const memory = plainMemory(this.#used + 64 * parts.count + 1024);
    this.bytes = memory.bytes;
    this.view = memory.view;
    writeU64(this.view, HEADER.localScratchpadSize, parts.localScratchpadBytes);
    writeU64(this.view, HEADER.sharedScratchpadSize, parts.sharedScratchpadBytes);
    this.view.setUint32(HEADER.nmem, parts.count, true);
    this.#nameAt = this.text(parts.name);
  }

  /** Moves to the record of a variable and sets its name. */
  next(varId: number, name: string): void {
    this.base = recordAt(varId);
    const at = this.text(name);
    writeU64(this.view, this.base + AT.name, at);
  }

  /** Stores a text and answers its offset. */
  text(text: string): number {
    this.#room(3 * text.length + 12, 4);
    const at = this.#used + 4;
    const length = this.#encode(text, at);
    this.view.setUint32(this.#used, length, true);
    this.#used = at + length + 1;
    return at;
  }

  ids(list: readonly number[]): number {
    if (list.length === 0) return 0;
    this.#room(4 * list.length, 4);
    const at = this.#used;
    list.forEach((id, index) => this.view.setUint32(at + 4 * index, id, true));
    this.#used += 4 * list.length;
    return at;
  }

  debug(metadata: DebugMetadata): number {
    const prefix = new TextEncoder().encode(metadata.prefix);
    if (prefix.length > MOST_PREFIX_BYTES) {
      throw new PlanError(`Cannot store a print prefix of ${prefix.length} bytes: a record holds ${MOST_PREFIX_BYTES}`, {
        details: { length: prefix.length, most: MOST_PREFIX_BYTES },
      });
    }
    this.#room(KbinDebugTensorMd.byteLength, 4);
    const at = this.#used;
    this.bytes.set(prefix, at);
    this.view.setUint32(at + KbinDebugTensorMd.offsets.pipeId, metadata.pipe, true);
    this.#used += KbinDebugTensorMd.byteLength;
    return at;
  }

  payload(payload: Payload): number {
    const member = this.text(payload.member);
    this.#room(PAYLOAD_BYTES, 8);
    const at = this.#used;
    writeU64(this.view, at, payload.offset);
    writeU64(this.view, at + 8, payload.size);
    writeU64(this.view, at + 16, member);
    this.#used += PAYLOAD_BYTES;
    return at;
  }

  /** The plan as written so far. */
  finish(): Plan {
    const bytes = this.bytes.subarray(0, this.#used);
    return {
      ...this.#parts,
      nameAt: this.#nameAt,
      bytes,
      view: new DataView(bytes.buffer, bytes.byteOffset, bytes.length),
      setBytes: planBytes(this.#parts.count),
    };
  }

  /** Nearly all names are ASCII: encoding those here is several times faster than the encoder for short texts. */
  #encode(text: string, at: number): number {
    const { bytes } = this;
    const length = text.length;
    for (let index = 0; index < length; index++) {
      const code = text.charCodeAt(index);
      if (code > 127) return new TextEncoder().encodeInto(text, bytes.subarray(at)).written;
      bytes[at + index] = code;
    }
    return length;
  }

  #room(size: number, alignment: number): void {
    this.#used = Math.ceil(this.#used / alignment) * alignment;
    if (this.#used + size <= this.bytes.length) return;
    const larger = plainMemory(Math.ceil((this.#used + size) * 1.5));
    larger.bytes.set(this.bytes);
    this.bytes = larger.bytes;
    this.view = larger.view;
  }
}

/** Memory for a plan: plain bytes, since nothing outside of this process's code reads a plan where it lies. */
export function plainMemory(byteLength: number): { readonly bytes: Uint8Array; readonly view: DataView } {
  const buffer = new ArrayBuffer(byteLength);
  return { bytes: new Uint8Array(buffer), view: new DataView(buffer) };
}
