/** HloModuleProto: parameters, results, aliases and the attributes that Neuron's tracers write. `docs/deployments.md`, "HLO". */
import { ModelFileError } from "../sharding/error.ts";
import { protoFields, protoNumbers, protoText, shapeBytes } from "./protobuf.ts";

/** Name and bytes of an element, by the number of its type; tokens and tuples have none. */
const ELEMENT_TYPES: Readonly<Record<number, readonly [string, number]>> = {
  1: ["pred", 1], 2: ["s8", 1], 3: ["s16", 2], 4: ["s32", 4], 5: ["s64", 8], 6: ["u8", 1], 7: ["u16", 2], 8: ["u32", 4], 9: ["u64", 8],
  10: ["f16", 2], 11: ["f32", 4], 12: ["f64", 8], 15: ["c64", 8], 16: ["bf16", 2], 17: ["token", 0], 18: ["c128", 16], 19: ["f8e5m2", 1], 20: ["f8e4m3fn", 1],
};
const TUPLE = 13;
const MOST_DEPTH = 32;

/** A parameter or a result. */
export interface HloTensor {
  readonly shape: readonly number[];
  /** XLA's word, such as `bf16`; `type 99` when the number is not known. */
  readonly dtype: string;
  readonly bytes: number;
}

/** An output that is written into a parameter's memory. */
export interface HloAlias {
  readonly output: number;
  readonly parameter: number;
  readonly kind: "may" | "must";
}

/** What a module says of its inputs and outputs. */
export interface HloModule {
  readonly name: string;
  /** By parameter number. */
  readonly parameters: readonly HloTensor[];
  /** Elements of the result tuple; a result that is no tuple is one. */
  readonly results: readonly HloTensor[];
  readonly aliases: readonly HloAlias[];
  /** Parameters whose memory may be reused; without an alias nothing is saved. */
  readonly donors: readonly number[];
  /** Parameters that are weights, where the tracer says so. */
  readonly weights: readonly number[];
  /** Attributes of the module. */
  readonly attributes: Readonly<Record<string, string>>;
}

/**
 * Reads a bare HloModuleProto (`model.hlo_module.pb`, `graph.hlo`).
 *
 * @param file for messages
 * @throws {ModelFileError} for bytes that are no module
 */
export function readHlo(bytes: Uint8Array, file: string): HloModule {
  let [name, program] = ["", undefined as Program | undefined];
  const [aliases, donors, attributes]: [HloAlias[], number[], Record<string, string>] = [[], [], {}];
  for (const field of protoFields(bytes, file)) {
    if (field.bytes === null) continue;
    if (field.number === 1) name = protoText(field);
    else if (field.number === 4) program = programOf(field.bytes, file);
    else if (field.number === 8) aliases.push(...aliasesOf(field.bytes, file));
    else if (field.number === 18) donors.push(...donorsOf(field.bytes, file));
    else if (field.number === 19) Object.assign(attributes, attributesOf(field.bytes, file));
  }
  if (program === undefined) throw new ModelFileError("it is no HLO module: it has no program shape", { file, kind: "invalid" });
  const { parameters, results } = program;
  for (const { output, parameter } of aliases) {
    if (output >= results.length || parameter >= parameters.length) {
      throw new ModelFileError(`output ${output} shares the memory of parameter ${parameter}; there are ${results.length} and ${parameters.length}`, { file, kind: "invalid" });
    }
  }
  return { name, parameters, results, aliases, donors, weights: weightsOf(attributes, parameters.length), attributes };
}

interface Program {
  readonly parameters: readonly HloTensor[];
  readonly results: readonly HloTensor[];
}

function programOf(bytes: Uint8Array, file: string): Program {
  const [parameters, results]: [HloTensor[], HloTensor[]] = [[], []];
  for (const field of protoFields(bytes, file)) {
    if (field.bytes === null) continue;
    if (field.number === 1) parameters.push(tensorOf(shapesOf(field.bytes, file)));
    else if (field.number === 2) results.push(...shapesOf(field.bytes, file));
  }
  return { parameters, results };
}

/** A parameter that is a tuple is one buffer per element; here they are one tensor of their bytes. */
function tensorOf(shapes: readonly HloTensor[]): HloTensor {
  return shapes.length === 1 ? shapes[0]! : { shape: [], dtype: "tuple", bytes: shapes.reduce((sum, { bytes }) => sum + bytes, 0) };
}

function shapesOf(bytes: Uint8Array, file: string, depth = 0): HloTensor[] {
  if (depth > MOST_DEPTH) throw new ModelFileError(`its shapes are nested more than ${MOST_DEPTH} deep`, { file, kind: "limit" });
  let type = 0;
  const shape: number[] = [];
  const inner: HloTensor[] = [];
  for (const field of protoFields(bytes, file)) {
    if (field.number === 2 && field.bytes === null) type = field.value;
    else if (field.number === 3) shape.push(...protoNumbers(field, file));
    else if (field.number === 4 && field.bytes !== null) inner.push(...shapesOf(field.bytes, file, depth + 1));
  }
  if (type === TUPLE) return inner;
  const [dtype, itemBytes] = ELEMENT_TYPES[type] ?? [`type ${type}`, 0];
  return [{ shape, dtype, bytes: shapeBytes(shape, itemBytes, file) }];
}

function aliasesOf(bytes: Uint8Array, file: string): HloAlias[] {
  return entriesOf(bytes, file).map((entry) => {
    const alias = { output: 0, parameter: 0, kind: "may" as HloAlias["kind"] };
    for (const field of protoFields(entry, file)) {
      if (field.number === 1) alias.output = protoNumbers(field, file)[0] ?? 0;
      else if (field.number === 2) alias.parameter = field.value;
      else if (field.number === 4 && field.value === 2) alias.kind = "must";
    }
    return alias;
  });
}

function donorsOf(bytes: Uint8Array, file: string): number[] {
  return entriesOf(bytes, file).map((entry) => [...protoFields(entry, file)].find(({ number }) => number === 1)?.value ?? 0);
}

function entriesOf(bytes: Uint8Array, file: string): Uint8Array[] {
  return [...protoFields(bytes, file)].flatMap((field) => (field.number === 1 && field.bytes !== null ? [field.bytes] : []));
}

function attributesOf(bytes: Uint8Array, file: string): Record<string, string> {
  const attributes: Record<string, string> = Object.create(null) as Record<string, string>;
  for (const entry of entriesOf(bytes, file)) {
    const texts = ["", ""];
    for (const field of protoFields(entry, file)) if (field.number <= 2) texts[field.number - 1] = protoText(field);
    attributes[texts[0]!] = texts[1]!;
  }
  return attributes;
}

/** `transposable_weight_idx` on the module whose layout the others take, `require_transpose_weight_idx` on those. */
function weightsOf(attributes: Readonly<Record<string, string>>, parameters: number): number[] {
  const text = attributes["transposable_weight_idx"] ?? attributes["require_transpose_weight_idx"] ?? "";
  return text.split(",").filter((one) => /^\s*\d+\s*$/.test(one)).map(Number).filter((one) => one < parameters);
}
