import { geometries, productOfTarget } from "../abi/architecture.ts";
import { TpbArch } from "../abi/runtime_context.ts";
import { NrtStatus } from "../abi/runtime_dmem.ts";
import type { Dmem } from "../dmem/types.ts";
import { printable } from "../neff/error.ts";
import type { Neff, Subgraph, TensorInfo } from "../neff/model.ts";
import type { PassingNeff } from "../neff/open_neff.ts";
import type { NeffSource } from "../neff/source.ts";
import { planNeff } from "../plan/build.ts";
import { type LoadItem, loadItems } from "../plan/footprint.ts";
import { stage } from "../stage/stage.ts";
import type { StagedModel } from "../stage/staged_model.ts";
import { checkCarveout, copyPassing, copyPayloads, type PayloadCopy, releaseModel } from "./model_release.ts";
import type { LogicalPlace, ModelPart, NeuronCore } from "./core.ts";
import { NrtError, type RuntimeNote } from "./errors.ts";
import { Model } from "./model.ts";
import { Resident } from "./model_database.ts";
import type { Tensor } from "./tensor.ts";
import { stageUcode, type UcodeLibrary, type UcodeOfModel } from "./ucode.ts";

/** Steps of a load, in their order (context notes, 5.1). */
export type LoadStep = "staged" | "moved" | "carveout" | "tables" | "instructions" | "rings" | "ucode" | "feature-maps" | "added";

/** Options of a load. */
export interface LoadOptions {
  /** Name in listings and reports; default the last part of the path in the file. */
  readonly name?: string | undefined;
  /**
   * Where payloads that are not in memory come from: what `openNeff` gave, which loads in
   * one pass, or the file of a NEFF read with `retain: "definitions"`, which is passed over again.
   */
  readonly source?: NeffSource | PassingNeff | undefined;
  /** Called now and then while payloads are streamed from `source`: stored bytes read so far, and their total. */
  readonly onProgress?: ((doneBytes: number, totalBytes: number) => void) | undefined;
  /** Libraries for the general purpose cores besides those in the file (sunda only). */
  readonly libraries?: readonly UcodeLibrary[] | undefined;
  /**
   * Inputs and outputs: `tensors` (default) allocates one per name, binds it, and
   * frees it with the model or when you bind one of your own; `bind` leaves them
   * to you; `plan` places them in memory of the model, as its plan says.
   */
  readonly io?: "tensors" | "bind" | "plan" | undefined;
  /** Told each line the runtime would log. */
  readonly log?: ((line: string) => void) | undefined;
  /** Told each step when it is done, with the subgraph's position. */
  readonly trace?: ((step: LoadStep, subgraph: number) => void) | undefined;
}

/**
 * Loads a model onto a logical core: subgraph i on its i-th physical core. All
 * of it or, when anything fails, nothing.
 *
 * @throws {NrtError} NRT_INVALID for another architecture or an event accelerator in the wrong place; NRT_FAILURE for too many libraries
 * @throws {PlanError} NRT_INVALID for a model that does not fit the logical core or refers to what is not there
 * @throws {MemoryError} NRT_RESOURCE when device memory runs out
 */
export async function loadModel(logicalCore: LogicalPlace, neff: Neff, options: LoadOptions = {}): Promise<Model> {
  const { context } = logicalCore;
  const name = options.name ?? nameOf(neff);
  context.gate.pass(`load ${name}`);
  const target = checkTarget(neff, name, logicalCore);
  const before = logicalCore.cores.map((core) => core.usedBytes);
  const handles = neff.subgraphs.map(() => context.handles.next());
  const staged = stage(planNeff(neff), { target, members: neff.members, subgraphs: neff.subgraphs }, logicalCore.cores.map((core) => core.place), {
    io: options.io === "plan" ? "plan" : "none",
    payloads: "later",
    label: { modelId: handles[0], name },
    log: options.log,
  });
  const drafts: PartDraft[] = [];
  const tensors = new Map<string, Tensor>();
  const guard = context.guard(() => {
    for (const tensor of tensors.values()) tensor.close();
    releaseModel(staged, drafts);
  });
  const keep = () => context.gate.pass(`load ${name}`);
  const passing = passingOf(options.source);
  try {
    // Nothing is allocated while constants pass by, so their memory lies where it always does.
    const constants = passing === undefined ? constantCopies(neff, staged) : await copyPassing(passing, constantCopies(neff, staged), keep);
    neff.subgraphs.forEach((subgraph, index) => {
      const draft = openDraft(staged, { name, handle: handles[index]!, index, core: logicalCore.cores[index]!, before: before[index]! });
      drafts.push(draft);
      options.trace?.("staged", index);
      allocatePart(draft, neff, subgraph, options);
    });
    if ((options.io ?? "tensors") === "tensors") for (const info of staged.io) tensors.set(info.name, logicalCore.tensor(info));
    const copies = [...constants, ...drafts.flatMap((draft) => draft.copies)];
    await copyPayloads(neff, copies, { source: passing?.source ?? options.source as NeffSource | undefined, onProgress: options.onProgress, keep });
    keep();
    drafts.forEach((draft, index) => stageLibraries(draft, neff.subgraphs[index]!, neff, options));
    const model = publish(logicalCore, { name, neff, staged, drafts, tensors, options });
    guard.done();
    return model;
  } catch (error) {
    guard.undo();
    throw error;
  }
}

/** A part while it is built; what it holds so far can be released at any time. */
interface PartDraft extends ModelPart {
  readonly instructions: Dmem[];
  readonly tables: Dmem[];
  readonly rings: Dmem[];
  ucode: UcodeOfModel | undefined;
  resetEvtAccel: boolean;
  programFp8Config: boolean;
  memoryUsage: { readonly before: number; readonly after: number };
  /** What has to be copied into its memory. */
  readonly copies: PayloadCopy[];
  readonly notes: RuntimeNote[];
}

/** The last part of the build path the compiler left in the file; `model` without one. */
function nameOf(neff: Neff): string {
  const name = neff.header.name.split("/").at(-1) ?? "";
  return name === "" ? "model" : printable(name);
}

/** Which device a model for a target may be loaded on; the target staging is told. */
function checkTarget(neff: Neff, name: string, { owner, context }: LogicalPlace): Neff["target"] {
  const { target, product, architecture } = owner.deviceMemory.device.geometry;
  if (neff.target === "*" || neff.target === target) return neff.target;
  const older = geometries[productOfTarget[neff.target]].architecture < architecture;
  if (older && context.switches.allowLegacyNeff) return "*";
  throw new NrtError(NrtStatus.INVALID, `Cannot load ${name}: built for ${neff.target}, device is ${target} (${product})`, {
    hint: older
      ? `Compile the model for ${product}, use a ${productOfTarget[neff.target]} device, or set NEURON_RT_ALLOW_LEGACY_NEFF=1.`
      : `Use a ${productOfTarget[neff.target]} device, or compile the model for ${product}.`,
    details: { target: neff.target, device: target, product },
  });
}

/** What a draft begins with. */
interface DraftFacts {
  readonly name: string;
  readonly handle: number;
  readonly index: number;
  readonly core: NeuronCore;
  /** Bytes charged to the core before the load. */
  readonly before: number;
}

function openDraft(staged: StagedModel, about: DraftFacts): PartDraft {
  return {
    ...about, staged: staged.subgraphs[about.index]!,
    instructions: [], tables: [], rings: [], ucode: undefined, resetEvtAccel: false, programFp8Config: false,
    memoryUsage: { before: about.before, after: about.before }, copies: [], notes: [],
  };
}

/** Checks the carveout and allocates tables, instruction blocks and rings. */
function allocatePart(draft: PartDraft, neff: Neff, subgraph: Subgraph, { trace }: LoadOptions): void {
  const { index } = draft;
  trace?.("moved", index);
  const { evtAccel, notes } = checkCarveout(subgraph, draft.core.deviceMemory.device.architecture);
  draft.resetEvtAccel = evtAccel;
  draft.programFp8Config = evtAccel;
  draft.notes.push(...notes);
  trace?.("carveout", index);
  const items = loadItems(neff, subgraph);
  for (const kind of ["tables", "instructions", "rings"] as const) {
    for (const item of items) if (item.kind === kind) draft[kind].push(allocateItem(draft, item));
    trace?.(kind, index);
  }
}

function allocateItem(draft: PartDraft, item: LoadItem): Dmem {
  const memory = draft.staged.allocator.alloc({ size: item.size, usage: item.usage, alignment: item.alignment, hint: item.hint });
  if (item.member !== undefined) draft.copies.push({ member: item.member, offset: 0, size: item.memberBytes, memory });
  return memory;
}

/** Libraries are staged on sunda only; the core's shared set outlives a failed load, so this comes last. */
function stageLibraries(draft: PartDraft, subgraph: Subgraph, neff: Neff, options: LoadOptions): void {
  if (draft.core.deviceMemory.device.architecture === TpbArch.SUNDA) {
    const own = subgraph.ucodeLibraries.flatMap((name) => libraryOf(name, subgraph, neff, draft.notes));
    draft.ucode = stageUcode([...own, ...options.libraries ?? []], { cache: draft.core.ucode, core: draft.core.global, model: draft.staged.allocator });
  }
  options.trace?.("ucode", draft.index);
}

function libraryOf(name: string, subgraph: Subgraph, neff: Neff, notes: RuntimeNote[]): UcodeLibrary[] {
  const member = subgraph.directory === "" ? name : `${subgraph.directory}/${name}`;
  const bytes = neff.members.get(member)?.bytes;
  if (bytes !== undefined && bytes !== null) return [{ name, bytes }];
  notes.push({ code: "library-missing", message: `library ${member} is not in the archive and is not staged` });
  return [];
}

/** What `openNeff` gave, or undefined when a source is something else. */
function passingOf(source: LoadOptions["source"]): PassingNeff | undefined {
  return typeof source === "object" && "rest" in source ? source : undefined;
}

function constantCopies(neff: Neff, staged: StagedModel): PayloadCopy[] {
  return staged.constants.flatMap(({ payload, memory, subgraph, varId }) => {
    if (payload === null) return [];
    const variable = neff.subgraphs[subgraph]?.byId[varId];
    return [{ ...payload, memory, ...(variable?.type === "file" ? { variable } : {}) }];
  });
}

interface Publication {
  readonly name: string;
  readonly neff: Neff;
  readonly staged: StagedModel;
  readonly drafts: readonly PartDraft[];
  readonly tensors: Map<string, Tensor>;
  readonly options: LoadOptions;
}

/** The last step: the cores learn of the model. */
function publish(logicalCore: LogicalPlace, { name, neff, staged, drafts, tensors, options }: Publication): Model {
  for (const draft of drafts) draft.memoryUsage = { before: draft.memoryUsage.before, after: draft.core.usedBytes };
  const byName = (infos: readonly TensorInfo[]) => new Map(infos.map((info) => [info.name, info] as const));
  const residents = drafts.map((draft) => new Resident<ModelPart>(draft, draft.handle, name));
  const model = new Model({
    name, neff, logicalCore, staged, parts: drafts, residents, tensors,
    inputs: byName(neff.inputs), outputs: byName(neff.outputs),
    notes: drafts.flatMap((draft) => draft.notes),
  });
  model.bind(Object.fromEntries(tensors));
  drafts.forEach((draft) => options.trace?.("feature-maps", draft.index));
  addToCores(drafts, residents);
  logicalCore.context.add(model);
  for (const { handle, core, memoryUsage, index } of drafts) {
    options.trace?.("added", index);
    options.log?.(`Added model: ${handle} on (nd${core.device}:nc${core.core}) mem_usage before: ${memoryUsage.before} after: ${memoryUsage.after}`);
  }
  return model;
}

/** Into the databases of all cores, or of none. */
function addToCores(drafts: readonly PartDraft[], residents: readonly Resident<ModelPart>[]): void {
  const added: PartDraft[] = [];
  try {
    drafts.forEach((draft, index) => {
      draft.core.models.add(residents[index]!);
      added.push(draft);
    });
  } catch (error) {
    for (const draft of added) draft.core.models.unlink(draft.handle);
    throw error;
  }
}
