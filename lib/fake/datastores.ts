import { Errno } from "../../ffi/errno.ts";
import { driverConstants } from "../abi/driver_enums.ts";
import type { Chunk } from "./chunk.ts";

/** Bytes of one datastore. */
export const STORE_BYTES: number = driverConstants.NEURON_DATASTORE_SIZE;
/** Datastores of a device. */
export const STORE_COUNT: number = driverConstants.NEURON_MAX_DATASTORE_ENTRIES_PER_DEVICE;

/** A datastore: shared memory in which a process publishes its counters. */
export interface Store {
  /** Its memory. */
  readonly chunk: Chunk;
  /** Process that has it, 0 for nobody. */
  pid: number;
  /** When it was last cleared; 0 never. The longest cleared one is given out first. */
  cleared: number;
}

/** A device as its stores see it. */
export interface StoreOwner {
  /** Its stores. */
  readonly stores: readonly Store[];
  /** Whether memory may have been changed outside of chunks. */
  readonly untracked: boolean;
  /** Its bytes. */
  readonly backing: { discard(pa: number, size: number): void };
}

let clearCounter = 1;

/** The store of a process, made for the caller when `pid` is 0; or a negative errno. */
export function acquireStore(stores: readonly Store[], pid: number, caller: number): Chunk | number {
  const found = stores.find((store) => store.pid === (pid === 0 ? caller : pid));
  if (found !== undefined) return found.chunk;
  if (pid !== 0) return -Errno.ENOENT;
  let empty: Store | undefined;
  for (const store of stores) {
    if (store.pid === 0 && (empty === undefined || store.cleared < empty.cleared)) empty = store;
  }
  if (empty === undefined) return -Errno.ENOMEM;
  empty.pid = caller;
  return empty.chunk;
}

/** Clears and gives back the store of a process. */
export function releaseStore(device: StoreOwner, pid: number): void {
  for (const store of device.stores) if (store.pid === pid) clear(device, store);
}

/** Clears all stores: the node was closed by the last process. */
export function clearStores(device: StoreOwner): void {
  for (const store of device.stores) clear(device, store);
}

function clear(device: StoreOwner, store: Store): void {
  store.pid = 0;
  store.cleared = clearCounter++;
  if (store.chunk.touched || device.untracked) device.backing.discard(store.chunk.pa, store.chunk.size);
}
