/**
 * Headers of safetensors files: which tensors are in it, where and how large. The data itself is never read.
 *
 * The format: a u64 with the header's length, the header as a JSON object, the data. `docs/sharding.md`, "Files".
 */
import { readU64, UnsafeIntegerError } from "../../ffi/u64.ts";
import { printable } from "../neff/error.ts";
import { isTable } from "../neff/shape.ts";
import { ModelFileError } from "./error.ts";
import { type ModelFileSource, tableOf, withModelFile } from "./model_file.ts";

/** One tensor of a file. */
export interface SafetensorsTensor {
  readonly name: string;
  /** The file's word, such as `BF16`. */
  readonly dtype: string;
  readonly shape: readonly number[];
  /** Offset of its first byte in the file. */
  readonly offset: number;
  /** Bytes of its data. */
  readonly bytes: number;
}

/** What the header of one file says. */
export interface SafetensorsFile {
  readonly file: string;
  /** Bytes of the file. */
  readonly size: number;
  /** In the order of their data. */
  readonly tensors: readonly SafetensorsTensor[];
  /** `__metadata__`, empty when there is none. */
  readonly metadata: Readonly<Record<string, string>>;
  /** What is wrong without making the sizes doubtful: data cut off, gaps, element types that are not known. */
  readonly problems: readonly string[];
}

/** Bytes per element, by the file's word for the type. */
export const SAFETENSORS_DTYPES: Readonly<Record<string, number>> = {
  F64: 8,
  F32: 4,
  F16: 2,
  BF16: 2,
  I64: 8,
  I32: 4,
  I16: 2,
  I8: 1,
  U64: 8,
  U32: 4,
  U16: 2,
  U8: 1,
  BOOL: 1,
  F8_E4M3: 1,
  F8_E5M2: 1,
};

/** Bytes of a header that is read; the format's own reader has the same limit. */
const HEADER_BYTES = 100_000_000;
/** Tensors of a file that are read. */
const TENSORS = 1_000_000;
const NAME_CHARACTERS = 4096;
const PREFIX_BYTES = 8;

/**
 * Reads the header of a safetensors file: two reads, however large the file.
 *
 * @throws {ModelFileError} for a missing file, a header that is cut off, no JSON, too long, or repeats a name; for a
 *   tensor whose offsets overlap another's, run backwards or do not agree with its shape
 *
 * @example
 * const header = '{"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}';
 * const file = new Uint8Array(8 + header.length + 12);
 * file[0] = header.length;
 * file.set(new TextEncoder().encode(header), 8);
 * const { tensors } = await readSafetensors(file);
 * console.log(tensors[0]?.name, tensors[0]?.bytes); // → w 12
 */
export function readSafetensors(source: ModelFileSource): Promise<SafetensorsFile> {
  return withModelFile(source, "the safetensors file", async ({ file, size, read }) => {
    const prefix = await read(0, PREFIX_BYTES);
    if (prefix.length < PREFIX_BYTES) {
      throw new ModelFileError(`it has ${prefix.length} bytes, a header begins with 8`, { file, kind: "truncated" });
    }
    const length = headerLength(prefix, { file, size });
    const text = await read(PREFIX_BYTES, length);
    if (text.length < length) {
      throw new ModelFileError(`its header of ${length} bytes ends after ${text.length}`, { file, kind: "truncated" });
    }
    return fromHeader(text, { file, size, dataOffset: PREFIX_BYTES + length });
  });
}

interface Place {
  readonly file: string;
  /** Bytes of the file. */
  readonly size: number;
  /** Where the data begins. */
  readonly dataOffset: number;
}

function headerLength(prefix: Uint8Array, { file, size }: Omit<Place, "dataOffset">): number {
  const length = lengthOf(prefix, file);
  if (length > HEADER_BYTES) {
    throw new ModelFileError(`its header of ${length} bytes is above the ${HEADER_BYTES} that are read`, {
      file,
      kind: "limit",
      hint: "Files of another format look like this: the first 8 bytes are a length.",
    });
  }
  if (PREFIX_BYTES + length > size) {
    throw new ModelFileError(`its header ends at ${PREFIX_BYTES + length}, the file has ${size} bytes`, {
      file,
      kind: "truncated",
    });
  }
  return length;
}

function lengthOf(prefix: Uint8Array, file: string): number {
  try {
    return readU64(new DataView(prefix.buffer, prefix.byteOffset, PREFIX_BYTES), 0);
  } catch (error) {
    if (!(error instanceof UnsafeIntegerError)) throw error;
    throw new ModelFileError(`the length of its header, ${String(error.details["value"])}, is none`, {
      file,
      kind: "damaged",
    });
  }
}

function fromHeader(text: Uint8Array, place: Place): SafetensorsFile {
  const { file, size } = place;
  const { __metadata__: metadata = {}, ...entries } = tableOf(text, file).table;
  const names = Object.keys(entries);
  if (names.length > TENSORS) {
    throw new ModelFileError(`it lists ${names.length} tensors, at most ${TENSORS} are read`, { file, kind: "limit" });
  }
  const problems: string[] = [];
  const tensors = names.map((name) => tensorOf(name, entries[name], { place, problems }));
  tensors.sort((a, b) => a.offset - b.offset || a.bytes - b.bytes);
  const end = checkLayout(tensors, { place, problems });
  if (end > size) problems.push(`cut off: the data ends at byte ${end}, the file has ${size}`);
  else if (end < size) problems.push(`${size - end} bytes behind the last tensor belong to none`);
  return { file, size, tensors, metadata: metadataOf(metadata, file), problems };
}

function metadataOf(value: unknown, file: string): Readonly<Record<string, string>> {
  const isTexts = (input: unknown): input is Record<string, string> =>
    isTable(input) && Object.values(input).every((one) => typeof one === "string");
  if (isTexts(value)) return value;
  throw new ModelFileError("its __metadata__ is no object of texts", { file, kind: "invalid" });
}

interface Reading {
  readonly place: Place;
  readonly problems: string[];
}

function tensorOf(name: string, entry: unknown, { place, problems }: Reading): SafetensorsTensor {
  const { file, dataOffset } = place;
  const shown = printable(name, 100);
  const invalid = (reason: string) =>
    new ModelFileError(`tensor "${shown}" ${reason}`, { file, kind: "invalid", details: { tensor: shown } });
  if (name.length > NAME_CHARACTERS) {
    throw invalid(`has a name of ${name.length} characters, at most ${NAME_CHARACTERS} are read`);
  }
  if (!isTable(entry)) throw invalid("is no object");
  const { dtype, shape, data_offsets: offsets } = entry;
  if (typeof dtype !== "string") throw invalid("has no dtype");
  if (!isSizes(shape)) throw invalid("has no shape of whole numbers");
  if (!isSizes(offsets) || offsets.length !== 2) throw invalid("has no pair of data_offsets");
  const [begin = 0, end = 0] = offsets;
  if (end < begin) throw invalid(`ends at ${end}, before it begins at ${begin}`);
  const itemBytes = Object.hasOwn(SAFETENSORS_DTYPES, dtype) ? SAFETENSORS_DTYPES[dtype] : undefined;
  const bytes = end - begin;
  if (itemBytes === undefined) {
    problems.push(
      `tensor "${shown}": element type "${printable(dtype, 40)}" is not known, its ${bytes} bytes are counted`,
    );
  } else if (elementCount(shape) * itemBytes !== bytes) {
    throw invalid(
      `of ${dtype} [${shape.join(", ")}] has ${bytes} bytes, its shape needs ${elementCount(shape) * itemBytes}`,
    );
  }
  return { name, dtype, shape, offset: dataOffset + begin, bytes };
}

/** Elements of a shape; 1 for a scalar's. @param shape sizes per dimension */
export function elementCount(shape: readonly number[]): number {
  return shape.reduce((product, size) => product * size, 1);
}

function isSizes(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((size) => Number.isSafeInteger(size) && Number(size) >= 0);
}

/** Where the last tensor ends. Throws for tensors that share bytes; notes gaps. */
function checkLayout(tensors: readonly SafetensorsTensor[], { place, problems }: Reading): number {
  let end = place.dataOffset;
  let gaps = 0;
  for (const { name, offset, bytes } of tensors) {
    if (offset < end && bytes > 0) {
      throw new ModelFileError(
        `tensor "${printable(name, 100)}" begins at byte ${offset}, another one ends at ${end}`,
        {
          file: place.file,
          kind: "damaged",
          details: { tensor: printable(name, 100), offset, end },
        },
      );
    }
    gaps += Math.max(0, offset - end);
    end = Math.max(end, offset + bytes);
  }
  if (gaps > 0) problems.push(`${gaps} bytes between tensors belong to none`);
  return end;
}
