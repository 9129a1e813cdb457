import { requests } from "../../lib/abi/requests.ts";
import type { ListedRequest } from "./actor.ts";
import { prepareArgument, type Prepared } from "./arguments.ts";
import type { Step, Value } from "./recording.ts";
import type { Session } from "./session.ts";

/** Where the slots of listed allocations lie in a process's area: behind what a single call is set up with. */
const SLOTS_OFFSET = 8 * 2 ** 20;
const SLOT_BYTES = 128;
/** Place of the handle in a slot, behind the argument. */
const HANDLE_OFFSET = 96;

/** Issues one kind of allocation again and again from one argument. */
export class Allocator {
  readonly #session: Session;
  readonly #step: Step;
  readonly #prepared: Prepared;
  readonly #fd: number;
  readonly #word = new Uint8Array(4);

  constructor(session: Session, step: Step, given: Readonly<Record<string, Value>>) {
    this.#session = session;
    this.#step = step;
    this.#fd = session.descriptor(step.proc, step.fd);
    this.#prepared = prepareAllocation(session, step, given);
  }

  /** Changes the HBM of the next allocation. */
  onHbm(hbm: number): void {
    new DataView(this.#word.buffer).setUint32(0, hbm, true);
    const place = this.#prepared.layout.place("dram_channel")!;
    this.#session.actor(this.#step.proc).store(Number(this.#prepared.address) + place.offset, this.#word);
  }

  /** Allocates once. Returns the handle, or the negative result. */
  allocate(): number {
    const actor = this.#session.actor(this.#step.proc);
    const result = actor.ioctl(this.#fd, requests.MEM_ALLOC_V2MT64.request, this.#prepared.address);
    return result !== 0 ? result : u64Of(actor.load(this.#prepared.pointees.get("mem_handle")!, 8)!);
  }

  /** Frees a handle. Returns the result. */
  free(handle: number): number {
    const actor = this.#session.actor(this.#step.proc);
    const argument = actor.area(8, "unmapped");
    const bytes = new DataView(new ArrayBuffer(8));
    bytes.setBigUint64(0, BigInt(handle), true);
    actor.store(argument, new Uint8Array(bytes.buffer));
    return actor.ioctl(this.#fd, requests.MEM_FREE.request, BigInt(argument));
  }

  /** The address of a handle. */
  addressOf(handle: number): number {
    const actor = this.#session.actor(this.#step.proc);
    const info = actor.area(64, "unmapped");
    const ask = new DataView(new ArrayBuffer(16));
    ask.setBigUint64(0, BigInt(handle), true);
    ask.setBigUint64(8, BigInt(info + 16), true);
    actor.store(info, new Uint8Array(ask.buffer));
    const result = actor.ioctl(this.#fd, requests.MEM_GET_PA.request, BigInt(info));
    return result === 0 ? u64Of(actor.load(info + 16, 8)!) : -1;
  }
}

/** Arguments of allocations side by side, each with a place for its handle: what lists of requests are made from. */
export class AllocationSlots {
  readonly #session: Session;
  readonly #step: Step;
  readonly #start: number;
  readonly #fd: number;

  /** @param fieldsOf what the allocation of a slot is given */
  constructor(session: Session, step: Step, count: number, fieldsOf: (slot: number) => Readonly<Record<string, Value>>) {
    this.#session = session;
    this.#step = step;
    this.#fd = session.descriptor(step.proc, step.fd);
    const actor = session.actor(step.proc);
    this.#start = actor.area(0) + SLOTS_OFFSET;
    for (let slot = 0; slot < count; slot++) {
      const { address, layout } = prepareAllocation(session, step, fieldsOf(slot));
      const argument = actor.load(Number(address), HANDLE_OFFSET)!;
      new DataView(argument.buffer, argument.byteOffset).setBigUint64(layout.place("mem_handle")!.offset, BigInt(this.#handleAt(slot)), true);
      actor.store(this.#start + slot * SLOT_BYTES, argument);
    }
  }

  /** Allocates into a slot. */
  allocate(slot: number): ListedRequest {
    return { fd: this.#fd, request: requests.MEM_ALLOC_V2MT64.request, address: this.#start + slot * SLOT_BYTES };
  }

  /** Frees what is in a slot: the handle alone is the argument. */
  free(slot: number): ListedRequest {
    return { fd: this.#fd, request: requests.MEM_FREE.request, address: this.#handleAt(slot) };
  }

  /** The handle in a slot. */
  handle(slot: number): number {
    return u64Of(this.#session.actor(this.#step.proc).load(this.#handleAt(slot), 8)!);
  }

  #handleAt(slot: number): number {
    return this.#start + slot * SLOT_BYTES + HANDLE_OFFSET;
  }
}

function prepareAllocation(session: Session, step: Step, given: Readonly<Record<string, Value>>): Prepared {
  const fields = { align: 0, host_memory: 0, dram_channel: 0, dram_region: 0, nc_id: 0, mem_type: 9, ...given };
  return prepareArgument(session, { op: "ioctl", proc: step.proc, name: "MEM_ALLOC_V2MT64", in: fields }, requests.MEM_ALLOC_V2MT64.request);
}

function u64Of(bytes: Uint8Array): number {
  return Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
}
