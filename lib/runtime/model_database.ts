import { NrtStatus } from "../abi/runtime_dmem.ts";
import { NrtError } from "./errors.ts";
import { currentHolder, encloses, type Holder } from "./process_state.ts";

const COUNTER_START = 1000n;
const COUNTER_MASK = (1n << 64n) - 1n;
const STORED_MASK = (1n << 32n) - 1n;

/** Gives out model handles: strictly increasing, never 0, never twice. */
export interface HandleMinter {
  /** The next handle. Its low 32 bits, the form a model record stores, are never 0 either. */
  next(): number;
  /** The last handle given out, as the wide counter holds it. */
  readonly last: bigint;
}

/**
 * A counter of its own, as one process has.
 *
 * The counter is 64 bits wide and is bumped once more whenever the handle, or
 * the 32 bits of it that a model record stores, would be 0 (context notes, 4.1;
 * the start at 1000, so that the first handle is 1001, is from public logs).
 *
 * @param start the value before the first handle
 */
export function createHandleMinter(start: bigint = COUNTER_START): HandleMinter {
  let counter = start & COUNTER_MASK;
  return {
    next() {
      do counter = (counter + 1n) & COUNTER_MASK;
      while ((counter & STORED_MASK) === 0n);
      return Number(counter);
    },
    get last() {
      return counter;
    },
  };
}

/** The 32 bits of a handle that a model record stores (`h_model`). */
export function storedHandle(handle: number): number {
  return handle % 2 ** 32;
}

let shared: HandleMinter | undefined;

/** The counter of this process, over all contexts, devices and cores. */
export function processHandles(): HandleMinter {
  return shared ??= createHandleMinter();
}

/** Which core a database belongs to; both numbers are device-relative. */
export interface CorePlace {
  /** Device index. */
  readonly device: number;
  /** Physical core on the device. */
  readonly core: number;
}

/** Options of {@linkcode ModelDatabase.remove}. */
export interface DrainOptions {
  /** Who removes; a reference it holds itself would never be dropped. The running execution when absent. */
  readonly holder?: Holder | undefined;
  /** Longest wait in milliseconds; forever when absent. */
  readonly timeoutMs?: number | undefined;
}

/**
 * A model as a core's database knows it: its handle and its reference
 * count. `T` is what the reference leads to.
 */
export class Resident<T> {
  /** The model. */
  readonly model: T;
  /** Its handle; never 0. */
  readonly handle: number;
  /** Name for messages. */
  readonly name: string;
  readonly #references = new Set<ModelReference<T>>();
  #drained: { readonly promise: Promise<void>; readonly resolve: () => void } | undefined;

  constructor(model: T, handle: number, name: string) {
    this.model = model;
    this.handle = handle;
    this.name = name;
  }

  /** References held now. A fresh model has none, and the database holds none. */
  get refCount(): number {
    return this.#references.size;
  }

  /** The references held now, oldest first. */
  get references(): readonly ModelReference<T>[] {
    return [...this.#references];
  }

  /** Takes a reference. */
  hold(holder: Holder | undefined): ModelReference<T> {
    const reference = new ModelReference<T>(this, holder, (done) => {
      this.#references.delete(done);
      if (this.#references.size === 0) this.#drained?.resolve();
    });
    this.#references.add(reference);
    return reference;
  }

  /** Resolves when the count is 0. */
  drained(): Promise<void> {
    if (this.#references.size === 0) return Promise.resolve();
    if (this.#drained === undefined) {
      let resolve = (): void => {};
      const promise = new Promise<void>((done) => resolve = done);
      this.#drained = { promise, resolve };
    }
    return this.#drained.promise;
  }
}

/** A held reference: while it lives its model is not freed. Release it, or use `using`. */
export class ModelReference<T> implements Disposable {
  readonly #resident: Resident<T>;
  readonly #release: (reference: ModelReference<T>) => void;
  #held = true;
  /** Who took it, when that is known. */
  readonly holder: Holder | undefined;

  constructor(resident: Resident<T>, holder: Holder | undefined, release: (reference: ModelReference<T>) => void) {
    this.#resident = resident;
    this.holder = holder;
    this.#release = release;
  }

  /** The model. */
  get model(): T {
    return this.#resident.model;
  }

  /** The model's handle. */
  get handle(): number {
    return this.#resident.handle;
  }

  /** Whether the reference is still held. */
  get held(): boolean {
    return this.#held;
  }

  /** Drops the reference. A second call does nothing. */
  release(): void {
    if (!this.#held) return;
    this.#held = false;
    this.#release(this);
  }

  /** Same as {@linkcode release}. */
  [Symbol.dispose](): void {
    this.release();
  }
}

/**
 * The models of one physical core, by handle (context notes, 4).
 *
 * Every method is one uninterrupted step, which is what the original's lock
 * gives; waiting for references happens outside of it.
 */
export class ModelDatabase<T> {
  /** The core. */
  readonly place: CorePlace;
  /** By the 32 bits of the handle that a model record stores. */
  readonly #table = new Map<number, Resident<T>>();

  constructor(place: CorePlace) {
    this.place = place;
  }

  /** Models in the database. */
  get count(): number {
    return this.#table.size;
  }

  /** The models, by rising handle. */
  get models(): readonly Resident<T>[] {
    return [...this.#table.values()].sort((a, b) => a.handle - b.handle);
  }

  /** Whether a handle is known. */
  has(handle: number): boolean {
    return this.#table.has(storedHandle(handle));
  }

  /** Links a model. @throws {NrtError} NRT_INVALID_HANDLE when its handle is there already */
  add(resident: Resident<T>): void {
    const key = storedHandle(resident.handle);
    if (!this.#table.has(key)) return void this.#table.set(key, resident);
    throw new NrtError(
      NrtStatus.INVALID_HANDLE,
      `Cannot add the model: Model: ${resident.handle} already in the DB of nd${this.place.device}:nc${this.place.core}`,
      { hint: "Every load mints a handle of its own; do not add a model twice.", details: { handle: resident.handle, ...this.place } },
    );
  }

  /** Takes a reference to a model. @throws {NrtError} NRT_FAILURE for a handle the core does not know */
  retain(handle: number, holder: Holder | undefined = currentHolder()): ModelReference<T> {
    const resident = this.#table.get(storedHandle(handle));
    if (resident === undefined) throw this.#unknown("use", `Unknown model ${handle}`, handle);
    return resident.hold(holder);
  }

  /**
   * Unlinks a model, waits until nobody holds it, and returns it. From the
   * unlinking on the handle is unknown; those who hold the model keep it.
   *
   * @throws {NrtError} NRT_FAILURE for an unknown handle, or when the caller holds a reference itself: nothing changed
   */
  async remove(handle: number, options: DrainOptions = {}): Promise<Resident<T>> {
    const resident = this.unlink(handle, options.holder ?? currentHolder());
    await drain(resident, this.place, options.timeoutMs);
    return resident;
  }

  /** The first half of {@linkcode remove}: unlinks at once and does not wait. @throws {NrtError} NRT_FAILURE for a handle the core does not have, and for a holder that would wait for itself */
  unlink(handle: number, holder: Holder | undefined = currentHolder()): Resident<T> {
    const resident = this.#table.get(storedHandle(handle));
    if (resident === undefined) throw this.#unknown("remove", `Unknown model: ${handle}`, handle);
    this.checkOwnReference(resident, holder);
    this.#table.delete(storedHandle(resident.handle));
    return resident;
  }

  /** Unlinks every model and returns them, whoever holds them: the core is being torn down. */
  clear(): readonly Resident<T>[] {
    const { models } = this;
    this.#table.clear();
    return models;
  }

  /** Refuses to wait for oneself. @throws {NrtError} NRT_FAILURE when `holder` holds a reference to the model: waiting for it would never end */
  checkOwnReference(resident: Resident<T>, holder: Holder | undefined = currentHolder()): void {
    const own = resident.references.find((reference) => encloses(reference.holder, holder));
    if (own === undefined) return;
    throw new NrtError(
      NrtStatus.FAILURE,
      `Cannot unload model ${resident.handle} (${resident.name}) on nd${this.place.device}:nc${this.place.core}: ` +
        `${own.holder?.label ?? "the caller"} holds a reference to it itself, so that waiting for the last one would never end (${resident.refCount} held)`,
      { hint: "Release the reference first, or unload after the execution has ended.", details: { handle: resident.handle, held: resident.refCount } },
    );
  }

  #unknown(verb: string, text: string, handle: number): NrtError {
    return new NrtError(NrtStatus.FAILURE, `Cannot ${verb} a model on nd${this.place.device}:nc${this.place.core}: ${text}`, {
      hint: this.count === 0 ? "No model is loaded on this core." : `Loaded here: ${this.models.map((model) => model.handle).join(", ")}.`,
      details: { handle, ...this.place },
    });
  }
}

/**
 * Waits until nobody holds an unlinked model.
 *
 * @throws {NrtError} NRT_TIMEOUT after `timeoutMs`; the model stays unlinked, and waiting can be taken up again
 */
export async function drain<T>(resident: Resident<T>, place: CorePlace, timeoutMs?: number): Promise<void> {
  if (timeoutMs === undefined) return resident.drained();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const expired = new Promise<"expired">((resolve) => {
    timer = setTimeout(() => resolve("expired"), timeoutMs);
  });
  const outcome = await Promise.race([resident.drained(), expired]);
  clearTimeout(timer);
  if (outcome !== "expired") return;
  const holders = resident.references.map((reference) => reference.holder?.label ?? "an unnamed holder").join(", ");
  throw new NrtError(
    NrtStatus.TIMEOUT,
    `Cannot finish unloading model ${resident.handle} (${resident.name}) on nd${place.device}:nc${place.core}: ${resident.refCount} references are still held after ${timeoutMs} ms (${holders})`,
    { hint: "Release them and call unload again; the model takes no new executions meanwhile.", details: { handle: resident.handle, held: resident.refCount } },
  );
}
