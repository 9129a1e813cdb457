/** Staging: gives every variable of a model its device address. All or nothing. */
import { productOfTarget } from "../abi/architecture.ts";
import type { Allocator, AllocatorLabel, Dmem, DmemList } from "../dmem/types.ts";
import { hex } from "../../ffi/u64.ts";
import type { Neff } from "../neff/model.ts";
import { Binder } from "./binding.ts";
import { type StageCore, type StagePart, stageRemotes, type StageRules, stageVariables } from "./stage_part.ts";
import { PlanError } from "../plan/error.ts";
import type { Payload } from "../plan/mem_ref.ts";
import { addressAt, type MemRefTable, memRefTable } from "./mem_ref_table.ts";
import { TENSOR_USAGE } from "../plan/footprint.ts";
import { type Plan, planName } from "../plan/plan.ts";
import { makePointerArea, refreshPointers } from "./pointers.ts";
import { releaseParts, StagedModel } from "./staged_model.ts";
import { arenaLayout, type PageClaim } from "../plan/scratchpad.ts";

/** What staging takes from a model besides its plans. */
export type StageSource = Pick<Neff, "target" | "members"> & { readonly subgraphs?: readonly { readonly byId: readonly { readonly type: string }[] }[] };

/** Options of {@linkcode stage}. */
export interface StageOptions {
  /**
   * Inputs and outputs: `tensors` (default) makes one tensor per name on the first
   * core's GLOBAL allocator and binds it; `plan` places them by the plan, per
   * subgraph, on the MODEL allocator; `none` leaves them unbound.
   */
  readonly io?: "tensors" | "plan" | "none" | undefined;
  /** `copy` (default) copies constants in; `later` leaves that to the caller, see `StagedModel.constants`. */
  readonly payloads?: "copy" | "later" | undefined;
  /** Whose the memory is, for reports. */
  readonly label?: AllocatorLabel | undefined;
  /** Told every line the runtime would log. */
  readonly log?: ((line: string) => void) | undefined;
  /** Told what happens, in order. */
  readonly trace?: ((event: StageEvent) => void) | undefined;
}

/** Something that happened while staging. */
export type StageEvent =
  | { readonly kind: "allocator" | "set" | "scratchpad"; readonly subgraph: number }
  | { readonly kind: "variable" | "remote"; readonly subgraph: number; readonly varId: number }
  /** Staging failed; the tables are as they were at that moment, nothing is rolled back yet. */
  | { readonly kind: "failed"; readonly error: unknown; readonly tables: readonly MemRefTable[] };

/**
 * Stages the plans of a model: subgraph i on `cores[i]`.
 *
 * Order: MODEL allocators and sets, scratchpad pages, the variables of every
 * subgraph, remotes, pointers, tensors. Whatever fails, nothing stays behind.
 *
 * @param plans from `planNeff`, or read back from a file
 * @param source the model, for its target and constants
 * @throws {PlanError} too few cores, wrong device, broken references
 * @throws {MemoryError} when device memory runs out
 *
 * @example
 * const neff = await readNeff("model.neff");
 * using machine = createFake({ product: productOfTarget.cayman });
 * using device = openDevice({ kernel: machine.kernel() });
 * using memory = openDeviceMemory(device);
 * using model = stage(planNeff(neff), neff, stageCores(memory, 0, neff.subgraphs.length));
 * const [subgraph] = model.subgraphs;
 * console.log(subgraph!.resolve("input0", 64) - subgraph!.resolve("input0")); // → 64
 */
export function stage(plans: readonly Plan[], source: StageSource, cores: readonly StageCore[], options: StageOptions = {}): StagedModel {
  checkCores(plans, source, cores);
  const parts: StagePart[] = [];
  const tensors = (cores[0] as StageCore).memory.createList();
  try {
    plans.forEach((plan, index) => parts.push(openPart(plan, cores[index] as StageCore, { index, options, source })));
    reserveArenas(parts, options);
    const rules = rulesFrom(source, parts, options);
    parts.forEach((part, index) => stageVariables(part, index, rules));
    stageRemotes(parts);
    parts.forEach((part, subgraph) => part.later.remotes.forEach((varId) => options.trace?.({ kind: "remote", subgraph, varId })));
    for (const part of parts) stagePointers(part);
    const binder = new Binder(parts);
    if ((options.io ?? "tensors") === "tensors") binder.bind(makeTensors(binder, parts[0] as StagePart, tensors));
    return new StagedModel({ parts, binder, tensors });
  } catch (error) {
    options.trace?.({ kind: "failed", error, tables: parts.map(({ table }) => table) });
    releaseParts(parts, tensors);
    throw error;
  }
}

function checkCores(plans: readonly Plan[], source: StageSource, cores: readonly StageCore[]): void {
  if (plans.length === 0) throw new PlanError("Cannot stage a model without subgraphs");
  if (cores.length < plans.length) {
    throw new PlanError(`Cannot stage a model of ${plans.length} subgraphs: Insufficient number of pncs, required ${plans.length}, available ${cores.length}`, {
      details: { required: plans.length, available: cores.length },
      hint: "Use a logical core of that many physical cores (NEURON_LOGICAL_NC_CONFIG).",
    });
  }
  for (const { memory, core } of cores.slice(0, plans.length)) {
    const { target, product, coresPerDevice } = memory.device.geometry;
    if (source.target !== "*" && source.target !== target) {
      throw new PlanError(`Cannot stage the model: built for ${source.target}, device is ${target} (${product})`, {
        details: { target: source.target, device: target },
        hint: `Use a ${productOfTarget[source.target]} device, or compile the model for ${product}.`,
      });
    }
    if (core >= coresPerDevice) throw new PlanError(`Cannot stage on core ${core}: the device has ${coresPerDevice}`, { details: { core, coresPerDevice } });
  }
}

interface PartContext {
  readonly index: number;
  readonly source: StageSource;
  readonly options: StageOptions;
}

function openPart(plan: Plan, place: StageCore, { index, source, options }: PartContext): StagePart {
  const allocator: Allocator = place.memory.createAllocator(place.core, "MODEL", options.label);
  try {
    options.trace?.({ kind: "allocator", subgraph: index });
    const tracker = place.memory.createList();
    const table = memRefTable(plan);
    options.trace?.({ kind: "set", subgraph: index });
    return {
      plan,
      place,
      allocator,
      tracker,
      table,
      words: source.subgraphs?.[index]?.byId,
      memories: [],
      later: { io: [], pointers: [], tables: [], remotes: [] },
      constants: [],
      arenas: null,
      pointers: null,
      largestPrivate: 0,
    };
  } catch (error) {
    allocator.destroy();
    throw error;
  }
}

/** Reserves the pages of all cores before any variable is placed. */
function reserveArenas(parts: readonly StagePart[], options: StageOptions): void {
  const first = parts[0] as StagePart;
  const layout = arenaLayout(
    first.place.scratchpad.mode,
    parts.map(({ plan }) => ({ localBytes: plan.localScratchpadBytes, sharedBytes: plan.sharedScratchpadBytes })),
  );
  let shared: PageClaim<Dmem> | undefined;
  parts.forEach((part, index) => {
    const { localOffset, totalBytes } = layout.cores[index] as { localOffset: number; totalBytes: number };
    const local = part.place.scratchpad.reserve(totalBytes);
    shared ??= local;
    part.arenas = { local, localOffset, shared };
    options.trace?.({ kind: "scratchpad", subgraph: index });
  });
}

function rulesFrom(source: StageSource, parts: readonly StagePart[], options: StageOptions): StageRules {
  const { log, trace } = options;
  return {
    placeIo: options.io === "plan",
    payload: options.payloads === "later" ? null : (payload) => payloadBytes(source, payload),
    staged: log === undefined && trace === undefined ? null : (part, varId, copied) => {
      log?.(stagedLine(part, varId, copied));
      trace?.({ kind: "variable", subgraph: parts.indexOf(part), varId });
    },
  };
}

/** The runtime's line for a staged variable. */
function stagedLine({ plan, table, memories }: StagePart, varId: number, copied: boolean): string {
  const memory = memories[varId];
  return `Staged memref {${planName(plan, varId)}} id {${varId}} to {${hex(addressAt(table, varId))}}. ` +
    `mem.addr {${hex(memory?.pa ?? 0)}}, HBM: ${memory?.hbm ?? 0} (${copied ? "alloc+copy" : "alloc only"})`;
}

function payloadBytes(source: StageSource, payload: Payload): Uint8Array {
  const bytes = source.members.get(payload.member)?.bytes;
  if (bytes === undefined || bytes === null || payload.offset + payload.size > bytes.length) {
    throw new PlanError(`Cannot copy the constant ${payload.member} in: ${bytes === null || bytes === undefined ? "its bytes were not kept" : "it is too short"}`, {
      details: { ...payload },
      hint: 'Read the model with its payloads, or stage with payloads: "later" and copy them yourself.',
    });
  }
  return bytes.subarray(payload.offset, payload.offset + payload.size);
}

function stagePointers(part: StagePart): void {
  const { plan, table, later } = part;
  part.pointers = makePointerArea({ plan, table, pointers: later.pointers, tables: later.tables }, part);
  if (part.pointers !== null) refreshPointers(part.pointers, table);
}

/** One tensor per input and output name, on the first core, which owns the logical core's tensors. */
function makeTensors(binder: Binder, { place }: StagePart, list: DmemList): [string, Dmem][] {
  const { global } = place.memory.core(place.core);
  return [...binder.variables.values()].map(({ name, size }) => [name, global.alloc({ size, usage: TENSOR_USAGE, hint: name, list })]);
}
