import { ClosedError, NeuronError } from "../../ffi/error.ts";
import { NrtStatus } from "../abi/runtime_dmem.ts";
import type { Neff, TensorInfo } from "../neff/model.ts";
import type { StagedModel, StagedSubgraph } from "../stage/staged_model.ts";
import { NrtError, type RuntimeNote } from "./errors.ts";
import { execute, type ExecutionWork, holdModel, type ModelHold } from "./execution.ts";
import type { LogicalPlace, ModelPart } from "./core.ts";
import { memoryRows, type MemoryRow } from "./memory_usage.ts";
import { drain, type DrainOptions, type Resident } from "./model_database.ts";
import { releaseModel } from "./model_release.ts";
import { Tensor } from "./tensor.ts";
import { TensorSet } from "./tensor_set.ts";

/** What a model is made of, once everything of it is in place. */
export interface ModelParts {
  /** Its name. */
  readonly name: string;
  /** What it was read from. */
  readonly neff: Neff;
  /** Where it is loaded. */
  readonly logicalCore: LogicalPlace;
  /** Its staged variables. */
  readonly staged: StagedModel;
  /** What it holds, per subgraph. */
  readonly parts: readonly ModelPart[];
  /** Its entries in the cores' databases, per subgraph. */
  readonly residents: readonly Resident<ModelPart>[];
  /** Tensors made for its inputs and outputs; they go with the model. */
  readonly tensors: Map<string, Tensor>;
  /** Inputs by name, in the order of the host graph. */
  readonly inputs: ReadonlyMap<string, TensorInfo>;
  /** Outputs by name. */
  readonly outputs: ReadonlyMap<string, TensorInfo>;
  /** What was odd about the load. */
  readonly notes: readonly RuntimeNote[];
}

/** How to find a variable of a model. */
export interface ResolveOptions {
  /** Bytes that will be accessed, default 0. */
  readonly size?: number | undefined;
  /** Subgraph by name or position; default the first that has the variable. */
  readonly subgraph?: string | number | undefined;
}

/**
 * A loaded model. It owns its constants, instructions, rings and tables; its
 * inputs and outputs are tensors of yours, bound by name.
 *
 * @example
 * const neff = await readNeff("model.neff");
 * using neuron = openNeuron({ fake: neff.target });
 * const model = await neuron.logicalCore(0).load(neff, { name: "encoder" });
 * const address = model.resolve("input0", 4096);
 * console.log(address - model.resolve("input0")); // → 4096
 * console.log([...model.inputs.keys()].join(), [...model.outputs.keys()].join()); // → input0 output0
 * await model.unload();
 * console.log(model.bytes); // → 0
 */
export class Model implements Disposable, AsyncDisposable {
  readonly #parts: ModelParts;
  readonly #bound = new Map<string, { readonly tensor: Tensor; readonly forget: () => void }>();
  #state: "loaded" | "unloading" | "unloaded" = "loaded";

  constructor(parts: ModelParts) {
    this.#parts = parts;
  }

  /** Its name. */
  get name(): string {
    return this.#parts.name;
  }

  /** What it was read from. */
  get neff(): Neff {
    return this.#parts.neff;
  }

  /** The logical core it is loaded on. */
  get logicalCore(): LogicalPlace {
    return this.#parts.logicalCore;
  }

  /** Its handle on the first core. */
  get handle(): number {
    return this.parts[0]!.handle;
  }

  /** Its handles, one per subgraph and core. */
  get handles(): readonly number[] {
    return this.parts.map((part) => part.handle);
  }

  /** What it holds, per subgraph. */
  get parts(): readonly ModelPart[] {
    return this.#parts.parts;
  }

  /** Inputs by name: name, size, shape, element type. */
  get inputs(): ReadonlyMap<string, TensorInfo> {
    return this.#parts.inputs;
  }

  /** Outputs by name. */
  get outputs(): ReadonlyMap<string, TensorInfo> {
    return this.#parts.outputs;
  }

  /** What was odd about the load. */
  get notes(): readonly RuntimeNote[] {
    return this.#parts.notes;
  }

  /** `loaded`; `unloading` while executions still hold it; `unloaded`. */
  get state(): "loaded" | "unloading" | "unloaded" {
    return this.#state;
  }

  /** References held by executions, over its cores. */
  get refCount(): number {
    return this.#parts.residents.reduce((sum, resident) => sum + resident.refCount, 0);
  }

  /** A staged subgraph. @param which its name or position @throws {NrtError} NRT_INVALID when there is none */
  subgraph(which: string | number): StagedSubgraph {
    this.#usable("look into");
    const { subgraphs } = this.#parts.staged;
    const found = subgraphs.find((subgraph, index) => subgraph.name === which || index === which);
    if (found !== undefined) return found;
    throw new NrtError(NrtStatus.INVALID, `Cannot find subgraph ${which} of ${this.name}: it has ${subgraphs.map((subgraph) => subgraph.name).join(", ")}`);
  }

  /**
   * The device address of byte `offset` of a variable.
   *
   * @throws {ResolveError} NRT_INVALID: no such variable, range outside, not bound
   */
  resolve(name: string, offset = 0, options: ResolveOptions = {}): number {
    return this.#holding(name, options.subgraph).resolve(name, offset, options.size ?? 0);
  }

  /**
   * What it costs: bytes of its own by core, HBM and usage, the tensors made for
   * its inputs and outputs included. Scratchpad pages belong to the core, which
   * shares them among its models; they are not in it.
   */
  memory(): readonly MemoryRow[] {
    this.#usable("measure");
    const tensors = [...this.#parts.tensors.values()].flatMap((tensor) => tensor.storage?.memory ?? []);
    return this.parts.flatMap((part, index) => memoryRows(part.core.core, [...part.staged.allocator.live, ...(index === 0 ? tensors : [])]));
  }

  /** Bytes of its own: the sum of {@linkcode memory}; 0 once it is unloaded. */
  get bytes(): number {
    return this.#state === "unloaded" ? 0 : this.memory().reduce((sum, row) => sum + row.bytes, 0);
  }

  /** What to set when variables did not fit a scratchpad page and took memory of their own; null when all did. */
  advice(): ReturnType<StagedModel["advice"]> {
    this.#usable("advise on");
    return this.#parts.staged.advice();
  }

  /**
   * Binds tensors to inputs and outputs by name. Addresses and pointer tables
   * change at once. A tensor that is closed is unbound; one that was made by the
   * load is closed when yours takes its place. All or nothing.
   *
   * @throws {NrtError} NRT_INVALID for a tensor without device address or of another device; NRT_EXEC_NC_BUSY while the model runs
   * @throws {PlanError} NRT_INVALID for an unknown name or a tensor that is too small
   *
   * @example
   * const neff = await readNeff("model.neff");
   * using neuron = openNeuron({ fake: neff.target });
   * const core = neuron.logicalCore(0);
   * using model = await core.load(neff);
   * using input = core.tensor(model.inputs.get("input0"));
   * model.bind({ input0: input });
   * console.log(model.resolve("input0") === input.address); // → true
   */
  bind(tensors: Readonly<Record<string, Tensor>> | TensorSet): void {
    this.#usable("bind tensors to");
    this.#logicalCore.context.gate.pass(`bind tensors to ${this.name}`);
    this.#notRunning("bind tensors to");
    const entries = tensors instanceof TensorSet ? tensors.names.map((name) => [name, tensors.get(name)] as const) : Object.entries(tensors ?? {});
    for (const [name, tensor] of entries) this.#checkTensor(name, tensor);
    this.#parts.staged.bind(entries.map(([name, tensor]) => [name, placeOf(tensor)] as const));
    for (const [name, tensor] of entries) {
      this.#bound.get(name)?.forget();
      this.#bound.set(name, { tensor, forget: tensor.onDetach(() => this.#detached(name)) });
      const made = this.#parts.tensors.get(name);
      if (made === undefined || made === tensor) continue;
      this.#parts.tensors.delete(name);
      made.close();
    }
  }

  /** Takes tensors away again. @param names of inputs and outputs; those that are not bound are ignored */
  unbind(...names: readonly string[]): void {
    this.#usable("unbind tensors of");
    this.#notRunning("unbind tensors of");
    for (const name of names) this.#detached(name);
  }

  /** The tensor an input or output is bound to, or undefined. */
  bound(name: string): Tensor | undefined {
    return this.#bound.get(name)?.tensor;
  }

  /**
   * Runs `work` in place of the engines: one execution at a time per core, the
   * model pinned and its tensors fenced meanwhile. See {@linkcode execute}.
   *
   * @example
   * const neff = await readNeff("model.neff");
   * using neuron = openNeuron({ fake: neff.target });
   * using model = await neuron.logicalCore(0).load(neff);
   * await model.execute((run) => run.write("output0", new Uint8Array([1, 2, 3])));
   * const output = await model.bound("output0")?.read(3);
   * console.log(new Uint8Array(output ?? []).join(" ")); // → 1 2 3
   */
  async execute<T>(work: ExecutionWork<T>): Promise<T> {
    this.#usable("execute");
    this.#logicalCore.context.gate.pass(`execute ${this.name}`);
    return execute(this, work);
  }

  /**
   * Holds the model, as an execution does: it is not freed before the hold is
   * released. An unload that is given the hold's holder is refused instead of
   * waiting for itself.
   *
   * @param label who holds it, for messages
   * @throws {NrtError} NRT_FAILURE when the model is being unloaded
   */
  retain(label = "a holder"): ModelHold {
    this.#usable("hold");
    return holdModel(this, label);
  }

  /**
   * Unloads: from now on the model is unknown to its cores; once the last
   * execution that holds it is over, exactly its bytes are freed. Other models
   * are not touched. A second call waits for the first.
   *
   * @throws {NrtError} NRT_FAILURE from inside an execution of this model, or when `holder` holds it; NRT_TIMEOUT after `timeoutMs`, then call it again
   */
  async unload(options: DrainOptions = {}): Promise<void> {
    this.#unlink(options);
    for (const resident of this.#parts.residents) await drain(resident, this.#logicalCore.owner.models.place, options.timeoutMs);
    this.#free();
  }

  /** Unloads at once when nobody holds the model, else as soon as the last execution is over. A second call does nothing. */
  close(): void {
    this.#unlink({});
    if (this.refCount === 0) this.#free();
    else void Promise.all(this.#parts.residents.map((resident) => resident.drained())).then(() => this.#free());
  }

  /** Frees everything now, whoever holds the model: the context is being closed. Throws nothing of our own. */
  abandon(): void {
    try {
      this.#free();
    } catch (error) {
      // Memory nobody freed: the report of the close counts it.
      if (!(error instanceof NeuronError)) throw error;
    }
  }

  /** Same as {@linkcode close}. */
  [Symbol.dispose](): void {
    this.close();
  }

  /** Same as {@linkcode unload}. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.unload();
  }

  get #logicalCore(): LogicalPlace {
    return this.#parts.logicalCore;
  }

  /** Takes the model out of the databases of all its cores, or of none. */
  #unlink(options: DrainOptions): void {
    if (this.#state !== "loaded") return;
    this.parts.forEach((part, index) => part.core.models.checkOwnReference(this.#parts.residents[index]!, options.holder));
    for (const part of this.parts) part.core.models.unlink(part.handle, options.holder);
    this.#state = "unloading";
  }

  #free(): void {
    if (this.#state === "unloaded") return;
    this.#state = "unloaded";
    for (const { forget } of this.#bound.values()) forget();
    this.#bound.clear();
    this.#logicalCore.context.remove(this);
    for (const tensor of this.#parts.tensors.values()) tensor.close();
    releaseModel(this.#parts.staged, this.parts);
  }

  #detached(name: string): void {
    const entry = this.#bound.get(name);
    if (entry === undefined) return;
    entry.forget();
    this.#bound.delete(name);
    if (this.#state !== "unloaded") this.#parts.staged.bind({ [name]: null });
  }

  #holding(name: string, which: string | number | undefined): StagedSubgraph {
    this.#usable("resolve variables of");
    if (which !== undefined) return this.subgraph(which);
    const { subgraphs } = this.#parts.staged;
    return this.parts.find((_, index) => this.neff.subgraphs[index]?.variables.has(name) === true)?.staged ?? subgraphs[0]!;
  }

  #checkTensor(name: string, tensor: Tensor): void {
    if (!(tensor instanceof Tensor)) {
      throw new NrtError(NrtStatus.INVALID, `Cannot bind ${JSON.stringify(name)} of ${this.name}: it was given no tensor`, { hint: "Allocate one: core.tensor(model.inputs.get(name)).", details: { variable: name } });
    }
    const { storage } = tensor;
    const refuse = (why: string, hint: string): NrtError =>
      new NrtError(NrtStatus.INVALID, `Cannot bind ${JSON.stringify(name)} of ${this.name} to tensor ${tensor.name}: ${why}`, { hint, details: { variable: name, tensor: tensor.name } });
    if (tensor.closed || storage === undefined) throw refuse(tensor.closed ? "it was closed" : "it is empty", "Bind an open tensor.");
    if (storage.memory === undefined) throw refuse("its memory has no device address", "Allocate it with placement device.");
    if (storage.device !== this.#logicalCore.owner.deviceMemory) {
      throw refuse(`it was allocated on another device than ${this.#logicalCore}`, "Allocate the tensor on the model's logical core.");
    }
  }

  #notRunning(verb: string): void {
    const running = this.parts.find((part) => part.core.running === part.handle);
    if (running === undefined) return;
    throw new NrtError(NrtStatus.EXEC_NC_BUSY, `Cannot ${verb} ${this.name}: it is running on ${running.core}`, { hint: "Wait until the execution is over." });
  }

  #usable(verb: string): void {
    if (this.#state === "unloaded") throw new ClosedError(`Cannot ${verb} model ${this.handle} (${this.name}): it was unloaded`);
  }
}

/** A tensor as the plan binds it. */
function placeOf(tensor: Tensor) {
  const memory = tensor.storage!.memory!;
  return { address: tensor.address, size: tensor.size, hbm: memory.hbm, usage: memory.usage, record: memory.record };
}
