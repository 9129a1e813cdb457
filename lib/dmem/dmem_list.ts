import { ClosedError } from "../../ffi/error.ts";
import { toIndex } from "../../ffi/memory.ts";
import { writeU64 } from "../../ffi/u64.ts";
import { DmemListRecord, DmemRefNode, NrtStatus } from "../abi/runtime_dmem.ts";
import { MemoryError } from "./error.ts";
import { type MemorySource, RecordPool } from "./records.ts";
import type { Dmem, DmemList } from "./types.ts";

interface Entry {
  readonly memory: Dmem;
  /** Address of its `dmem_ref_node_t`. */
  readonly node: number;
}

/** A list of allocations to free in one go; see {@linkcode DmemList}. */
export class GcList implements DmemList {
  readonly #head: DataView;
  readonly #nodes: RecordPool;
  #entries: Entry[] = [];

  constructor(source: MemorySource) {
    this.#head = source(DmemListRecord.byteLength).view;
    this.#nodes = new RecordPool(DmemRefNode.byteLength, source);
  }

  get length(): number {
    return this.#entries.length;
  }
  get head(): number {
    return DmemListRecord.over(this.#head).head;
  }
  get tail(): number {
    return DmemListRecord.over(this.#head).tail;
  }

  add(memory: Dmem): void {
    // The record's address also checks that the memory is alive.
    if (memory.closed) throw new ClosedError("Cannot list device memory: its last reference was freed");
    const node = this.#takeNode();
    this.#write(node, DmemRefNode.offsets.dmem, memory.record);
    const last = this.#entries.at(-1);
    if (last === undefined) writeU64(this.#head, DmemListRecord.offsets.head, node);
    else this.#write(last.node, DmemRefNode.offsets.next, node);
    writeU64(this.#head, DmemListRecord.offsets.tail, node);
    this.#entries.push({ memory, node });
  }

  /** @throws the first error of an entry, for example of one listed twice with one reference; all entries are freed first */
  free(): void {
    const entries = this.#entries;
    this.#entries = [];
    let failure: unknown;
    for (const [index, { memory, node }] of entries.entries()) {
      try {
        memory.release();
      } catch (error) {
        failure ??= error;
      }
      writeU64(this.#head, DmemListRecord.offsets.head, entries[index + 1]?.node ?? 0);
      this.#nodes.give(node);
    }
    writeU64(this.#head, DmemListRecord.offsets.tail, 0);
    if (failure !== undefined) throw failure;
  }
  close(): void {
    this.free();
  }
  [Symbol.dispose](): void {
    this.free();
  }
  *[Symbol.iterator](): Generator<Dmem, undefined, undefined> {
    for (const { memory } of this.#entries) yield memory;
    return undefined;
  }

  #takeNode(): number {
    try {
      return this.#nodes.take();
    } catch (error) {
      throw new MemoryError(NrtStatus.RESOURCE, "Cannot list device memory: no memory for the entry", {
        text: "Failed to allocate memory for dmem_ref_node_t", cause: error,
      });
    }
  }

  #write(node: number, at: number, value: number): void {
    const slab = this.#nodes.find(node)!;
    writeU64(slab.view, toIndex(node - slab.address + at), value);
  }
}
