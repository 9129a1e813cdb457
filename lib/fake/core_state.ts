import { CoreInitState } from "../abi/driver_enums.ts";

/** Cores the driver has room for, whatever the device has. */
export const CORE_SLOTS = 8;
/** Bytes of a model's uuid. */
export const UUID_BYTES = 32;

/** The reader-writer lock of one core's model. */
export interface ModelLock {
  /** Process that wrote last; 0 when nobody. */
  pid: number;
  /** Model it wrote. */
  readonly uuid: Uint8Array;
  /** Whether it is writing. */
  writing: boolean;
  /** Readers inside. */
  readers: number;
}

/** What the driver keeps about one core apart from memory. */
export interface FakeCore {
  /** `neuron_cinit_state`. */
  init: number;
  /** Models started. */
  started: number;
  /** The model lock. */
  readonly lock: ModelLock;
  /** Resets asked for; a sysfs counter. */
  resetRequests: number;
}

/** The state of all cores of a device after loading the driver. */
export function createCores(): readonly FakeCore[] {
  return Array.from({ length: CORE_SLOTS }, () => ({
    init: CoreInitState.INVALID,
    started: 0,
    lock: { pid: 0, uuid: new Uint8Array(UUID_BYTES), writing: false, readers: 0 },
    resetRequests: 0,
  }));
}

/** Drops the model locks of a process that went away. */
export function releaseLocks(cores: readonly FakeCore[], pid: number): void {
  for (const { lock } of cores) {
    if (lock.pid !== pid) continue;
    lock.pid = 0;
    lock.uuid.fill(0);
    lock.writing = false;
    lock.readers = 0;
  }
}

/** Whether a process holds a core's model lock in either way. */
export function holdsLock(lock: ModelLock, pid: number): boolean {
  return lock.pid === pid && (lock.writing || lock.readers > 0);
}

/** A reset that was asked for. */
export interface ResetRequest {
  /** Process that asked, or −1 for sysfs. */
  readonly id: number;
  /** Clock value at which it is done. */
  readonly done: number;
}
