import { SharedMrSet } from "../abi/runtime_context.ts";
import { DmemListRecord, NrtStatus } from "../abi/runtime_dmem.ts";
import { ScratchpadCleanup } from "../abi/runtime_scratchpad.ts";
import type { Allocator, Dmem, DmemList } from "../dmem/types.ts";
import type { MemRefTable } from "../stage/mem_ref_table.ts";
import type { Reservation } from "../plan/scratchpad.ts";
import { NrtError } from "./errors.ts";

/** The claim on a core's scratchpad (`tdrv_scratchpad_cleanup_info_t`). */
export type ScratchpadClaim = Reservation<Dmem>;

/** The four things a subgraph's load builds before a model takes them over. */
export interface SlotMembers {
  /** The staged variables, by id. */
  readonly memRefSet: MemRefTable;
  /** The MODEL allocator. */
  readonly modelAllocator: Allocator;
  /** What is freed in one go at unload. */
  readonly gcTracker: DmemList;
  /** The claim on scratchpad pages. */
  readonly scratchpadCleanupInfo: ScratchpadClaim;
}

/**
 * The slot of one subgraph while it is loaded (`vtpb_info_shared_mr_set_t`).
 * Adding the model moves the members out and zeroes the slot, so that undoing
 * the load afterwards frees nothing twice.
 */
export class SharedSlot {
  #members: Partial<SlotMembers>;

  constructor(members: Partial<SlotMembers>) {
    this.#members = members;
  }

  /** Whether nothing is in it. */
  get empty(): boolean {
    return Object.values(this.#members).every((member) => member === undefined);
  }

  /**
   * Moves the members out and zeroes the slot.
   *
   * @throws {NrtError} NRT_FAILURE when one is missing; the slot keeps what it has
   */
  take(): SlotMembers {
    const { memRefSet, modelAllocator, gcTracker, scratchpadCleanupInfo } = this.#members;
    if (memRefSet === undefined || modelAllocator === undefined || gcTracker === undefined || scratchpadCleanupInfo === undefined) {
      const missing = Object.entries({ memRefSet, modelAllocator, gcTracker, scratchpadCleanupInfo }).filter(([, member]) => member === undefined).map(([name]) => name);
      throw new NrtError(NrtStatus.FAILURE, `Cannot add the model: its slot has no ${missing.join(", no ")}`, { details: { missing } });
    }
    this.#members = {};
    return { memRefSet, modelAllocator, gcTracker, scratchpadCleanupInfo };
  }

  /** The 32 bytes of the slot as the runtime has them: addresses, or 0. */
  record(): Uint8Array {
    const { memRefSet, modelAllocator, gcTracker, scratchpadCleanupInfo } = this.#members;
    const slot = SharedMrSet.alloc();
    if (memRefSet !== undefined) slot.memRefSet = memRefSet.set.address;
    if (modelAllocator !== undefined) slot.modelAllocator = modelAllocator.record;
    if (gcTracker !== undefined) slot.gcTracker = DmemListRecord.alloc({ head: gcTracker.head, tail: gcTracker.tail }).$address;
    if (scratchpadCleanupInfo !== undefined) {
      const { pages, pageBytes, va } = scratchpadCleanupInfo;
      const claim = ScratchpadCleanup.alloc({ numEntries: 1, contiguousScratchpadVa: va });
      claim.$set("sizes", 0, pages * pageBytes);
      slot.scratchpadCleanupInfo = claim.$address;
    }
    return slot.$bytes;
  }
}
