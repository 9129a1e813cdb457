/** One program of a deployment: its NEFF's facts and what its tensors are for. */
import type { Neff, TensorInfo } from "../neff/model.ts";
import type { InputRole, MetaNeff } from "./metaneff.ts";

/** An input or output of a program. */
export interface ProgramTensor {
  readonly name: string;
  readonly role: InputRole | "output";
  /** Weights and states of one key are one buffer of a rank; null when there is none. */
  readonly key: string | null;
  readonly shape: readonly number[] | null;
  readonly dtype: string | null;
  readonly bytes: number;
  /** Input whose memory an output is written into, or null. */
  readonly aliasOf: number | null;
}

/** One program: a NEFF in one place of a deployment. */
export interface DeploymentProgram {
  /** The model it is a bucket of; null for a NEFF of which nobody says. */
  readonly tag: string | null;
  readonly bucket: number;
  /** `load` for one that runs once, while weights are loaded; its tensors are those of the others. */
  readonly phase: "run" | "load";
  /** The file it is in. */
  readonly file: string;
  /** Of the NEFF's bytes. */
  readonly sha256: string;
  readonly neffBytes: number;
  /** Architecture; null for a NEFF that cannot be read. */
  readonly target: string | null;
  readonly compiler: string | null;
  readonly lnc: number | null;
  readonly inputs: readonly ProgramTensor[];
  readonly outputs: readonly ProgramTensor[];
  /** What the roles of the inputs come from, or null. */
  readonly rolesFrom: MetaNeff["rolesFrom"];
}

/** What a NEFF says of itself. */
export interface ProgramFacts {
  readonly neffBytes: number;
  readonly neff: (Pick<Neff, "target" | "compiler" | "inputs" | "outputs"> & { readonly lnc: number }) | null;
}

/** Puts a program together, and says where its metaneff and its NEFF do not agree. */
export function programOf(
  place: Pick<DeploymentProgram, "tag" | "bucket" | "phase" | "file" | "sha256">,
  { facts: { neffBytes, neff }, meta }: { readonly facts: ProgramFacts; readonly meta: MetaNeff | null },
): { readonly program: DeploymentProgram; readonly problems: readonly string[] } {
  const base = { ...place, neffBytes, target: neff?.target ?? null, compiler: neff?.compiler ?? null, lnc: neff?.lnc ?? null };
  if (meta === null) {
    const tensors = (list: readonly TensorInfo[], role: ProgramTensor["role"]) =>
      list.map(({ name, shape, dtype, size }): ProgramTensor => ({ name, role, key: null, shape, dtype, bytes: size, aliasOf: null }));
    return { program: { ...base, inputs: tensors(neff?.inputs ?? [], "unknown"), outputs: tensors(neff?.outputs ?? [], "output"), rolesFrom: null }, problems: [] };
  }
  const inputs = meta.inputs.map(({ name, role, key, shape, dtype, bytes }): ProgramTensor => ({ name, role, key, shape, dtype, bytes, aliasOf: null }));
  const outputs = meta.outputs.map(({ name, key, shape, dtype, bytes }, index): ProgramTensor =>
    ({ name, role: "output", key, shape, dtype, bytes, aliasOf: meta.aliases.get(index) ?? null }));
  return { program: { ...base, inputs, outputs, rolesFrom: meta.rolesFrom }, problems: disagreements(place, { neff, inputs }) };
}

/** Inputs of NEFF and metaneff are the same by their names, else by their order. Outputs may be more under LNC 2. */
function disagreements(
  { tag, bucket }: Pick<DeploymentProgram, "tag" | "bucket">,
  { neff, inputs }: { readonly neff: ProgramFacts["neff"]; readonly inputs: readonly ProgramTensor[] },
): string[] {
  if (neff === null) return [];
  const what = `${tag ?? "the program"} bucket ${bucket}: its metaneff is another program's`;
  if (neff.inputs.length > inputs.length) return [`${what}: it has ${inputs.length} inputs, the NEFF has ${neff.inputs.length}`];
  const byName = new Map(neff.inputs.map((tensor) => [tensor.name, tensor]));
  const named = inputs.some(({ name }) => byName.has(name));
  if (!named && neff.inputs.length !== inputs.length) return [`${what}: it has ${inputs.length} inputs, the NEFF has ${neff.inputs.length}`];
  const wrong = inputs.findIndex(({ name, bytes }, index) => {
    const other = named ? byName.get(name) : neff.inputs[index];
    return other !== undefined && other.size !== bytes;
  });
  if (wrong < 0) return [];
  const { name, bytes } = inputs[wrong]!;
  return [`${what}: its ${name} has ${bytes} bytes, the NEFF's has ${(named ? byName.get(name) : neff.inputs[wrong])!.size}`];
}
