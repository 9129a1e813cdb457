/** Inputs and outputs: tensors given by name, and everything that depends on their addresses. */
import type { UsageName } from "../abi/runtime_dmem.ts";
import { MrType } from "../abi/runtime_kbin.ts";
import { printable } from "../neff/error.ts";
import { PlanError } from "../plan/error.ts";
import { clearPlace, copyPlace, setPlace, sizeOf, typeOf } from "./mem_ref_table.ts";
import { planName } from "../plan/plan.ts";
import { refreshPointers } from "./pointers.ts";
import { remoteSource, type StagePart } from "./stage_part.ts";

/** Memory an input or output can be bound to. A `Dmem` is one. */
export interface BoundTensor {
  /** Device address of byte 0. */
  readonly address: number;
  /** Bytes; at least the variable's size. */
  readonly size: number;
  /** HBM it lies in. */
  readonly hbm?: number;
  readonly usage?: UsageName;
  /** Address of the `dmem_t` record. */
  readonly record?: number;
}

/** One input or output of a model: the same tensor for every subgraph that names it. */
export interface IoVariable {
  readonly name: string;
  /** Largest size any subgraph asks for. */
  readonly size: number;
  /** Where it occurs. */
  readonly places: readonly { readonly part: StagePart; readonly varId: number }[];
}

/** The inputs and outputs of a model by name, in the order of subgraphs and ids. */
export function ioVariables(parts: readonly StagePart[]): Map<string, IoVariable> {
  const found = new Map<string, { name: string; size: number; places: { part: StagePart; varId: number }[] }>();
  for (const part of parts) {
    for (const varId of part.later.io) {
      const name = planName(part.plan, varId);
      const entry = found.get(name) ?? { name, size: 0, places: [] };
      entry.size = Math.max(entry.size, sizeOf(part.table, varId));
      entry.places.push({ part, varId });
      found.set(name, entry);
    }
  }
  return found;
}

/** Tensors by variable name; null takes a tensor away. */
export type Bindings = Iterable<readonly [string, BoundTensor | null]>;

/** What inputs and outputs are bound to now. */
export class Binder {
  readonly #parts: readonly StagePart[];
  readonly #variables: ReadonlyMap<string, IoVariable>;
  readonly #bound = new Map<string, BoundTensor>();
  /** Remote variables that stand for an input or output. */
  readonly #remotes: readonly { readonly part: StagePart; readonly varId: number }[];

  constructor(parts: readonly StagePart[]) {
    this.#parts = parts;
    this.#variables = ioVariables(parts);
    this.#remotes = parts.flatMap((part) =>
      part.later.remotes
        .filter((varId) => {
          const source = remoteSource(parts, part, varId);
          const type = typeOf(source.part.table, source.varId);
          return type === MrType.INPUT || type === MrType.OUTPUT;
        })
        .map((varId) => ({ part, varId }))
    );
  }

  /** Inputs and outputs by name. */
  get variables(): ReadonlyMap<string, IoVariable> {
    return this.#variables;
  }

  /** The tensor of a name, or undefined. */
  bound(name: string): BoundTensor | undefined {
    return this.#bound.get(name);
  }

  /** Ids of a subgraph whose address can change: inputs, outputs and remotes that stand for one. */
  changing(part: StagePart): number[] {
    return [...part.later.io, ...this.#remotes.filter((remote) => remote.part === part).map((remote) => remote.varId)];
  }

  /** The tensor behind a variable that changes, or undefined. */
  tensorOf(part: StagePart, varId: number): BoundTensor | undefined {
    const source = remoteSource(this.#parts, part, varId);
    return this.#bound.get(planName(source.part.plan, source.varId));
  }

  /**
   * Binds tensors. All names and sizes are checked before anything changes.
   *
   * @throws {PlanError} for a name that is no input or output, or a tensor that is too small
   */
  bind(bindings: Bindings): void {
    const checked = [...bindings].map(([name, tensor]) => ({ variable: this.#check(name, tensor), tensor }));
    for (const { variable, tensor } of checked) {
      if (tensor === null) this.#bound.delete(variable.name);
      else this.#bound.set(variable.name, tensor);
      for (const { part, varId } of variable.places) {
        if (tensor === null) clearPlace(part.table, varId);
        else setPlace(part.table, varId, { address: tensor.address, dmem: tensor.record ?? 0 });
      }
    }
    this.#follow();
  }

  /** Brings remotes, pointers and tables up to date. */
  #follow(): void {
    for (const { part, varId } of this.#remotes) {
      const source = remoteSource(this.#parts, part, varId);
      copyPlace(source.part.table, source.varId, part.table, varId);
    }
    for (const part of this.#parts) if (part.pointers !== null) refreshPointers(part.pointers, part.table);
  }

  #check(name: string, tensor: BoundTensor | null): IoVariable {
    const variable = this.#variables.get(name);
    if (variable === undefined) {
      throw new PlanError(`Cannot bind "${printable(name)}": the model has no input or output of this name`, {
        details: { name },
        hint: `It has ${[...this.#variables.keys()].map((known) => printable(known)).join(", ") || "none"}.`,
      });
    }
    if (tensor !== null && tensor.size < variable.size) {
      throw new PlanError(`Cannot bind "${printable(name)}": the tensor has ${tensor.size} bytes, the variable ${variable.size}`, {
        details: { name, tensorBytes: tensor.size, variableBytes: variable.size },
      });
    }
    return variable;
  }
}
