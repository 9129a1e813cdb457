/** Protocol buffer messages field by field, checked: a reader of known fields passes over the others. */
import { PbfReader } from "pbf";
import { ModelFileError } from "../sharding/error.ts";

/** One field as stored. */
export interface ProtoField {
  readonly number: number;
  /** A whole number; 0 for a field that is bytes or of a fixed width. */
  readonly value: number;
  /** The bytes of a length-delimited field, not copied; null for other fields. */
  readonly bytes: Uint8Array | null;
}

/** Fields of one message that are looked at. */
const FIELDS = 20_000_000;

/**
 * The fields of a message in their order.
 *
 * @param file for messages
 * @throws {ModelFileError} for bytes that are no message
 */
export function* protoFields(message: Uint8Array, file: string): Generator<ProtoField> {
  const reader = new PbfReader(message);
  const damaged = (why: string) => new ModelFileError(`it is no protobuf message: ${why}`, { file, kind: "damaged" });
  for (let count = 0; reader.pos < reader.length; count++) {
    if (count === FIELDS) throw new ModelFileError(`a message has more than ${FIELDS} fields`, { file, kind: "limit" });
    const at = reader.pos;
    const field = oneField(reader, message);
    if (field === undefined || reader.pos > reader.length) throw damaged(`the field at byte ${at} does not end in its ${message.length} bytes`);
    yield field;
  }
}

function oneField(reader: PbfReader, message: Uint8Array): ProtoField | undefined {
  try {
    const key = reader.readVarint();
    const [number, wire] = [key >>> 3, key & 7];
    if (number === 0) return undefined;
    if (wire === 0) return { number, value: reader.readVarint(true), bytes: null };
    if (wire === 2) {
      const length = reader.readVarint();
      const start = reader.pos;
      if (!Number.isSafeInteger(length) || length < 0 || start + length > message.length) return undefined;
      reader.pos += length;
      return { number, value: 0, bytes: message.subarray(start, start + length) };
    }
    if (wire !== 1 && wire !== 5) return undefined;
    reader.pos += wire === 1 ? 8 : 4;
    return { number, value: 0, bytes: null };
  } catch {
    return undefined;
  }
}

/** The whole numbers of a repeated field, packed or not. @throws {ModelFileError} */
export function protoNumbers({ value, bytes }: ProtoField, file: string): number[] {
  if (bytes === null) return [value];
  const reader = new PbfReader(bytes);
  const numbers: number[] = [];
  try {
    while (reader.pos < reader.length) numbers.push(reader.readVarint(true));
  } catch {
    reader.pos = Infinity;
  }
  if (reader.pos > reader.length) throw new ModelFileError("a list of numbers in it does not end", { file, kind: "damaged" });
  return numbers;
}

/** A field's bytes as text; what is no UTF-8 becomes U+FFFD. */
export function protoText({ bytes }: ProtoField): string {
  return bytes === null ? "" : new TextDecoder().decode(bytes);
}

/** Bytes of a tensor: product of a shape's sizes and an element's bytes. @throws {ModelFileError} for sizes that are none */
export function shapeBytes(shape: readonly number[], itemBytes: number, file: string): number {
  const bytes = shape.reduce((product, size) => product * size, itemBytes);
  if (shape.every((size) => size >= 0) && Number.isSafeInteger(bytes)) return bytes;
  throw new ModelFileError(`a tensor of shape [${shape.slice(0, 16).join(", ")}] has no size`, { file, kind: "invalid" });
}
