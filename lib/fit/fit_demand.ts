/** What a set of models and tensors asks of a machine, allocation by allocation, in the order of a real load. */
import type { UsageName } from "../abi/runtime_dmem.ts";
import { SCRATCHPAD_PAGE_ALIGNMENT } from "../abi/runtime_tensor.ts";
import type { Neff } from "../neff/model.ts";
import { planNeff } from "../plan/build.ts";
import { arenaPlaces, type FootprintItem, type FootprintKind, loadItems, PAGE_USAGE, planItems, TENSOR_USAGE, tensorItems } from "../plan/footprint.ts";
import type { Machine } from "../abi/architecture.ts";
import type { Plan } from "../plan/plan.ts";
import type { ScratchpadMode } from "../plan/scratchpad.ts";
import { MEASURED } from "../sharding/measured.ts";
import { type ExtraMemory, humanSize } from "../text/size.ts";

/** What a figure of an answer is about. */
export type FitLineName =
  | "code" | "constants" | "tensors" | "scratchpad" | "private scratchpad" | "temporary" | "pointers" | "rings"
  | "runtime" | "microcode" | "profile" | "extra" | "used by others" | "driver";

/** How far a figure can be trusted: computed from the file, stated by a document, or an estimate. */
export type FitAccuracy = "exact" | "documented" | "estimated";

/** One allocation that is wanted. */
export interface Want {
  readonly line: FitLineName;
  readonly accuracy: FitAccuracy;
  readonly source: string;
  /** What it is, for messages: a tensor's, a member's or a variable's name. */
  readonly name: string;
  readonly bytes: number;
  readonly alignment: number;
  /** Physical core of the machine it is charged to. */
  readonly core: number;
  /** Usage in the ledger when the loader makes it; null for what it does not. */
  readonly usage: UsageName | null;
  /** A page of a contiguous scratchpad. */
  readonly contiguous: boolean;
  /** Model it belongs to, or null. */
  readonly model: string | null;
}

/** Key of a model's tensor: tensors of one key on one logical core are one; null for one of its own. */
export type ShareKey = (model: number, tensor: string) => string | null;

/** What is to be placed. */
export interface Demand {
  readonly models: readonly PlannedModel[];
  /** Every logical core that holds something; extra memory goes to all of them. */
  readonly logicalCores: readonly number[];
  /** Logical cores of each model. */
  readonly placements: readonly (readonly number[])[];
  /** Which tensors are one for several models. */
  readonly shareKey: ShareKey;
  /** Whether inputs that may be shared are counted for each model because nobody said. */
  readonly sharingAssumed: boolean;
  readonly lnc: number;
  readonly mode: ScratchpadMode;
  /** Whether nobody said how the scratchpad is set up: its figures rest on an assumption then. */
  readonly modeAssumed: boolean;
  /** Pages a core's contiguous arena stops at, where what lies below is taken. Default none. */
  readonly ceilings?: ReadonlyMap<number, number> | undefined;
  /** Per logical core. */
  readonly extra: readonly ExtraMemory[];
  readonly profile: boolean;
  /** What is there without any model: nothing, the block this runtime allocates, or also what others report (runtime, microcode). */
  readonly runtime: "none" | "own" | "reported";
}

/** A model with its plans and what its subgraphs' code and rings take. */
export interface PlannedModel {
  readonly name: string;
  readonly neff: Neff;
  readonly plans: readonly Plan[];
  readonly loads: readonly (readonly FootprintItem[])[];
}

/** Plans a model for {@linkcode Demand}. */
export function plannedModel(neff: Neff): PlannedModel {
  return { name: neff.header.name, neff, plans: planNeff(neff), loads: neff.subgraphs.map((subgraph) => loadItems(neff, subgraph)) };
}

const MIB = 2 ** 20;
const POOL_STDIO_BYTES = 0x440;
const FIXED_PER_MODEL = Math.ceil(MEASURED.program.value);
const FIXED_PER_LOGICAL_CORE = Math.ceil(MEASURED.process.value);
const MICROCODE_PER_CORE = 96 * MIB;
const PROFILE_PER_LOGICAL_CORE = 2048 * MIB;

interface LineFacts {
  readonly line: FitLineName;
  readonly accuracy: FitAccuracy;
  readonly source: string;
}

const LINES: Readonly<Record<FootprintKind, LineFacts>> = {
  constant: { line: "constants", accuracy: "exact", source: "payload sizes of the definition" },
  temporary: { line: "temporary", accuracy: "exact", source: "sizes of the definition" },
  private: { line: "private scratchpad", accuracy: "exact", source: "virtual variables that cross a scratchpad page" },
  pointers: { line: "pointers", accuracy: "exact", source: "8 bytes per pointer and table entry, as this loader places them" },
  io: { line: "tensors", accuracy: "exact", source: "inputs and outputs of the definition" },
  instructions: { line: "code", accuracy: "exact", source: "instruction files of the archive" },
  tables: { line: "code", accuracy: "exact", source: "table files of the archive" },
  rings: { line: "rings", accuracy: "estimated", source: "16 bytes per descriptor, rows + 16 descriptors per side of a transfer" },
};
const PAGES: LineFacts = { line: "scratchpad", accuracy: "exact", source: "high-water mark of the definition and the page rule" };
const TENSORS: LineFacts = { line: "tensors", accuracy: "exact", source: "inputs and outputs of the definition, once per logical core" };
const TENSORS_APART: LineFacts = { line: "tensors", accuracy: "estimated", source: "inputs and outputs of the definition, once per logical core and model: at most, nobody said which inputs are shared" };
const STDIO: LineFacts = { line: "runtime", accuracy: "documented", source: "pool stdio, 1088 bytes per core" };
const FIXED: LineFacts = { line: "runtime", accuracy: "estimated", source: `measured (${MEASURED.process.source}): ${humanSize(MEASURED.process.value)} per logical core, ${humanSize(MEASURED.program.value)} per model` };
const MICROCODE: LineFacts = { line: "microcode", accuracy: "documented", source: "vendor's device memory page: 96 MB per physical core on first use" };
const PROFILE: LineFacts = { line: "profile", accuracy: "estimated", source: "vendor's device memory page: profile buffers can take about 2 GB" };
const EXTRA: LineFacts = { line: "extra", accuracy: "exact", source: "given" };

/** Everything the demand asks for, in the order in which a process would allocate it. */
export function wantsOf(demand: Demand): Want[] {
  const wants: Want[] = [];
  for (const logical of demand.logicalCores) wants.push(...fixedWants(demand, logical));
  for (const logical of demand.logicalCores) {
    const arenas: ScratchpadPages = { perCore: new Map(), lastOwner: undefined };
    const shared = sharedSizes(demand, logical);
    demand.models.forEach((model, index) => {
      if (demand.placements[index]!.includes(logical)) wants.push(...modelWants(model, { demand, logical, arenas, index, shared }));
    });
  }
  for (const logical of demand.logicalCores) {
    for (const { name, bytes, count } of demand.extra) {
      for (let piece = 0; piece < count; piece++) wants.push(want(EXTRA, { name, bytes, core: logical * demand.lnc, usage: TENSOR_USAGE }));
    }
  }
  return wants;
}

/** Largest size of each shared tensor of a logical core. */
function sharedSizes({ models, placements, shareKey }: Demand, logical: number): Map<string, number> {
  const sizes = new Map<string, number>();
  models.forEach(({ plans }, model) => {
    if (!placements[model]!.includes(logical)) return;
    for (const { name, size } of tensorItems(plans)) {
      const key = shareKey(model, name);
      if (key !== null) sizes.set(key, Math.max(sizes.get(key) ?? 0, size));
    }
  });
  return sizes;
}

function want(facts: LineFacts, about: { name: string; bytes: number; core: number; alignment?: number | undefined; usage?: UsageName | null; contiguous?: boolean; model?: string }): Want {
  const { name, bytes, core, alignment = 0, usage = null, contiguous = false, model = null } = about;
  return { ...facts, name, bytes, core, alignment, usage, contiguous, model };
}

/** What is there before any model: known to the byte for this runtime's own block, by report for the rest. */
function fixedWants({ lnc, models, placements, runtime, profile }: Demand, logical: number): Want[] {
  const first = logical * lnc;
  if (runtime === "none") return [];
  const cores = Array.from({ length: lnc }, (_, index) => first + index);
  const wants = cores.map((core) => want(STDIO, { name: "pool stdio", bytes: POOL_STDIO_BYTES, core, usage: "POOL_STDIO" }));
  if (profile) wants.push(want(PROFILE, { name: "profile buffers", bytes: PROFILE_PER_LOGICAL_CORE, core: first }));
  if (runtime === "own") return wants;
  wants.push(...cores.map((core) => want(MICROCODE, { name: "microcode", bytes: MICROCODE_PER_CORE, core })));
  wants.push(want(FIXED, { name: "runtime of the logical core", bytes: FIXED_PER_LOGICAL_CORE, core: first }));
  for (const { name } of models.filter((_, model) => placements[model]!.includes(logical))) {
    wants.push(want(FIXED, { name: `runtime of ${name}`, bytes: FIXED_PER_MODEL, core: first, model: name }));
  }
  return wants;
}

/** Pages the cores of a logical core hold so far, and which core got the last contiguous one. */
interface ScratchpadPages {
  readonly perCore: Map<number, number>;
  lastOwner: number | undefined;
}

interface ModelContext {
  readonly demand: Demand;
  readonly logical: number;
  readonly arenas: ScratchpadPages;
  /** Index of the model. */
  readonly index: number;
  /** Sizes of shared tensors that have not been placed yet, by key. */
  readonly shared: Map<string, number>;
}

function modelWants(model: PlannedModel, { demand, logical, arenas, index, shared: sharedLeft }: ModelContext): Want[] {
  const { mode, lnc, modeAssumed, shareKey, ceilings } = demand;
  const core = (subgraph: number) => logical * lnc + subgraph;
  const places = arenaPlaces(mode, model.plans);
  const wants: Want[] = [];
  const pages = places.map(({ localPages }, subgraph) => growArena(wants, { mode, modeAssumed, arenas, core: core(subgraph), needed: localPages, ceiling: ceilings?.get(core(subgraph)) ?? Infinity, model: model.name }));
  const shared = pages[0] ?? 0;
  model.plans.forEach((plan, subgraph) => {
    const place = { localOffset: places[subgraph]?.localOffset ?? 0, localPages: pages[subgraph] ?? 0, sharedPages: shared };
    for (const item of planItems(plan, { mode, place })) wants.push(itemWant(item, core(subgraph), { model: model.name, modeAssumed }));
  });
  model.loads.forEach((items, subgraph) => wants.push(...items.map((item) => itemWant(item, core(subgraph), { model: model.name, modeAssumed }))));
  for (const { name, size } of tensorItems(model.plans)) {
    const key = shareKey(index, name);
    const bytes = key === null ? size : sharedLeft.get(key);
    if (bytes === undefined) continue;
    if (key !== null) sharedLeft.delete(key);
    wants.push(want(demand.sharingAssumed ? TENSORS_APART : TENSORS, { name, bytes, core: core(0), usage: TENSOR_USAGE, model: model.name }));
  }
  return wants;
}

function itemWant(item: FootprintItem, core: number, { model, modeAssumed }: { model: string; modeAssumed: boolean }): Want {
  const facts = LINES[item.kind];
  return want(modeAssumed && item.kind === "private" ? assumed(facts) : facts, { name: item.hint, bytes: item.size, alignment: item.alignment, core, usage: item.usage, model });
}

/**
 * The pages a core's arena gains for a model, and how many the model can count
 * on. A contiguous arena cannot grow once another core's page lies below it.
 */
function growArena(wants: Want[], about: { mode: ScratchpadMode; modeAssumed: boolean; arenas: ScratchpadPages; core: number; needed: number; ceiling: number; model: string }): number {
  const { mode, modeAssumed, arenas, core, needed, ceiling, model } = about;
  const facts = modeAssumed ? assumed(PAGES) : PAGES;
  let pages = arenas.perCore.get(core) ?? 0;
  while (pages < Math.min(needed, ceiling) && (!mode.contiguous || pages === 0 || arenas.lastOwner === core)) {
    wants.push(want(facts, {
      name: "scratchpad page", bytes: mode.pageBytes, core, usage: PAGE_USAGE, contiguous: mode.contiguous, model,
      alignment: mode.contiguous ? 0 : SCRATCHPAD_PAGE_ALIGNMENT,
    }));
    pages++;
    arenas.lastOwner = core;
  }
  arenas.perCore.set(core, pages);
  return Math.min(pages, needed);
}

/** A figure of the scratchpad where nobody said how it is set up. */
function assumed(facts: LineFacts): LineFacts {
  return { ...facts, accuracy: "documented", source: `${facts.source}, with the scratchpad as current runtimes set it up by themselves` };
}

/** HBM of a physical core, counted over the machine. */
export function hbmOf(machine: Machine, core: number): number {
  return Math.floor(core / machine.coresPerHbm);
}
