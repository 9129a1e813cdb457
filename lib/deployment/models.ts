/** The programs of a deployment as models to be placed, with what they share. */
import type { Neff } from "../neff/model.ts";
import { readNeffIn } from "../neff/read_neff.ts";
import { readArchive } from "./archive.ts";
import { withOpenFile } from "./deployment.ts";
import type { MetaNeff } from "./metaneff.ts";
import { programOf } from "./program.ts";

/** The programs of an archive. */
export interface ArchiveModels {
  /** Definitions of each program, under its tag and bucket. */
  readonly neffs: readonly Neff[];
  /** Key of a program's tensor: tensors of one key are one buffer of a rank; null for one of its own. */
  readonly keyOf: (program: number, tensor: string) => string | null;
  /** Why sharing is not known of some: their tensors count per program, at most too much. */
  readonly problems: readonly string[];
}

/**
 * Reads the programs of an archive for counting: weights and states have their key in the state dictionary, an output
 * that is written into an input has that input's. A tensor whose size the metaneff gives otherwise has none.
 *
 * @throws {ModelFileError} for an archive that cannot be read
 * @throws {NeffError} for a program in it that cannot be read
 */
export function readArchiveModels(file: string): Promise<ArchiveModels> {
  return withOpenFile(file, async (source) => {
    const { programs, problems: before } = await readArchive(source);
    const neffs: Neff[] = [];
    const keys: ReadonlyMap<string, string>[] = [];
    const problems = [...before];
    for (const [index, { tag, bucket, phase, neff: bytes, meta }] of programs.entries()) {
      const neff = await readNeffIn(bytes);
      neffs.push({ ...neff, header: { ...neff.header, name: `${tag ?? "program"} ${bucket}` } });
      const facts = { neffBytes: bytes.size, neff: { ...neff, lnc: neff.header.lncSize } };
      problems.push(...programOf({ tag, bucket, phase, file, sha256: "" }, { facts, meta }).problems);
      keys.push(meta === null ? new Map() : keysOf(neff, meta, index));
    }
    return { neffs, keyOf: (program, tensor) => keys[program]?.get(tensor) ?? null, problems };
  });
}

function keysOf(neff: Neff, { inputs, outputs, aliases }: MetaNeff, program: number): Map<string, string> {
  const keys = new Map<string, string>();
  const named = (list: Neff["inputs"], name: string, index: number) => list.find((tensor) => tensor.name === name) ?? list[index];
  const inputKeys = inputs.map(({ name, role, key, bytes }, index) => {
    const tensor = named(neff.inputs, name, index);
    if (tensor === undefined || tensor.size !== bytes || (role !== "weight" && role !== "state" && ![...aliases.values()].includes(index))) return null;
    // The program that changes the layout of weights writes a point for an arrow in their names.
    const id = key === null || (role !== "weight" && role !== "state") ? `own ${program} ${index}` : `${role} ${bytes} ${key.replaceAll("->", ".")}`;
    keys.set(tensor.name, id);
    return id;
  });
  for (const [output, input] of aliases) {
    const tensor = named(neff.outputs, outputs[output]!.name, output);
    const key = inputKeys[input];
    if (tensor !== undefined && key != null && tensor.size === inputs[input]!.bytes) keys.set(tensor.name, key);
  }
  return keys;
}
