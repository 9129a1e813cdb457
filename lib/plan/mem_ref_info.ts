import { printable } from "../neff/error.ts";
import { PlanError } from "./error.ts";
import type { MemRef, RecordSink } from "./mem_ref.ts";

/**
 * The symbol table of one definition (`mem_ref_info`): name → id, id → name and
 * id → object, always describing the same set. It owns the objects.
 */
export class MemRefInfo {
  readonly #idsByName = new Map<string, number>();
  // Ids are dense in every valid definition, and arrays hold them in a fifth of a map's memory.
  readonly #namesById: (string | undefined)[] = [];
  readonly #objectsById: (MemRef | undefined)[] = [];

  /** Number of variables. */
  get size(): number {
    return this.#idsByName.size;
  }

  /** The id of a name, or undefined. */
  idOf(name: string): number | undefined {
    return this.#idsByName.get(name);
  }

  /** The name of an id, or undefined. */
  nameOf(varId: number): string | undefined {
    return this.#namesById[varId];
  }

  /** The object of an id, or undefined. */
  objectOf(varId: number): MemRef | undefined {
    return this.#objectsById[varId];
  }

  /**
   * Whether exactly this pair is there already.
   *
   * @throws {PlanError} when the name has another id, or the id another name
   */
  has(name: string, varId: number): boolean {
    const id = this.#idsByName.get(name);
    if (id === varId) return true;
    const other = this.#namesById[varId];
    if (id === undefined && other === undefined) return false;
    const clash = id === undefined
      ? `id ${varId} already belongs to "${printable(other as string)}"`
      : `the name already has id ${id}`;
    throw new PlanError(`Cannot add variable "${printable(name)}" with id ${varId}: ${clash}`, { details: { name, varId, otherId: id, otherName: other } });
  }

  /**
   * Adds an object and takes it over. The same name with the same id again is
   * ignored quietly, and the object closed.
   *
   * @returns whether it was added
   * @throws {PlanError} when the name has another id, or the id another name; the table is unchanged
   */
  add(name: string, object: MemRef): boolean {
    if (this.has(name, object.varId)) {
      if (this.#objectsById[object.varId] !== object) object.close();
      return false;
    }
    this.#idsByName.set(name, object.varId);
    this.#namesById[object.varId] = name;
    this.#objectsById[object.varId] = object;
    return true;
  }

  /**
   * Dumps every object through its class, in the order of ids.
   *
   * @param next moves the sink to a variable's record and sets its name
   * @throws {PlanError} when the ids are not 0 … n − 1, or an object does not fit its record
   */
  dumpAll(sink: RecordSink, next: (varId: number, name: string) => void): void {
    for (let varId = 0; varId < this.size; varId++) {
      const object = this.#objectsById[varId];
      if (object === undefined) {
        const largest = [...this.#idsByName.values()].reduce((most, id) => Math.max(most, id), 0);
        throw new PlanError(
          `Cannot lower the definition: Unexpected var_ids set, id ${varId} is missing among ${this.size} variables (largest id ${largest})`,
          { details: { missing: varId, variables: this.size, largest } },
        );
      }
      next(varId, this.#namesById[varId] as string);
      object.dump(sink);
    }
  }

  /** Closes every object once and empties the table. */
  close(): void {
    // Not by position: one wild id would make that a walk over billions.
    for (const varId of this.#idsByName.values()) this.#objectsById[varId]?.close();
    this.#idsByName.clear();
    this.#namesById.length = 0;
    this.#objectsById.length = 0;
  }

  /** @see close */
  [Symbol.dispose](): void {
    this.close();
  }
}
