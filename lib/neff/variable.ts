import { NeffError, printable } from "./error.ts";
import type { BackingBuffer, Variable, VariableBase, VariableType } from "./model.ts";
import { fieldError, type Fields, found, isTable, textField, wholeField, wholeListField } from "./shape.ts";

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

const BACKINGS: readonly BackingBuffer[] = ["local", "shared", "sharded", "main"];

function isBacking(word: string): word is BackingBuffer {
  return (BACKINGS as readonly string[]).includes(word);
}

/** `BASE{N}`: the name of a remote variable carries its reference. */
const REMOTE_NAME = /^(.+)\{(\d{1,9})\}$/s;

/** How to read one entry of `var`. */
export interface VariableContext {
  readonly name: string;
  /** Directory of the subgraph, for file names. */
  readonly directory: string;
  readonly fields: Fields;
}

/**
 * Reads one entry of a definition's `var` object. Sizes may be any safe integer:
 * real tensors reach 2^32 bytes exactly. `dtype` and `shape` are not bounded here
 * but where the record is written.
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

function sizeOf(fields: Fields): number {
  const size = wholeField(fields, "size");
  if (size === 0) throw fieldError(fields, "size", "a variable of 0 bytes");
  return size;
}

function alignmentOf(fields: Fields): number {
  const alignment = wholeField(fields, "alignment", NO_ALIGNMENT);
  const isPower = alignment === 0 || (BigInt(alignment) & (BigInt(alignment) - 1n)) === 0n;
  if (!isPower) throw fieldError(fields, "alignment", `alignment provided not power of 2: ${alignment}`);
  return alignment;
}

function pipeOf(fields: Fields): number {
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

/** Full member name of a file named in a definition or an engine file. */
export function inDirectory(directory: string, fileName: string): string {
  return directory === "" ? fileName : `${directory}/${fileName}`;
}

function readVirtual({ name, varId, dtype, shape }: VariableBase, fields: Fields): Variable {
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

function readPointer({ name, varId, dtype, shape }: VariableBase, fields: Fields): Variable {
  const size = wholeField(fields, "size", { fallback: 8 });
  if (size !== 8) throw fieldError(fields, "size", `a pointer has 8 bytes, found ${size}`);
  return { type: "pointer", name, varId, dtype, shape, size: 8, referencedVarId: wholeField(fields, "referenced_var_id", { most: U32 }) };
}

function remoteReference(name: string, fields: Fields): { base: string; subgraph: number } {
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
export function arenaOf(backing: BackingBuffer): "local" | "shared" {
  return backing === "shared" || backing === "sharded" ? "shared" : "local";
}

/** Whether a raw entry of `var` says the same as one read before under its name (an allowed repetition). */
export function isRepetition(first: unknown, second: unknown): boolean {
  const idOf = (entry: unknown): unknown => (isTable(entry) && Object.hasOwn(entry, "var_id") ? entry["var_id"] : undefined);
  const id = idOf(first);
  return id !== undefined && id === idOf(second);
}
