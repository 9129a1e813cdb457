import { NeffError, printable } from "./error.ts";
import type { PageBacking, Note, Subgraph, NeffTarget, Variable, VariableBase, VariableType } from "./model.ts";
import { fieldError, type JsonFields, found, isTable, textField, wholeField, wholeListField } from "./shape.ts";

const U32 = 0xffff_ffff;

/** Every `type` word of a definition (kelf notes, type table). */
export const VARIABLE_TYPES: readonly VariableType[] = [
  "state-buffer",
  "file",
  "tmp-buf",
  "input",
  "output",
  "pointer",
  "virtual",
  "list",
  "dge-table",
  "ptr-table",
  "remote",
];

const BACKINGS: readonly PageBacking[] = ["local", "shared", "sharded", "main"];

function isBacking(word: string): word is PageBacking {
  return (BACKINGS as readonly string[]).includes(word);
}

/** `BASE{N}`: the name of a remote variable carries its reference. */
const REMOTE_NAME = /^(.+)\{(\d{1,9})\}$/s;

/** How to read one entry of `var`. */
export interface VariableContext {
  readonly name: string;
  /** Directory of the subgraph, for file names. */
  readonly directory: string;
  readonly fields: JsonFields;
}

/**
 * Reads one entry of a definition's `var` object. Sizes may be any safe integer:
 * real tensors reach 2^32 bytes exactly. `dtype` and `shape` are not bounded here
 * but where the record is written.
 *
 * @throws {NeffError} for a field that is missing or of another kind
 */
export function readVariable(context: VariableContext): Variable {
  const { fields, name } = context;
  const type = textField(fields, "type");
  if (type === null) throw fieldError(fields, "type", "a required key is missing");
  const varId = wholeField(fields, "var_id", { most: U32 });
  const dtype = textField(fields, "dtype");
  const shape = wholeListField(fields, "shape", SCALAR);
  // Whole literals, not parts spread together: definitions have up to a million of these.
  switch (type) {
    case "state-buffer":
      return { type, name, varId, dtype, shape };
    case "input":
    case "output":
      return { type, name, varId, dtype, shape, size: sizeOf(fields), alignment: alignmentOf(fields) };
    case "tmp-buf":
      return { type, name, varId, dtype, shape, size: sizeOf(fields), alignment: alignmentOf(fields), prefix: textField(fields, "prefix"), pipe: pipeOf(fields) };
    case "file":
      return readFile({ name, varId, dtype, shape }, context);
    case "virtual":
      return readVirtual({ name, varId, dtype, shape }, fields);
    case "pointer":
      return readPointer({ name, varId, dtype, shape }, fields);
    case "list":
    case "dge-table":
    case "ptr-table":
      return { type, name, varId, dtype, shape, list: wholeListField(fields, "list", { most: U32 }) };
    case "remote":
      return { type, name, varId, dtype, shape, ...remoteReference(name, fields) };
    default:
      throw fieldError(fields, "type", `unknown variable type "${printable(type, 60)}", known are ${VARIABLE_TYPES.join(", ")}`);
  }
}

/** A scalar's shape, shared by all that have none. */
const SCALAR = { fallback: Object.freeze<number[]>([]) };
const NO_PIPE = { most: U32, fallback: 0 };
const NO_ALIGNMENT = { fallback: 0 };

function sizeOf(fields: JsonFields): number {
  const size = wholeField(fields, "size");
  if (size === 0) throw fieldError(fields, "size", "a variable of 0 bytes");
  return size;
}

function alignmentOf(fields: JsonFields): number {
  const alignment = wholeField(fields, "alignment", NO_ALIGNMENT);
  const isPower = alignment === 0 || (BigInt(alignment) & (BigInt(alignment) - 1n)) === 0n;
  if (!isPower) throw fieldError(fields, "alignment", `alignment provided not power of 2: ${alignment}`);
  return alignment;
}

function pipeOf(fields: JsonFields): number {
  return wholeField(fields, "pipe", NO_PIPE);
}

function readFile({ name, varId, dtype, shape }: VariableBase, context: VariableContext): Variable {
  const { fields, directory } = context;
  const fileName = textField(fields, "file_name");
  if (fileName === null || fileName === "") throw fieldError(fields, "file_name", "a constant without a file name");
  return {
    type: "file",
    name,
    varId,
    dtype,
    shape,
    size: sizeOf(fields),
    alignment: alignmentOf(fields),
    prefix: textField(fields, "prefix"),
    pipe: pipeOf(fields),
    fileName,
    member: inDirectory(directory, fileName),
    fabricPath: textField(fields, "fabric_path"),
  };
}

/** Full member name of a file named in a definition or an engine file. @param directory of the subgraph, empty for none @param fileName as the definition says it */
export function inDirectory(directory: string, fileName: string): string {
  return directory === "" ? fileName : `${directory}/${fileName}`;
}

function readVirtual({ name, varId, dtype, shape }: VariableBase, fields: JsonFields): Variable {
  const size = sizeOf(fields);
  const backingOffset = wholeField(fields, "backing_variable_off");
  if (!Number.isSafeInteger(backingOffset + size)) {
    throw fieldError(fields, "backing_variable_off", `offset ${backingOffset} and size ${size} together exceed 2^53`);
  }
  const word = textField(fields, "backing_buf") ?? "local";
  if (!isBacking(word)) {
    throw fieldError(fields, "backing_buf", `unknown backing buffer ${found(word)}, known are ${BACKINGS.join(", ")}`);
  }
  return {
    type: "virtual",
    name,
    varId,
    dtype,
    shape,
    size,
    backingOffset,
    backingBuffer: word,
    prefix: textField(fields, "prefix"),
    pipe: pipeOf(fields),
    fabricPath: textField(fields, "fabric_path"),
  };
}

function readPointer({ name, varId, dtype, shape }: VariableBase, fields: JsonFields): Variable {
  const size = wholeField(fields, "size", { fallback: 8 });
  if (size !== 8) throw fieldError(fields, "size", `a pointer has 8 bytes, found ${size}`);
  return { type: "pointer", name, varId, dtype, shape, size: 8, referencedVarId: wholeField(fields, "referenced_var_id", { most: U32 }) };
}

function remoteReference(name: string, fields: JsonFields): { base: string; subgraph: number } {
  const match = REMOTE_NAME.exec(name);
  if (match === null) {
    throw new NeffError(
      `failed to resolve remote variable "${printable(name)}": its name is not BASE{N}, variable BASE of subgraph N`,
      {
        kind: "invalid-definition",
        where: { member: fields.member, path: fields.path() },
      },
    );
  }
  return { base: match[1] as string, subgraph: Number(match[2]) };
}

/** Size of a variable's own bytes; 0 for the types without one (state-buffer, lists, remote). */
export function sizeOfVariable(variable: Variable): number {
  return "size" in variable ? variable.size : 0;
}

/** Which of a core's two arenas a virtual variable lies in: shared and sharded backing share one, the rest is local. */
export function arenaOf(backing: PageBacking): "local" | "shared" {
  return backing === "shared" || backing === "sharded" ? "shared" : "local";
}

/** Whether a raw entry of `var` says the same as one read before under its name (an allowed repetition). */
export function isRepetition(first: unknown, second: unknown): boolean {
  const idOf = (entry: unknown): unknown => (isTable(entry) && Object.hasOwn(entry, "var_id") ? entry["var_id"] : undefined);
  const id = idOf(first);
  return id !== undefined && id === idOf(second);
}

/** One element type of the host graph. */
export interface Dtype {
  readonly name: string;
  /** The runtime's number (kelf notes, dltype table). */
  readonly number: number;
  readonly bytes: number;
}

const TABLE: readonly (readonly [string, number, number])[] = [
  ["float32", 10, 4],
  ["float16", 7, 2],
  ["bfloat16", 6, 2],
  ["float32r", 11, 4],
  ["int8", 2, 1],
  ["int16", 4, 2],
  ["int32", 8, 4],
  ["int64", 12, 8],
  ["uint8", 3, 1],
  ["uint16", 5, 2],
  ["uint32", 9, 4],
  ["uint64", 1, 8],
  // The 8-bit floats' spellings in the host graph are not established; these are the descriptors' ones.
  ["float8e3", 13, 1],
  ["float8e4", 14, 1],
  ["float8e5", 15, 1],
  ["float8_e4m3fn", 14, 1],
];

const BY_NAME: ReadonlyMap<string, Dtype> = new Map(TABLE.map(([name, number, bytes]) => [name, { name, number, bytes }]));

/** The element type of a host-graph name; undefined for one nobody knows (the runtime counts it as 1 byte). */
export function dtypeOf(name: string): Dtype | undefined {
  return BY_NAME.get(name);
}

/**
 * Bytes of a tensor, or undefined when its element type is unknown.
 *
 * @example
 * console.log(tensorBytes([128, 128], "bfloat16")); // → 32768
 */
export function tensorBytes(shape: readonly number[], dtype: string): number | undefined {
  const bytes = dtypeOf(dtype)?.bytes;
  return bytes === undefined ? undefined : shape.reduce((product, dimension) => product * dimension, bytes);
}

/** Bytes every reservation has. */
const RESERVATION_BYTES = 8;
/** Offset cayman demands; mariana files carry 0x3FFF8, which nothing checks. */
const CAYMAN_OFFSET = 0x37ff8;

/**
 * Checks the event accelerator's place in the state buffer (`runtime_statebuffer_reservation`)
 * as the runtime does: on cayman one that is there must start at partition 0, span 128, lie at
 * 0x37FF8 and have 8 bytes; one that is missing is only mentioned. Other architectures are not
 * checked. Throws a `NeffError` with status 2.
 */
export function checkReservations(subgraph: Subgraph, target: NeffTarget): readonly Note[] {
  if (target !== "cayman") return [];
  const [first, ...others] = subgraph.reservations ?? [];
  const member = subgraph.definitionPath;
  if (first === undefined) {
    return [{ code: "no-reservation", message: `${member}: model has no evtaccel reservation on SBUF` }];
  }
  for (const [index, reservation] of [first, ...others].entries()) {
    const path = `$.runtime_statebuffer_reservation[${index}]`;
    const refuse = (key: string, reason: string): NeffError =>
      new NeffError(`evtaccel reservation ${reason}`, { kind: "invalid-definition", where: { member, path: `${path}.${key}` } });
    if (reservation.basePartition !== 0) {
      throw refuse("base_partition", `must start at 0, it starts at ${reservation.basePartition}`);
    }
    if (reservation.partitions !== 128) {
      throw refuse("partitions", `must span 128 partitions, it spans ${reservation.partitions}`);
    }
    if (reservation.offset !== CAYMAN_OFFSET) {
      throw refuse("offset", `must lie at ${CAYMAN_OFFSET}, it lies at ${reservation.offset}`);
    }
    if (reservation.size !== RESERVATION_BYTES) {
      throw refuse("size", `must have ${RESERVATION_BYTES} bytes, it has ${reservation.size}`);
    }
  }
  return [];
}
