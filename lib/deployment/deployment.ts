/** What is deployed: programs from archives, folders and single files, and what they share. `docs/deployments.md`. */
import { createHash } from "node:crypto";
import { readdir, stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { NeffError } from "../neff/error.ts";
import { DEFAULT_LIMITS } from "../neff/limits.ts";
import { looksLikeNeff } from "../neff/header.ts";
import { readNeffIn } from "../neff/read_neff.ts";
import { type FileBytes, openSource, readChunks, systemFault } from "../neff/source.ts";
import { placeIn } from "../neff/stream.ts";
import { ModelFileError } from "../sharding/error.ts";
import { readModelFolder } from "../sharding/model_folder.ts";
import { type ArchivedProgram, readArchive } from "./archive.ts";
import { countTensors, type TensorCount } from "./count.ts";
import { readHlo } from "./hlo.ts";
import { type MetaNeff, metaneffOfHlo, readMetaneff } from "./metaneff.ts";
import { type DeploymentProgram, programOf, type ProgramFacts } from "./program.ts";
import { looksLikeZip, partOf } from "./zip.ts";

/** A deployment as it lies on a disk. */
export interface Deployment {
  /** `nxd` for an archive of NxD's builder, `trace` for one of `torch_neuronx.trace`, `archive` for one that was searched. */
  readonly kind: "nxd" | "trace" | "archive" | "folder";
  readonly file: string;
  readonly programs: readonly DeploymentProgram[];
  /** Different NEFFs among the programs, by their bytes. */
  readonly uniqueNeffs: number;
  /** What a rank's tensors take. */
  readonly count: TensorCount;
  /** What was not understood or does not agree, a line each. */
  readonly problems: readonly string[];
}

const MOST_FILES = 100_000;
const HLO_BYTES = 512 * 2 ** 20;

/** Whether a path is something to read as a deployment: a folder, or an archive. */
export async function isDeployment(path: string): Promise<boolean> {
  const facts = await stat(path).catch(() => null);
  if (facts === null || facts.isDirectory()) return facts !== null;
  if (!facts.isFile()) return false;
  return (await withOpenFile(path, async (source) => looksLikeZip(await source.read(0, 4)))) || path.endsWith(".pt");
}

/**
 * Reads an archive (`model.pt`, `nxd_model.pt`, a traced `.pt`) or a folder with what lies below it.
 * Only headers and definitions are read, nothing is run.
 *
 * @throws {ModelFileError} for what holds no program, a damaged archive, and a pickle with code in it
 */
export async function readDeployment(path: string): Promise<Deployment> {
  const facts = await stat(path).catch((error: unknown) => {
    throw systemFault(path, error);
  });
  return facts.isDirectory() ? fromFolder(path) : withOpenFile(path, async (source) => {
    const { kind, programs, problems } = await readArchive(source);
    const reader = new ProgramReader();
    const read: DeploymentProgram[] = [];
    for (const program of programs) read.push(await reader.archived(program, path));
    return deploymentOf({ kind, file: path, programs: read, problems: [...problems, ...reader.problems] });
  });
}

/** Opens a file, and closes it when the work is done. */
export async function withOpenFile<T>(path: string, work: (source: FileBytes) => Promise<T>): Promise<T> {
  const source = await openSource(path);
  try {
    return await work(source);
  } finally {
    await source.close();
  }
}

/** SHA-256 of bytes, as hex. */
export async function sha256Of(bytes: FileBytes): Promise<string> {
  const hash = createHash("sha256");
  for await (const chunk of readChunks(bytes, { offset: 0, length: bytes.size })) hash.update(chunk);
  return hash.digest("hex");
}

function deploymentOf({ kind, file, programs, problems }: Pick<Deployment, "kind" | "file" | "programs" | "problems">): Deployment {
  const count = countTensors(programs);
  return { kind, file, programs, uniqueNeffs: new Set(programs.map(({ sha256 }) => sha256)).size, count, problems: [...problems, ...count.problems] };
}

/** Reads each NEFF once, however often it is met. */
class ProgramReader {
  readonly problems: string[] = [];
  readonly #facts = new Map<string, ProgramFacts>();

  async archived({ tag, bucket, phase, neff, meta }: ArchivedProgram, file: string): Promise<DeploymentProgram> {
    const sha256 = await sha256Of(neff);
    return this.#program({ tag, bucket, phase, file, sha256 }, { facts: await this.#factsOf(neff, sha256), meta });
  }

  /** A NEFF that is a file, plain or wrapped. Null when it is known already. */
  async plain(path: string, known: ReadonlySet<string>): Promise<DeploymentProgram | null> {
    return withOpenFile(path, async (source) => {
      const { base, length } = await placeIn(source, DEFAULT_LIMITS);
      const neff = partOf(source, { offset: base, length, name: path });
      const sha256 = await sha256Of(neff);
      if (known.has(sha256)) return null;
      const facts = await this.#factsOf(neff, sha256);
      return this.#program({ tag: null, bucket: 0, phase: "run", file: path, sha256 }, { facts, meta: await metaBeside(path) });
    });
  }

  #program(place: Pick<DeploymentProgram, "tag" | "bucket" | "phase" | "file" | "sha256">, parts: { facts: ProgramFacts; meta: MetaNeff | null }): DeploymentProgram {
    const { program, problems } = programOf(place, parts);
    this.problems.push(...problems);
    return program;
  }

  async #factsOf(bytes: FileBytes, sha256: string): Promise<ProgramFacts> {
    const known = this.#facts.get(sha256);
    if (known !== undefined) return known;
    const facts: ProgramFacts = { neffBytes: bytes.size, neff: await this.#read(bytes) };
    this.#facts.set(sha256, facts);
    return facts;
  }

  async #read(bytes: FileBytes): Promise<ProgramFacts["neff"]> {
    try {
      const { target, compiler, header, inputs, outputs, subgraphs } = await readNeffIn(bytes);
      return { target, compiler, lnc: header.lncSize || subgraphs.length, inputs, outputs };
    } catch (error) {
      if (!(error instanceof NeffError)) throw error;
      this.problems.push(error.message);
      return null;
    }
  }
}

/** The metaneff or HLO that a compiler's folder has beside a NEFF. */
async function metaBeside(path: string): Promise<MetaNeff | null> {
  for (const name of ["metaneff.pb", "metaneff", "model.hlo_module.pb", "model.hlo.pb", "graph.hlo", "model/graph.hlo"]) {
    const file = join(dirname(path), name);
    const facts = await stat(file).catch(() => null);
    if (facts === null || !facts.isFile() || facts.size === 0 || facts.size > HLO_BYTES) continue;
    try {
      const bytes = await withOpenFile(file, (source) => source.read(0, source.size));
      return name.startsWith("metaneff") ? readMetaneff(bytes, file) : metaneffOfHlo(readHlo(bytes, file));
    } catch (error) {
      if (!(error instanceof ModelFileError)) throw error;
    }
  }
  return null;
}

async function fromFolder(folder: string): Promise<Deployment> {
  const [archives, neffs] = await filesBelow(folder);
  const reader = new ProgramReader();
  const programs: DeploymentProgram[] = [];
  const problems: string[] = [];
  for (const path of archives) {
    await noted(problems, async () => {
      const one = await readDeployment(path);
      programs.push(...one.programs);
      problems.push(...one.problems.filter((line) => !one.count.problems.includes(line)));
    });
  }
  const hasArchive = programs.length > 0;
  const known = new Set(programs.map(({ sha256 }) => sha256));
  let others = 0;
  for (const path of neffs) {
    await noted(problems, async () => {
      const program = await reader.plain(path, known);
      if (program === null) return;
      known.add(program.sha256);
      if (hasArchive) others++;
      else programs.push({ ...program, bucket: programs.length });
    });
  }
  if (others > 0) problems.push(`${others} NEFFs of the folder are in none of its archives; they are not counted`);
  problems.push(...reader.problems, ...await weightProblems(folder));
  if (programs.length === 0) {
    throw new ModelFileError(problems[0] === undefined ? "it holds no compiled program" : `it holds no compiled program that can be read: ${problems[0]}`, {
      file: folder, kind: "missing", hint: "fit --model answers for a model that is not compiled yet.",
    });
  }
  return deploymentOf({ kind: "folder", file: folder, programs, problems });
}

/** What the configuration and the weights beside the programs lack. */
async function weightProblems(folder: string): Promise<readonly string[]> {
  const names = await readdir(folder);
  if (!names.some((name) => name === "config.json" || name === "neuron_config.json")) return [];
  try {
    return (await readModelFolder(folder)).problems;
  } catch (error) {
    if (error instanceof ModelFileError) return [error.message];
    throw error;
  }
}

/** A file of a folder that cannot be read is a line, unless it is one that would run something. */
async function noted(problems: string[], work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (!(error instanceof ModelFileError) && !(error instanceof NeffError)) throw error;
    problems.push(error.message);
  }
}

/** Archives, and NEFFs plain and wrapped, by name; links to folders are not followed. */
async function filesBelow(folder: string): Promise<[archives: string[], neffs: string[]]> {
  const [archives, neffs]: [string[], string[]] = [[], []];
  const open = [folder];
  for (let next = open.shift(), count = 0; next !== undefined; next = open.shift()) {
    const entries = await readdir(next, { withFileTypes: true }).catch(() => []);
    count += entries.length;
    if (count > MOST_FILES) throw new ModelFileError(`it has more than ${MOST_FILES} files`, { file: folder, kind: "limit" });
    for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const path = join(next, entry.name);
      if (entry.isDirectory()) open.push(path);
      else if (entry.name.endsWith(".pt")) archives.push(path);
      else if (/\.neff$|^wrapped_neff\.hlo$/.test(basename(path)) && await isNeffFile(path)) neffs.push(path);
    }
  }
  return [archives, neffs];
}

async function isNeffFile(path: string): Promise<boolean> {
  if (path.endsWith(".hlo")) return true;
  return withOpenFile(path, async (source) => source.size > 0 && looksLikeNeff(await source.read(0, 16))).catch(() => false);
}
