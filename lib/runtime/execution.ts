import { NrtStatus } from "../abi/runtime_dmem.ts";
import type { TensorInfo } from "../neff/model.ts";
import type { ModelPart, NeuronCore } from "./core.ts";
import { NrtError } from "./errors.ts";
import { currentHolder, type Holder, runAsHolder } from "./process_state.ts";
import type { ModelReference } from "./model_database.ts";
import type { Tensor } from "./tensor.ts";
import { bytesOf, type BytesSource } from "../dmem/host_data.ts";

/** What an execution needs of its model. */
export interface Executable {
  /** Name of the model. */
  readonly name: string;
  /** What it holds, per subgraph. */
  readonly parts: readonly ModelPart[];
  /** Inputs by name. */
  readonly inputs: ReadonlyMap<string, TensorInfo>;
  /** Outputs by name. */
  readonly outputs: ReadonlyMap<string, TensorInfo>;
  /** The tensor an input or output is bound to. */
  bound(name: string): Tensor | undefined;
}

/**
 * One execution of a model, as its work sees it. Reads and writes go where the
 * device would read inputs and write outputs, past the fences that keep the host
 * away meanwhile.
 */
export interface Execution {
  /** The model. */
  readonly model: Executable;
  /** Reads an input or output that is bound; by default all of it. */
  read(name: string, length?: number, at?: number): ArrayBuffer;
  /** Writes an input or output that is bound. */
  write(name: string, bytes: BytesSource, at?: number): void;
}

/** What happens in an execution: a stand-in for the engines, which this package does not drive. */
export type ExecutionWork<T> = (execution: Execution) => T | Promise<T>;

/**
 * Runs `work` as an execution of a model: the model is pinned on each of its
 * cores, waits for its turn there, and is the running one meanwhile. Inputs
 * cannot be written and outputs neither read nor written by the host until it
 * is over; then outputs count as completed, unless the work failed.
 *
 * @throws {NrtError} NRT_EXEC_BAD_INPUT when an input or output is not bound; NRT_FAILURE when the model is being unloaded
 */
export function execute<T>(model: Executable, work: ExecutionWork<T>): Promise<T> {
  return runAsHolder(`an execution of ${model.name}`, (holder) => run(model, work, holder));
}

async function run<T>(model: Executable, work: ExecutionWork<T>, holder: Holder): Promise<T> {
  const tensors = boundTensors(model);
  const references = pin(model, holder);
  const fences = new Fences(tensors, holder);
  const leave: (() => void)[] = [];
  try {
    // Always in the same order of cores, so that two models of a logical core cannot wait for each other.
    for (const { core } of model.parts) leave.push(await core.queue.enter());
    setRunning(model.parts, (part) => part.handle);
    const result = await work(executionOf(model, tensors));
    fences.complete();
    return result;
  } finally {
    setRunning(model.parts.slice(0, leave.length), () => 0);
    for (const end of leave.reverse()) end();
    fences.release();
    for (const reference of references) reference.release();
  }
}

/** A held model: it is not freed before the hold is released. */
export interface ModelHold extends Disposable {
  /** Who holds it: give it to `unload` so that waiting for oneself is noticed. */
  readonly holder: Holder;
  /** Lets go. A second call does nothing. */
  release(): void;
}

/** Holds a model on all its cores. @throws {NrtError} NRT_FAILURE when it is being unloaded */
export function holdModel(model: Executable, label: string): ModelHold {
  const holder: Holder = { label, outer: currentHolder() };
  const references = pin(model, holder);
  const release = () => {
    for (const reference of references) reference.release();
  };
  return { holder, release, [Symbol.dispose]: release };
}

/** References on every core of the model, or none. */
function pin(model: Executable, holder: Holder): readonly ModelReference<ModelPart>[] {
  const references: ModelReference<ModelPart>[] = [];
  try {
    for (const part of model.parts) references.push(part.core.models.retain(part.handle, holder));
    return references;
  } catch (error) {
    for (const reference of references) reference.release();
    throw error;
  }
}

function setRunning(parts: readonly { readonly core: NeuronCore; readonly handle: number }[], handle: (part: { readonly handle: number }) => number): void {
  for (const part of parts) part.core.running = handle(part);
}

interface BoundTensors {
  readonly inputs: ReadonlyMap<string, Tensor>;
  readonly outputs: ReadonlyMap<string, Tensor>;
}

function boundTensors(model: Executable): BoundTensors {
  const collect = (names: Iterable<string>) => new Map([...names].map((name) => [name, model.bound(name)] as const));
  const [inputs, outputs] = [collect(model.inputs.keys()), collect(model.outputs.keys())];
  const missing = [...inputs, ...outputs].filter(([, tensor]) => tensor === undefined).map(([name]) => name);
  if (missing.length > 0) {
    throw new NrtError(NrtStatus.EXEC_BAD_INPUT, `Cannot execute ${model.name}: ${missing.join(", ")} ${missing.length === 1 ? "is" : "are"} not bound to a tensor`, {
      hint: "Bind a tensor to every input and output first.",
      details: { missing },
    });
  }
  return { inputs: inputs as ReadonlyMap<string, Tensor>, outputs: outputs as ReadonlyMap<string, Tensor> };
}

/** The fences of an execution: device reads of its inputs, device writes of its outputs. */
class Fences {
  readonly #tensors: BoundTensors;
  readonly #holder: Holder;

  constructor(tensors: BoundTensors, holder: Holder) {
    this.#tensors = tensors;
    this.#holder = holder;
    for (const tensor of tensors.inputs.values()) tensor.retain().storage?.start("read", holder);
    for (const tensor of tensors.outputs.values()) tensor.retain().storage?.start("write", holder);
  }

  complete(): void {
    for (const tensor of this.#tensors.outputs.values()) tensor.completeOutput();
  }

  release(): void {
    for (const tensor of this.#tensors.inputs.values()) this.#end(tensor, "read");
    for (const tensor of this.#tensors.outputs.values()) this.#end(tensor, "write");
  }

  #end(tensor: Tensor, use: "read" | "write"): void {
    tensor.storage?.finish(use, this.#holder);
    tensor.release();
  }
}

function executionOf(model: Executable, tensors: BoundTensors): Execution {
  const find = (name: string): Tensor => {
    const tensor = tensors.inputs.get(name) ?? tensors.outputs.get(name);
    if (tensor !== undefined) return tensor;
    throw new NrtError(NrtStatus.INVALID, `Cannot find ${JSON.stringify(name)}: ${model.name} has no input or output of this name`, {
      hint: `It has ${[...tensors.inputs.keys(), ...tensors.outputs.keys()].join(", ")}.`,
    });
  };
  return {
    model,
    read(name, length, at = 0) {
      const tensor = find(name);
      const buffer = new ArrayBuffer(length ?? tensor.size - at);
      tensor.deviceRead(new Uint8Array(buffer), at);
      return buffer;
    },
    write: (name, bytes, at = 0) => find(name).deviceWrite(bytesOf(bytes), at),
  };
}
