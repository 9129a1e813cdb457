/** A staged model: variables with addresses, until it is unloaded. */
import { ClosedError } from "../../ffi/error.ts";
import { NrtStatus, type UsageName } from "../abi/runtime_dmem.ts";
import { MrType } from "../abi/runtime_kbin.ts";
import type { Allocator, DestroyReport, Dmem, DmemList } from "../dmem/types.ts";
import { PlanError, ResolveError } from "../plan/error.ts";
import { type Plan, planName } from "../plan/plan.ts";
import { pageAdvice, type PageClaim } from "../plan/scratchpad.ts";
import { Binder, type Bindings, type BoundTensor } from "./binding.ts";
import { addressAt, clearPlace, type MemRefTable, sizeOf, typeOf } from "./mem_ref_table.ts";
import { type PointerTable, readPointerTable } from "./pointers.ts";
import { coverIndex, type CoverIndex, type Ranges, resolveAddress, resolveAddresses, unknownId } from "./resolve.ts";
import type { Arenas, StagedConstant, StagePart } from "./stage_part.ts";

/**
 * Gives back everything subgraphs hold, also when staging stopped half-way:
 * tensors, then page references, then the models' own memory. Remote variables
 * own nothing, so that everything is freed once. Addresses stop resolving first.
 *
 * @returns what was allocated for the models but not on their lists: still allocated
 */
export function releaseParts(parts: readonly StagePart[], tensors: DmemList): DestroyReport {
  for (const { table } of parts) for (let varId = 0; varId < table.count; varId++) clearPlace(table, varId);
  tensors.free();
  // The newest pages first: contiguous pages must go in the reverse order of their allocation.
  for (const { arenas } of parts.toReversed()) {
    arenas?.local.release();
    arenas?.shared.release();
  }
  const reports = parts.map(({ tracker, allocator }) => {
    tracker.free();
    return allocator.destroy();
  });
  return {
    liveCount: reports.reduce((sum, { liveCount }) => sum + liveCount, 0),
    liveBytes: reports.reduce((sum, { liveBytes }) => sum + liveBytes, 0),
  };
}

/** Bytes of device memory, as the ledger counts them. */
export interface MemoryUse {
  readonly totalBytes: number;
  /** By HBM, index = HBM. */
  readonly byHbm: readonly { readonly hbm: number; readonly bytes: number; readonly byUsage: Readonly<Partial<Record<UsageName, number>>> }[];
  readonly byUsage: Readonly<Partial<Record<UsageName, number>>>;
  /** Pages of the cores' scratchpads the model counts on. They are part of the sums, and other models may share them. */
  readonly scratchpadPages: number;
  /** Their bytes. */
  readonly scratchpadBytes: number;
}

/** Sums up what a model holds: its own memory, its tensors, and the scratchpad pages it counts on. */
export function modelMemory(parts: readonly StagePart[], tensors: DmemList): MemoryUse {
  const pages = new Set<Dmem>();
  for (const { arenas } of parts) for (const reservation of arenas === null ? [] : [arenas.local, arenas.shared]) reservation.memories.forEach((page) => pages.add(page));
  const all = [...parts.flatMap(({ allocator }) => [...allocator.live]), ...tensors, ...pages].filter(({ location }) => location === "device");
  const hbms = [...new Set(all.map(({ hbm }) => hbm))].sort((a, b) => a - b);
  return {
    totalBytes: sum(all),
    byHbm: hbms.map((hbm) => {
      const here = all.filter((memory) => memory.hbm === hbm);
      return { hbm, bytes: sum(here), byUsage: byUsage(here) };
    }),
    byUsage: byUsage(all),
    scratchpadPages: pages.size,
    scratchpadBytes: sum([...pages]),
  };
}

function sum(memories: readonly Dmem[]): number {
  return memories.reduce((total, { allocatedSize }) => total + allocatedSize, 0);
}

function byUsage(memories: readonly Dmem[]): Partial<Record<UsageName, number>> {
  const sums: Partial<Record<UsageName, number>> = {};
  for (const { usage, allocatedSize } of memories) sums[usage] = (sums[usage] ?? 0) + allocatedSize;
  return sums;
}

/** One variable of a staged subgraph. */
export interface StagedVariable {
  readonly name: string;
  readonly varId: number;
  /** Type word of the definition. */
  readonly type: string;
  /** Bytes as staged: a state buffer's whole window, a remote's source's, a table's 8 per entry. */
  readonly sizeBytes: number;
  /** Device address of byte 0; null while unbound, and for lists and tables. */
  readonly address: number | null;
  /** HBM it lies in; null on chip and without an address. */
  readonly hbm: number | null;
  /** What its memory is for; null on chip and without an address. */
  readonly usage: UsageName | null;
}

/** A variable that covers an address. */
export interface Cover {
  readonly subgraph: string;
  readonly name: string;
  readonly varId: number;
  readonly type: string;
  /** Offset of the address in the variable. */
  readonly offset: number;
}

/** Type words by record type; both kinds of tables are called as real definitions call them. */
export const TYPE_WORDS: readonly string[] = [
  "invalid", "state-buffer", "buffer-staged", "file", "tmp-buf", "input", "output", "pointer", "virtual", "list", "dge-table", "remote",
];

function wordOf({ words, table }: StagePart, varId: number): string {
  return words?.[varId]?.type ?? TYPE_WORDS[typeOf(table, varId)] as string;
}

/** One subgraph of a staged model. */
export class StagedSubgraph {
  /** Name of the subgraph. */
  readonly name: string;
  /** Core it is staged on. */
  readonly core: number;
  /** Its plan. */
  readonly plan: Plan;
  readonly #part: StagePart;
  readonly #binder: Binder;
  readonly #alive: () => void;
  #ids: Map<string, number> | undefined;
  #fixed: CoverIndex | undefined;
  #changing: CoverIndex | undefined;

  constructor(part: StagePart, binder: Binder, alive: () => void) {
    this.name = part.plan.name;
    this.core = part.place.core;
    this.plan = part.plan;
    this.#part = part;
    this.#binder = binder;
    this.#alive = alive;
  }

  /** The `mem_ref_t` records. */
  get table(): MemRefTable {
    return this.#part.table;
  }

  /** The subgraph's MODEL allocator: what else a loader allocates for it goes here too. */
  get allocator(): Allocator {
    return this.#part.allocator;
  }

  /** What `unload` frees; memory added here goes with the model. */
  get tracker(): DmemList {
    return this.#part.tracker;
  }

  /** The part of its core's scratchpad the subgraph counts on. */
  get scratchpad(): PageClaim<Dmem> {
    return (this.#part.arenas as Arenas).local;
  }

  /** The largest virtual variable that had to be private, 0 for none. */
  get largestPrivateBytes(): number {
    return this.#part.largestPrivate;
  }

  /** Id of a name. @throws {ResolveError} when there is none */
  idOf(name: string): number {
    this.#ids ??= new Map(Array.from({ length: this.plan.count }, (_, varId) => [planName(this.plan, varId), varId]));
    const varId = this.#ids.get(name);
    if (varId !== undefined) return varId;
    throw new ResolveError("unknown", `Cannot resolve "${name}": ${this.name} has no variable of this name`, { details: { name, subgraph: this.name } });
  }

  /** All variables, in the order of ids. */
  *variables(): Generator<StagedVariable> {
    for (let varId = 0; varId < this.plan.count; varId++) yield this.variable(varId);
  }

  /** One variable. @param which its name or id @throws {ResolveError} for a name or id that does not exist */
  variable(which: string | number): StagedVariable {
    this.#alive();
    const varId = typeof which === "string" ? this.idOf(which) : which;
    if (!(Number.isInteger(varId) && varId >= 0 && varId < this.plan.count)) throw unknownId(this.plan, varId);
    const { table } = this.#part;
    const type = typeOf(table, varId);
    const isTable = type === MrType.LIST || type === MrType.PTR_TABLE;
    const address = isTable ? -1 : addressAt(table, varId);
    const memory = address < 0 ? undefined : this.#memoryOf(type, varId);
    return {
      name: planName(this.plan, varId),
      varId,
      type: wordOf(this.#part, varId),
      sizeBytes: sizeOf(table, varId),
      address: address < 0 ? null : address,
      hbm: memory?.hbm ?? null,
      usage: memory?.usage ?? null,
    };
  }

  #memoryOf(type: number, varId: number): Dmem | BoundTensor | undefined {
    const own = this.#part.memories[varId];
    if (own !== undefined) return own;
    if (type === MrType.PTR) return this.#part.pointers?.memory;
    if (type === MrType.INPUT || type === MrType.OUTPUT || type === MrType.REMOTE) return this.#binder.tensorOf(this.#part, varId);
    return undefined;
  }

  /**
   * The device address of byte `offset` of a variable, for an access of `size` bytes.
   *
   * @param which name, or id (no look-up)
   * @throws {ResolveError} NRT_INVALID
   * @throws {ClosedError} after the model was unloaded
   */
  resolve(which: string | number, offset = 0, size = 0): number {
    const { table } = this.#part;
    if (typeof which === "number") {
      // The table refuses everything after an unload, so that the check costs nothing before it.
      try {
        return resolveAddress(table, which, offset, size);
      } catch (error) {
        this.#alive();
        throw error;
      }
    }
    this.#alive();
    return resolveAddress(table, this.idOf(which), offset, size);
  }

  /**
   * Resolves many references into `into`, without garbage.
   *
   * @param ids variable ids
   * @param ranges offset and access size per id
   * @throws {ResolveError} NRT_INVALID, with the position in `details.index`
   * @throws {ClosedError} after the model was unloaded
   */
  resolveMany(ids: Uint32Array, ranges: Ranges, into: Float64Array): void {
    this.#alive();
    resolveAddresses(this.#part.table, ids, ranges, into);
  }

  /** The pointer tables, in the order of ids. */
  tables(): PointerTable[] {
    this.#alive();
    const { plan, table, pointers, later } = this.#part;
    return later.tables.filter((varId) => typeOf(table, varId) === MrType.PTR_TABLE)
      .map((varId) => readPointerTable(plan, table, pointers, varId));
  }

  /** Every variable that covers a device address; overlapping ones all. */
  whatCovers(address: number): Cover[] {
    this.#alive();
    const changing = this.#binder.changing(this.#part);
    this.#fixed ??= coverIndex(this.#part, { without: changing });
    this.#changing ??= coverIndex(this.#part, { only: changing });
    const found = [...this.#fixed.covering(address), ...this.#changing.covering(address)];
    return found.sort((a, b) => a.varId - b.varId).map(({ varId, offset }) => ({
      subgraph: this.name,
      name: planName(this.plan, varId),
      varId,
      type: wordOf(this.#part, varId),
      offset,
    }));
  }

  /** Forgets what depends on bindings. */
  rebound(): void {
    this.#changing = undefined;
  }
}

/** What a staged model is made of. */
export interface StagedParts {
  readonly parts: readonly StagePart[];
  readonly binder: Binder;
  /** Tensors made for the model's inputs and outputs; freed with it. */
  readonly tensors: DmemList;
}

/** A model in device memory. */
export class StagedModel {
  readonly subgraphs: readonly StagedSubgraph[];
  readonly #staged: StagedParts;
  #closed = false;

  constructor(staged: StagedParts) {
    this.#staged = staged;
    const alive = () => {
      if (this.#closed) throw new ClosedError("Cannot use the model: it was unloaded");
    };
    this.subgraphs = staged.parts.map((part) => new StagedSubgraph(part, staged.binder, alive));
  }

  /** Whether `unload()` was called. */
  get closed(): boolean {
    return this.#closed;
  }

  /** Inputs and outputs by name, with the bytes a tensor must have. */
  get io(): { readonly name: string; readonly size: number }[] {
    return [...this.#staged.binder.variables.values()].map(({ name, size }) => ({ name, size }));
  }

  /** The constants: where each lies and where its bytes come from. */
  get constants(): readonly StagedConstant[] {
    return this.#staged.parts.flatMap(({ constants }) => constants);
  }

  /**
   * Binds tensors to inputs and outputs by name; null takes one away. Addresses,
   * pointer tables and reverse look-ups change at once. All or nothing.
   *
   * @throws {PlanError} for an unknown name or a tensor that is too small
   */
  bind(bindings: Bindings | Readonly<Record<string, BoundTensor | null>>): void {
    this.#check();
    this.#staged.binder.bind(Symbol.iterator in bindings ? bindings as Bindings : Object.entries(bindings));
    for (const subgraph of this.subgraphs) subgraph.rebound();
  }

  /** The tensor an input or output is bound to. */
  bound(name: string): BoundTensor | undefined {
    return this.#staged.binder.bound(name);
  }

  /** Every variable of any subgraph that covers a device address. */
  whatCovers(address: number): Cover[] {
    this.#check();
    return this.subgraphs.flatMap((subgraph) => subgraph.whatCovers(address));
  }

  /** What the model costs: bytes by HBM and usage. */
  memory(): MemoryUse {
    this.#check();
    return modelMemory(this.#staged.parts, this.#staged.tensors);
  }

  /** The runtime's advice when virtual variables had to be private, else null. */
  advice(): ReturnType<typeof pageAdvice> | null {
    const largest = this.subgraphs.reduce((most, subgraph) => Math.max(most, subgraph.largestPrivateBytes), 0);
    return largest === 0 ? null : pageAdvice(largest);
  }

  /**
   * Frees everything the model holds. A second call does nothing.
   *
   * @throws {PlanError} when memory of its allocators was not on its list: it stays allocated
   */
  unload(): void {
    if (this.#closed) return;
    this.#closed = true;
    const { liveCount, liveBytes } = releaseParts(this.#staged.parts, this.#staged.tensors);
    if (liveCount === 0) return;
    throw new PlanError(`Cannot unload the model completely: ${liveCount} allocations (${liveBytes} bytes) are not on its list`, {
      status: NrtStatus.FAILURE,
      details: { liveCount, liveBytes },
    });
  }

  /** Same as `unload()`. */
  close(): void {
    this.unload();
  }

  /** Same as `unload()`. */
  [Symbol.dispose](): void {
    this.unload();
  }

  #check(): void {
    if (this.#closed) throw new ClosedError("Cannot use the model: it was unloaded");
  }
}
