/** The message beside each NEFF that says what its tensors are: roles, keys and aliases. `docs/deployments.md`, "metaneff". */
import { ModelFileError } from "../sharding/error.ts";
import { type HloModule, readHlo } from "./hlo.ts";
import { protoFields, protoNumbers, type ProtoField, protoText, shapeBytes } from "./protobuf.ts";

/** Name and bytes of an element by `MetaTensor.DataType`. */
const DATA_TYPES: Readonly<Record<number, readonly [string, number]>> = {
  1: ["float32", 4], 2: ["int32", 4], 3: ["byte", 1], 4: ["string", 1], 5: ["bool", 1], 6: ["uint8", 1], 7: ["int8", 1], 8: ["uint16", 2], 9: ["int16", 2],
  10: ["int64", 8], 12: ["float16", 2], 13: ["float64", 8], 14: ["bfloat16", 2], 15: ["float8_e4m3", 1], 16: ["float8_e5m2", 1],
};

/** What an input is for; `unknown` where no file says. */
export type InputRole = "user" | "state" | "weight" | "unknown";
const ROLES: readonly InputRole[] = ["unknown", "user", "state", "weight"];

/** One tensor of a program. */
export interface MetaTensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly dtype: string;
  readonly bytes: number;
  /** Of outputs always `unknown`. */
  readonly role: InputRole;
  /** Name in the state dictionary of the rank, or of the user's argument; null when there is none. */
  readonly key: string | null;
}

/** What a metaneff says. */
export interface MetaNeff {
  readonly name: string;
  readonly inputs: readonly MetaTensor[];
  readonly outputs: readonly MetaTensor[];
  /** Input whose memory an output is written into, by output. */
  readonly aliases: ReadonlyMap<number, number>;
  /** Where the roles are from. */
  readonly rolesFrom: "metaneff" | "hlo" | "aliases" | null;
}

/**
 * Reads a metaneff. Where it has no roles, they come from the HLO in it: inputs that outputs alias are
 * states, those marked as weights are weights. Fields that are not known are passed over.
 *
 * @param file for messages
 * @throws {ModelFileError} for bytes that are no metaneff
 */
export function readMetaneff(bytes: Uint8Array, file: string): MetaNeff {
  const [inputs, outputs, aliases]: [MetaTensor[], MetaTensor[], Map<number, number>] = [[], [], new Map()];
  let name = "";
  let graph: Uint8Array | null = null;
  for (const field of protoFields(bytes, file)) {
    if (field.bytes === null) continue;
    if (field.number === 1) inputs.push(tensorOf(field.bytes, file));
    else if (field.number === 2) outputs.push(tensorOf(field.bytes, file));
    else if (field.number === 4) graph = field.bytes;
    else if (field.number === 5) name = protoText(field);
    else if (field.number === 6) addAlias(aliases, field.bytes, file);
  }
  if (inputs.length + outputs.length === 0) throw new ModelFileError("it is no metaneff: it has no tensors", { file, kind: "invalid" });
  for (const [output, input] of aliases) {
    if (inputs[input] === undefined || outputs[output] === undefined) {
      throw new ModelFileError(`output ${output} shares the memory of input ${input}; there are ${outputs.length} and ${inputs.length}`, { file, kind: "invalid" });
    }
  }
  const found = { name, inputs, outputs, aliases };
  return inputs.some(({ role }) => role !== "unknown") ? { ...found, rolesFrom: "metaneff" } : withRoles(found, hloIn(graph, file));
}

/** Whether the tensors are named as Neuron's tracers name them: what tells a metaneff from other bytes. */
export function isNeuronNamed({ inputs, outputs }: MetaNeff): boolean {
  return inputs.some(({ name }) => /^input\d+$/.test(name)) || outputs.some(({ name }) => /^output\d+$/.test(name));
}

/** A metaneff without roles takes them from an HLO, or from its aliases alone. */
export function withRoles(meta: Omit<MetaNeff, "rolesFrom">, hlo: HloModule | null): MetaNeff {
  const fits = hlo !== null && hlo.parameters.length === meta.inputs.length;
  const aliases = new Map(meta.aliases);
  if (fits && aliases.size === 0) for (const { output, parameter } of hlo.aliases) if (output < meta.outputs.length) aliases.set(output, parameter);
  const states = new Set(aliases.values());
  const weights = new Set(fits ? hlo.weights : []);
  const roleOf = (index: number): InputRole => (states.has(index) ? "state" : weights.has(index) ? "weight" : "unknown");
  const inputs = meta.inputs.map((tensor, index) => ({ ...tensor, role: roleOf(index) }));
  const rolesFrom = states.size + weights.size === 0 ? null : fits ? "hlo" : "aliases";
  return { ...meta, inputs, aliases, rolesFrom };
}

/** The tensors of a program of which there is only the HLO. */
export function metaneffOfHlo(hlo: HloModule): MetaNeff {
  const tensors = (list: HloModule["results"], word: string) => list.map((one, index): MetaTensor => ({ ...one, name: `${word}${index}`, role: "unknown", key: null }));
  return withRoles({ name: hlo.name, inputs: tensors(hlo.parameters, "input"), outputs: tensors(hlo.results, "output"), aliases: new Map() }, hlo);
}

function hloIn(graph: Uint8Array | null, file: string): HloModule | null {
  if (graph === null || graph.length === 0) return null;
  try {
    return readHlo(graph, file);
  } catch (error) {
    // Not every tracer puts an HLO there.
    if (error instanceof ModelFileError) return null;
    throw error;
  }
}

function tensorOf(bytes: Uint8Array, file: string): MetaTensor {
  const texts = new Map<number, string>();
  const shape: number[] = [];
  let [type, role] = [0, 0];
  for (const field of protoFields(bytes, file)) {
    if (field.number === 2) shape.push(...protoNumbers(field, file));
    else if (field.number === 3) type = field.value;
    else if (field.number === 7) role = field.value;
    else if (isText(field)) texts.set(field.number, protoText(field));
  }
  const [dtype, itemBytes] = DATA_TYPES[type] ?? [`type ${type}`, 0];
  if (itemBytes === 0) throw new ModelFileError(`tensor "${texts.get(1) ?? ""}" has ${dtype}, which is not known`, { file, kind: "unsupported" });
  return {
    name: texts.get(1) ?? "", shape, dtype, bytes: shapeBytes(shape, itemBytes, file), role: ROLES[role] ?? "unknown",
    key: texts.get(6) || texts.get(8) || null,
  };
}

function isText({ number, bytes }: ProtoField): boolean {
  return bytes !== null && (number === 1 || number === 6 || number === 8);
}

function addAlias(aliases: Map<number, number>, entry: Uint8Array, file: string): void {
  let [output, input] = [0, 0];
  for (const { number, value } of protoFields(entry, file)) {
    if (number === 1) output = value;
    else if (number === 2) input = value;
  }
  aliases.set(output, input);
}
