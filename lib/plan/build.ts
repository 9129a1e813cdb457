/** From definitions to plans: builds the objects of every subgraph, links remote variables, lowers each subgraph. */
import { BackingBuffer, MrType } from "../abi/runtime_kbin.ts";
import { constantPayload } from "../neff/assemble.ts";
import { printable } from "../neff/error.ts";
import type { Neff, RemoteVariable, Subgraph, Variable, VirtualVariable } from "../neff/model.ts";
import { arenaOf } from "../neff/variable.ts";
import { PlanError } from "./error.ts";
import {
  BufferRef, type DebugMetadata, IoRef, ListRef, type MemRefRecord, type Payload, PointerRef, PtrTableRef, type RecordSink, RemoteRef, StateBufferRef,
  TmpBufRef, VirtualTmpBufRef,
} from "./mem_ref.ts";
import { type Plan, PlanWriter } from "./plan.ts";

/**
 * The symbol table of one definition (`mem_ref_info`): name → id, id → name and
 * id → object, always describing the same set. It owns the objects.
 */
export class MemRefCollection {
  readonly #idsByName = new Map<string, number>();
  // Ids are dense in every valid definition, and arrays hold them in a fifth of a map's memory.
  readonly #namesById: (string | undefined)[] = [];
  readonly #objectsById: (MemRefRecord | undefined)[] = [];

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
  objectOf(varId: number): MemRefRecord | undefined {
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
  add(name: string, object: MemRefRecord): boolean {
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

/** What a definition is built from besides its variables. */
export interface BuildContext {
  /** The variable of an id, for pointers and tables. */
  variable(varId: number): Variable | undefined;
  /** Where a constant's bytes are. */
  payload(variable: Extract<Variable, { type: "file" }>): Payload;
}

/** The variables of one subgraph as objects. */
export interface BuiltSubgraph {
  readonly name: string;
  readonly info: MemRefCollection;
  readonly inputs: number;
  readonly outputs: number;
  /** High-water marks of the two scratchpad areas. */
  readonly scratchpad: ScratchpadSizes;
}

/** The two sizes of a plan's header. */
export interface ScratchpadSizes {
  readonly localBytes: number;
  readonly sharedBytes: number;
}

/**
 * Plans every subgraph of a model. No device is needed.
 *
 * @throws {PlanError} for a definition that cannot be lowered
 * @throws {NeffError} for a constant whose payload does not fit its variable
 *
 * @example
 * const neff = await readNeff("model.neff");
 * for (const plan of planNeff(neff)) console.log(plan.name, plan.count); // → sg00 5
 */
export function planNeff(neff: Neff): Plan[] {
  const built: BuiltSubgraph[] = [];
  try {
    for (const subgraph of neff.subgraphs) built.push(buildSubgraph(subgraph, contextOf(neff, subgraph)));
    linkRemotes(neff.subgraphs, built);
    return built.map(lower);
  } finally {
    for (const { info } of built) info.close();
  }
}

/** Builds one object per variable of a subgraph. The caller closes `info`. */
export function buildSubgraph(subgraph: Subgraph, context: BuildContext): BuiltSubgraph {
  const info = new MemRefCollection();
  let inputs = 0;
  let outputs = 0;
  for (const variable of subgraph.variables.values()) {
    info.add(variable.name, memRefOf(variable, context));
    if (variable.type === "input") inputs++;
    else if (variable.type === "output") outputs++;
  }
  return { name: subgraph.name, info, inputs, outputs, scratchpad: scratchpadSizes(subgraph.variables.values()) };
}

/** Writes the plan of a built subgraph. @throws {PlanError} when an object does not fit its record */
export function lower(built: BuiltSubgraph): Plan {
  const writer = new PlanWriter({
    name: built.name,
    count: built.info.size,
    localScratchpadBytes: built.scratchpad.localBytes,
    sharedScratchpadBytes: built.scratchpad.sharedBytes,
  });
  let current = "";
  try {
    built.info.dumpAll(writer, (varId, name) => {
      current = name;
      writer.next(varId, name);
    });
  } catch (error) {
    if (!(error instanceof PlanError)) throw error;
    const { status, details, hint } = error;
    throw new PlanError(`${error.message} (variable "${printable(current)}" of ${built.name})`, { status, details, hint, cause: error });
  }
  return writer.finish();
}

/** High-water marks of the virtual variables: the largest offset + size of each area, not the sum. */
export function scratchpadSizes(variables: Iterable<Variable>): ScratchpadSizes {
  let localBytes = 0;
  let sharedBytes = 0;
  for (const variable of variables) {
    if (variable.type !== "virtual") continue;
    const end = variable.backingOffset + variable.size;
    if (arenaOf(variable.backingBuffer) === "shared") sharedBytes = Math.max(sharedBytes, end);
    else localBytes = Math.max(localBytes, end);
  }
  return { localBytes, sharedBytes };
}

/** The record type of each type word. `dge-table`: nothing establishes its number, 10 fits its meaning. */
export const RECORD_TYPES: Readonly<Record<Variable["type"], number>> = {
  "state-buffer": MrType.SB,
  file: MrType.BUFFER,
  "tmp-buf": MrType.TMP_BUF,
  input: MrType.INPUT,
  output: MrType.OUTPUT,
  pointer: MrType.PTR,
  virtual: MrType.VIRTUAL_TMP_BUF,
  list: MrType.LIST,
  "dge-table": MrType.PTR_TABLE,
  "ptr-table": MrType.PTR_TABLE,
  remote: MrType.REMOTE,
};

const BACKINGS: Readonly<Record<VirtualVariable["backingBuffer"], number>> = {
  local: BackingBuffer.LOCAL,
  shared: BackingBuffer.SHARED,
  sharded: BackingBuffer.SHARDED,
  main: BackingBuffer.MAIN,
};

/** The object of a variable, of the class its type asks for. */
export function memRefOf(variable: Variable, context: BuildContext): MemRefRecord {
  switch (variable.type) {
    case "state-buffer":
      return new StateBufferRef(variable);
    case "input":
    case "output":
      return new IoRef(variable, RECORD_TYPES[variable.type]);
    case "file":
      return new BufferRef(variable, { payload: context.payload(variable), debug: debugOf(variable) });
    case "tmp-buf":
      return new TmpBufRef(variable, debugOf(variable));
    case "virtual":
      return new VirtualTmpBufRef(variable, { offset: variable.backingOffset, backing: BACKINGS[variable.backingBuffer], debug: debugOf(variable) });
    case "pointer":
      return new PointerRef(variable, isIo(addressed(variable, variable.referencedVarId, context)));
    case "list":
      for (const id of variable.list) existing(variable, id, context);
      return new ListRef(variable);
    case "dge-table":
    case "ptr-table":
      for (const id of variable.list) addressed(variable, id, context);
      return new PtrTableRef(variable);
    case "remote":
      return new RemoteRef(variable);
  }
}

function debugOf(variable: { readonly prefix: string | null; readonly pipe: number }): DebugMetadata | null {
  return variable.prefix === null ? null : { prefix: variable.prefix, pipe: variable.pipe };
}

function isIo(variable: Variable): boolean {
  return variable.type === "input" || variable.type === "output";
}

function existing(from: Variable, varId: number, context: BuildContext): Variable {
  const variable = context.variable(varId);
  if (variable !== undefined) return variable;
  throw new PlanError(`Cannot build variable "${printable(from.name)}": it names id ${varId}, which no variable has`, {
    details: { variable: from.name, missing: varId },
  });
}

/** The variable of an id whose address is wanted: one that can have an address. */
function addressed(from: Variable, varId: number, context: BuildContext): Variable {
  const variable = existing(from, varId, context);
  if (RECORD_TYPES[variable.type] !== MrType.LIST && RECORD_TYPES[variable.type] !== MrType.PTR_TABLE) return variable;
  throw new PlanError(
    `Cannot build variable "${printable(from.name)}": it points to "${printable(variable.name)}", a ${variable.type}, which has no single address`,
    { details: { variable: from.name, target: variable.name, targetType: variable.type } },
  );
}

function contextOf(neff: Neff, subgraph: Subgraph): BuildContext {
  return {
    variable: (varId) => subgraph.byId[varId],
    payload: (variable) => {
      const { offset, size } = constantPayload(neff, subgraph, variable);
      return { member: variable.member, offset, size };
    },
  };
}

/** Tells every remote variable which variable of which subgraph it means. */
function linkRemotes(subgraphs: readonly Subgraph[], built: readonly BuiltSubgraph[]): void {
  built.forEach(({ info, name }, index) => {
    for (const variable of subgraphs[index]?.variables.values() ?? []) {
      if (variable.type !== "remote") continue;
      const varId = built[variable.subgraph]?.info.idOf(variable.base);
      if (varId === undefined) throw unlinked(variable, name, built.length);
      (info.objectOf(variable.varId) as RemoteRef).link({ subgraph: variable.subgraph, varId });
    }
  });
}

function unlinked(variable: RemoteVariable, from: string, subgraphs: number): PlanError {
  const why = variable.subgraph >= subgraphs
    ? `the model has ${subgraphs} subgraph${subgraphs === 1 ? "" : "s"}`
    : `subgraph ${variable.subgraph} has no variable "${printable(variable.base)}"`;
  return new PlanError(
    `Cannot plan ${from}: Failed to resolve remote variables for subgraphs 0 to ${subgraphs - 1}: ` +
      `"${printable(variable.name)}" refers to subgraph ${variable.subgraph}, and ${why}`,
    { details: { variable: variable.name, subgraph: variable.subgraph, base: variable.base } },
  );
}
