import { ArgumentError } from "../../ffi/error.ts";
import { type PageBacking, type Engine, ENGINES, type Reservation } from "../neff/model.ts";
import { encodeNpyHeader } from "../neff/npy.ts";
import { dataBytes, dataSize, join, type MemberData, type MemberSpec } from "./tar_write.ts";

/** What every variable of a {@linkcode DefinitionSpec} can have. */
interface CommonSpec {
  readonly name: string;
  /** Its place in the list when absent. */
  readonly varId?: number;
  readonly dtype?: string;
  readonly shape?: readonly number[];
  /** More JSON keys, which win over the computed ones. */
  readonly extra?: Readonly<Record<string, unknown>>;
}

/** Device-print metadata. */
interface PrintSpec {
  readonly prefix?: string;
  readonly pipe?: number;
}

/** A variable by name or id. */
type Reference = string | number;

/** One variable to build; the types are those of the definition. */
export type VariableSpec =
  | (CommonSpec & { readonly type: "state-buffer" | "remote" })
  | (CommonSpec & {
    readonly type: "input" | "output";
    readonly size: number;
    readonly alignment?: number;
    /** Shape and element type in the host graph; bytes in a row when absent. */
    readonly tensor?: { readonly shape: readonly number[]; readonly dtype: string };
  })
  | (CommonSpec & PrintSpec & { readonly type: "tmp-buf"; readonly size: number; readonly alignment?: number })
  | (CommonSpec & PrintSpec & {
    readonly type: "file";
    readonly data: Uint8Array | MemberData;
    /** numpy's type text and shape for an `.npy` member; bytes in a row when absent. */
    readonly descr?: string;
    readonly arrayShape?: readonly number[];
    /** Store the bytes alone, without a numpy header. */
    readonly raw?: boolean;
    readonly alignment?: number;
    readonly fileName?: string;
  })
  | (CommonSpec & PrintSpec & {
    readonly type: "virtual";
    readonly size: number;
    readonly offset: number;
    readonly backing?: PageBacking;
    readonly fabricPath?: string;
  })
  | (CommonSpec & { readonly type: "pointer"; readonly to: Reference })
  | (CommonSpec & { readonly type: "list" | "dge-table" | "ptr-table"; readonly of: readonly Reference[] });

/** One transfer of a DMA block. */
export interface TransferSpec {
  readonly from: RangeSpec | readonly RangeSpec[];
  readonly to: RangeSpec;
  readonly op?: string;
  readonly extra?: Readonly<Record<string, unknown>>;
}

/** A range of a variable: a run of `bytes`, or sizes and steps. */
export interface RangeSpec {
  readonly variable: string;
  readonly offset?: number;
  readonly bytes?: number;
  readonly sizes?: readonly number[];
  readonly steps?: readonly number[];
  readonly dtype?: string;
}

/** One DMA block. */
export interface BlockSpec {
  readonly queue: string;
  /** Counted per queue when absent. */
  readonly id?: number;
  readonly semaphore?: number;
  readonly transfers: readonly TransferSpec[];
}

/** One engine. */
export interface EngineSpec {
  /** Bytes, or a number of instructions to make up. None when absent. */
  readonly instructions?: number | Uint8Array;
  readonly blocks?: readonly BlockSpec[];
  readonly extra?: Readonly<Record<string, unknown>>;
}

/** One DMA queue. */
export interface QueueSpec {
  readonly type?: string;
  readonly owner: Engine;
  readonly queues?: number;
  readonly semaphores?: readonly number[];
  readonly extra?: Readonly<Record<string, unknown>>;
}

/** One subgraph to build. */
export interface DefinitionSpec {
  /** Directory and name; `sg00`, `sg01`, … when absent. */
  readonly name?: string;
  readonly variables: readonly VariableSpec[];
  readonly queues?: Readonly<Record<string, QueueSpec>>;
  readonly engines?: Readonly<Partial<Record<Engine, EngineSpec>>>;
  readonly features?: readonly string[];
  /** The one the target demands when absent; null leaves the key out. */
  readonly reservations?: readonly Reservation[] | null;
  /** More top-level keys, which win over the computed ones; undefined removes a key. */
  readonly extra?: Readonly<Record<string, unknown>>;
}

/** A definition with its members. */
export interface BuiltDefinition {
  readonly directory: string;
  readonly spec: DefinitionSpec;
  readonly members: readonly MemberSpec[];
}

/** File names of the engines, as compilers up to 2.23 write them. */
const FILES: Readonly<Record<Engine, string>> = { pe: "PE", act: "Activation", pool: "Pool", dve: "DVE", sp: "SP" };

const RESERVED_OFFSETS: Readonly<Record<string, number>> = { cayman: 0x37ff8, v3: 0x37ff8, mariana: 0x3fff8, v4: 0x3fff8 };

/** Builds one subgraph's definition, engine files, instructions and constants. */
export function buildDefinition(spec: DefinitionSpec, context: { directory: string; target: string }): BuiltDefinition {
  const { directory } = context;
  const ids = new Map(spec.variables.map((variable, index) => [variable.name, variable.varId ?? index]));
  const variables = spec.variables.map((variable) => [variable.name, variableJson(variable, ids)] as const);
  const definition = {
    cc_streams: { num_streams: 0 },
    debug_info: {},
    dma_queue: Object.fromEntries(Object.entries(spec.queues ?? {}).map(([name, queue]) => [name, queueJson(queue)])),
    ...Object.fromEntries(
      ENGINES.flatMap((engine) => [[engine, `${FILES[engine]}.json`], [`${engine}_instr`, `${FILES[engine]}.bin`]]),
    ),
    name: "definition",
    neff_features: spec.features ?? [],
    runtime_statebuffer_reservation: reservationsJson(spec.reservations, context.target),
    var: Object.fromEntries(variables.sort(([a], [b]) => (a < b ? -1 : 1))),
    version: "0.6",
    ...spec.extra,
  };
  const members: MemberSpec[] = [
    { name: `${directory}/def.json`, data: JSON.stringify(sortKeys(definition), null, 4) },
    ...ENGINES.flatMap((engine) => engineMembers(engine, spec.engines?.[engine] ?? {}, directory)),
    ...spec.variables.flatMap((variable) => constantMember(variable, directory)),
  ];
  return { directory, spec, members };
}

function sortKeys(object: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(object).sort(([a], [b]) => (a < b ? -1 : 1)));
}

function reservationsJson(given: DefinitionSpec["reservations"], target: string): unknown {
  if (given === null) return undefined;
  const offset = RESERVED_OFFSETS[target];
  const reservations = given ??
    (offset === undefined ? undefined : [{ type: "evtaccel", basePartition: 0, partitions: 128, offset, size: 8 }]);
  return reservations?.map(({ type, basePartition, partitions, offset: at, size }) => ({
    base_partition: basePartition,
    offset: at,
    partitions,
    size,
    type,
  }));
}

function variableJson(variable: VariableSpec, ids: ReadonlyMap<string, number>): Record<string, unknown> {
  const idOf = (reference: Reference): number => {
    const id = typeof reference === "number" ? reference : ids.get(reference);
    if (id === undefined) {
      throw new ArgumentError(`Cannot build the model: ${variable.name} names ${reference}, which no variable is called`);
    }
    return id;
  };
  return { ...sortKeys({ ...commonJson(variable, ids), ...ownJson(variable, idOf) }), ...variable.extra };
}

function commonJson(variable: VariableSpec, ids: ReadonlyMap<string, number>): Record<string, unknown> {
  return {
    type: variable.type,
    var_id: ids.get(variable.name),
    ...(variable.dtype === undefined ? {} : { dtype: variable.dtype }),
    ...(variable.shape === undefined ? {} : { shape: variable.shape }),
    ...("prefix" in variable ? { prefix: variable.prefix } : {}),
    ...("pipe" in variable ? { pipe: variable.pipe } : {}),
    ...("alignment" in variable ? { alignment: variable.alignment } : {}),
  };
}

function ownJson(variable: VariableSpec, idOf: (reference: Reference) => number): Record<string, unknown> {
  switch (variable.type) {
    case "input":
    case "output":
      return { ops: [], size: variable.size };
    case "tmp-buf":
      return { size: variable.size };
    case "file":
      return {
        alignment: variable.alignment ?? 4096,
        fabric_path: "main",
        file_name: fileNameOf(variable),
        ops: [],
        size: dataSize(variable.data),
      };
    case "virtual":
      return {
        backing_variable_off: variable.offset,
        ops: [],
        size: variable.size,
        ...(variable.backing === undefined ? {} : { backing_buf: variable.backing }),
        ...(variable.fabricPath === undefined ? {} : { fabric_path: variable.fabricPath }),
      };
    case "pointer":
      return { referenced_var_id: idOf(variable.to), size: 8 };
    case "list":
    case "dge-table":
    case "ptr-table":
      return { list: variable.of.map(idOf) };
    default:
      return {};
  }
}

function fileNameOf(variable: VariableSpec & { type: "file" }): string {
  return variable.fileName ?? `value_${variable.name}.${variable.raw === true ? "bin" : "npy"}`;
}

function queueJson(queue: QueueSpec): Record<string, unknown> {
  const semaphores = queue.semaphores ?? [];
  return sortKeys({
    fabric_path: "main",
    num_queues: queue.queues ?? 16,
    owner: queue.owner,
    type: queue.type ?? "in",
    ...(semaphores.length === 1 ? { semaphore: semaphores[0] } : { semaphore_set: semaphores }),
    ...queue.extra,
  });
}

function engineMembers(engine: Engine, spec: EngineSpec, directory: string): MemberSpec[] {
  const file = FILES[engine];
  const next = new Map<string, number>();
  const dma = (spec.blocks ?? []).map((block) => {
    const id = block.id ?? next.get(block.queue) ?? 0;
    next.set(block.queue, id + 1);
    return {
      desc: block.transfers.map(transferJson),
      id,
      queue: block.queue,
      ...(block.semaphore === undefined ? {} : { semaphore: block.semaphore }),
    };
  });
  const own = engine === "act" ? { act_info: "act_info.json", act_semaphore: 12, activation_function_sets: [] } : {};
  const json = sortKeys({ ...own, dma, instr: `${file}.bin`, name: file, ...spec.extra });
  return [
    {
      name: `${directory}/${file}.bin`,
      data: typeof spec.instructions === "object" ? spec.instructions : madeInstructions(spec.instructions ?? 0),
    },
    { name: `${directory}/${file}.json`, data: JSON.stringify(json) },
  ];
}

/** Slots of 64 bytes that carry their number, so that no two places of a program are alike. */
function madeInstructions(count: number): Uint8Array {
  const bytes = new Uint8Array(count * 64);
  const view = new DataView(bytes.buffer);
  for (let slot = 0; slot < count; slot++) {
    view.setUint32(slot * 64, 0x10c8, true);
    view.setUint32(slot * 64 + 4, slot, true);
    view.setUint32(slot * 64 + 8, Math.imul(slot + 1, 0x9e37_79b1) >>> 0, true);
  }
  return bytes;
}

function transferJson(transfer: TransferSpec): Record<string, unknown> {
  const { from, to } = transfer;
  const sources = Array.isArray(from)
    ? { from_arr: (from as readonly RangeSpec[]).map((range) => rangeJson("from", range)) }
    : rangeJson("from", from as RangeSpec);
  return sortKeys({ ...sources, ...rangeJson("to", to), op: transfer.op ?? "copy", ...transfer.extra });
}

function rangeJson(side: "from" | "to", range: RangeSpec): Record<string, unknown> {
  const sizes = range.sizes ?? [range.bytes ?? 1, 1];
  return {
    [side]: range.variable,
    [`${side}_dtype`]: range.dtype ?? "uint8",
    [`${side}_off`]: range.offset ?? 0,
    [`${side}_sizes`]: sizes,
    [`${side}_steps`]: range.steps ?? [1, range.bytes ?? 1],
  };
}

function constantMember(variable: VariableSpec, directory: string): MemberSpec[] {
  if (variable.type !== "file") return [];
  const name = `${directory}/${fileNameOf(variable)}`;
  if (variable.raw === true) return [{ name, data: variable.data }];
  const header = encodeNpyHeader(variable.descr ?? "|u1", variable.arrayShape ?? [dataSize(variable.data)]);
  return [{ name, data: prefixed(header, dataBytes(variable.data)) }];
}

/** A header in front of data that may be made while it is written. */
function prefixed(header: Uint8Array, data: Uint8Array | MemberData): Uint8Array | MemberData {
  if (data instanceof Uint8Array) return join(header, data);
  return {
    size: header.length + data.size,
    chunks(): Iterable<Uint8Array> | AsyncIterable<Uint8Array> {
      const rest = data.chunks();
      return Symbol.iterator in rest ? prefixSync(header, rest) : prefixAsync(header, rest);
    },
  };
}

function* prefixSync(header: Uint8Array, rest: Iterable<Uint8Array>): Generator<Uint8Array> {
  yield header;
  yield* rest;
}

async function* prefixAsync(header: Uint8Array, rest: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  yield header;
  yield* rest;
}
