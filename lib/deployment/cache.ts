/** Compile caches: what state each entry is in. Nothing is written or deleted. `docs/deployments.md`, "Caches". */
import { createHash } from "node:crypto";
import { readdir, readFile, stat } from "node:fs/promises";
import { basename, join, sep } from "node:path";
import { NeuronError } from "../../ffi/error.ts";
import { NeffError } from "../neff/error.ts";
import type { Neff } from "../neff/model.ts";
import { parseNeff } from "../neff/read.ts";
import { readNeffIn } from "../neff/read_neff.ts";
import { systemFault } from "../neff/source.ts";
import { ModelFileError } from "../sharding/error.ts";
import { readDeployment, sha256Of, withOpenFile } from "./deployment.ts";

/** States of an entry, as they are totalled. */
export const CACHE_STATES = ["good", "failed", "locked", "stale-lock", "hlo-only", "incomplete", "empty"] as const;

/** What became of a compilation. */
export type CacheState = (typeof CACHE_STATES)[number];

/** One entry of a cache: the folder of one compilation. */
export interface CacheEntry {
  readonly path: string;
  readonly state: CacheState;
  /** Of the NEFF's bytes; null without one. */
  readonly sha256: string | null;
  /** Version of the compiler: of the folder, else of the NEFF. */
  readonly compiler: string | null;
  /** Architecture of the NEFF, else what the compiler was asked for. */
  readonly target: string | null;
  readonly lnc: number | null;
  readonly neffBytes: number | null;
  /** What the NEFF takes on a device without its tensors, where that is asked for. */
  readonly deviceBytes: number | null;
  /** Archives of the folder that hold the same program. */
  readonly usedBy: readonly string[];
  /** Why it is not good, where a file says so. */
  readonly problem: string | null;
}

/** Entries with the same program: all but one could be spared. */
export interface EqualEntries {
  readonly sha256: string;
  readonly paths: readonly string[];
}

/** A cache, listed. */
export interface CacheReport {
  readonly folder: string;
  readonly entries: readonly CacheEntry[];
  readonly totals: Readonly<Record<CacheState, number>>;
  /** Bytes of all NEFFs, equal ones as often as they are there. */
  readonly neffBytes: number;
  readonly equal: readonly EqualEntries[];
  /** Archives that cannot be read. */
  readonly problems: readonly string[];
}

/** How a cache is listed. */
export interface CacheOptions {
  /** A lock that nothing has touched for so long is stale; default one hour. */
  readonly staleAfterMs?: number;
  /** Device bytes of a program. */
  readonly measure?: (neff: Neff) => number;
  /** Told of each entry as it comes. */
  readonly onEntry?: (entry: CacheEntry) => void;
}

const HOUR_MS = 3_600_000;
/** NEFFs up to this size are read at once. */
const WHOLE_BYTES = 32 * 2 ** 20;
const TEXT_BYTES = 2 ** 20;
const MODEL = { neff: /^model\.neff$/, hlo: /^model\.hlo(_module)?\.pb$/, done: "model.done", log: "model.log", flags: "compile_flags.json" };
const GRAPH = { neff: /^graph.*\.neff$/, hlo: /^graph\.hlo$/, done: ".compilation_complete", log: "log-neuron-cc.txt", flags: "command.txt" };
const ENTRY_NAME = /^(MODULE_.+|[0-9a-f]{32})$/;

/**
 * Lists a cache while it may be written to: a file that goes away meanwhile is one that is not there.
 *
 * @throws {NeffError} for a folder that cannot be read
 */
export async function readCache(folder: string, options: CacheOptions = {}): Promise<CacheReport> {
  const facts = await stat(folder).catch((error: unknown) => {
    throw systemFault(folder, error);
  });
  if (!facts.isDirectory()) throw new ModelFileError("it is no folder", { file: folder, kind: "not-a-file", hint: "Give the folder of a compile cache." });
  const reader = new CacheReader(options);
  const archives: string[] = [];
  const found: Listing[] = [];
  for await (const listing of listingsBelow(folder, archives)) found.push(listing);
  const problems = await reader.uses(archives);
  const totals: Record<CacheState, number> = { good: 0, failed: 0, locked: 0, "stale-lock": 0, "hlo-only": 0, incomplete: 0, empty: 0 };
  const entries: CacheEntry[] = [];
  for (const listing of found) {
    const entry = await reader.entry(listing);
    totals[entry.state]++;
    entries.push(entry);
    options.onEntry?.(entry);
  }
  return { folder, entries, totals, neffBytes: entries.reduce((sum, { neffBytes }) => sum + (neffBytes ?? 0), 0), equal: equalOf(entries), problems };
}

interface Listing {
  readonly path: string;
  readonly names: readonly string[];
}

/** Folders that are entries, by name; others are gone through. */
async function* listingsBelow(folder: string, archives: string[]): AsyncGenerator<Listing> {
  const found = await readdir(folder, { withFileTypes: true }).catch(() => []);
  const [folders, names] = [found.filter((one) => one.isDirectory()), found.filter((one) => !one.isDirectory()).map(({ name }) => name)];
  archives.push(...names.filter((name) => name.endsWith(".pt")).map((name) => join(folder, name)));
  const isOwn = names.some((name) => MODEL.neff.test(name) || MODEL.hlo.test(name) || GRAPH.hlo.test(name) || [MODEL.done, MODEL.log, MODEL.flags, GRAPH.done].includes(name));
  if (isOwn || (ENTRY_NAME.test(basename(folder)) && folders.length === 0)) yield { path: folder, names };
  for (const { name } of folders.sort((a, b) => (a.name < b.name ? -1 : 1))) yield* listingsBelow(join(folder, name), archives);
}

type Program = Pick<CacheEntry, "compiler" | "target" | "lnc" | "deviceBytes" | "problem">;
const NO_PROGRAM: Program = { compiler: null, target: null, lnc: null, deviceBytes: null, problem: null };

class CacheReader {
  readonly #options: CacheOptions;
  readonly #programs = new Map<string, Program>();
  readonly #uses = new Map<string, string[]>();

  constructor(options: CacheOptions) {
    this.#options = options;
  }

  /** Notes what archives hold; returns what cannot be read of them. */
  async uses(archives: readonly string[]): Promise<string[]> {
    const problems: string[] = [];
    for (const archive of archives) {
      try {
        for (const { sha256 } of (await readDeployment(archive)).programs) this.#uses.set(sha256, [...new Set([...this.#uses.get(sha256) ?? [], archive])]);
      } catch (error) {
        if (!(error instanceof NeuronError)) throw error;
        problems.push(error.message);
      }
    }
    return problems;
  }

  async entry({ path, names }: Listing): Promise<CacheEntry> {
    const form = names.some((name) => GRAPH.hlo.test(name) || GRAPH.neff.test(name) || name === GRAPH.done) ? GRAPH : MODEL;
    const neffName = names.find((name) => form.neff.test(name));
    const neffBytes = neffName === undefined ? null : (await stat(join(path, neffName)).catch(() => null))?.size ?? null;
    const { sha256, program } = neffName === undefined || !neffBytes ? { sha256: null, program: NO_PROGRAM } : await this.#program(join(path, neffName));
    // The compiler's arguments are asked only where the NEFF does not say.
    const asked = program.target !== null || !names.includes(form.flags) ? { target: null, lnc: null } : await flagsOf(join(path, form.flags));
    const before = await this.#stateOf({ path, names }, { form, neffBytes });
    const state = before === "good" && program.problem !== null ? "incomplete" : before;
    return {
      path, state, sha256, compiler: versionIn(path) ?? program.compiler, target: program.target ?? asked.target, lnc: program.lnc ?? asked.lnc,
      neffBytes, deviceBytes: program.deviceBytes, usedBy: sha256 === null ? [] : this.#uses.get(sha256) ?? [],
      problem: program.problem ?? (state === "failed" ? await firstLine(join(path, form.log)) : null),
    };
  }

  async #stateOf({ path, names }: Listing, { form, neffBytes }: { readonly form: typeof MODEL; readonly neffBytes: number | null }): Promise<CacheState> {
    if (neffBytes && names.includes(form.done)) return form === MODEL || await isWhole(join(path, form.done), neffBytes) ? "good" : "incomplete";
    const locks = names.filter((name) => name.endsWith(".lock"));
    const isOpen = form === GRAPH ? !names.includes(GRAPH.done) : locks.length > 0;
    if (isOpen && await this.#isFresh(path, names)) return "locked";
    if (neffBytes !== null) return locks.length > 0 ? "stale-lock" : "incomplete";
    if (names.includes(form.log)) return "failed";
    if (locks.length > 0) return "stale-lock";
    if (names.includes(form.done)) return "incomplete";
    if (names.some((name) => form.hlo.test(name))) return "hlo-only";
    return names.length === 0 ? "empty" : "incomplete";
  }

  /** Locks have no owner: only their age, and that of the files beside them, tells. */
  async #isFresh(path: string, names: readonly string[]): Promise<boolean> {
    const oldest = Date.now() - (this.#options.staleAfterMs ?? HOUR_MS);
    for (const name of names) if (((await stat(join(path, name)).catch(() => null))?.mtimeMs ?? 0) > oldest) return true;
    return false;
  }

  async #program(path: string): Promise<{ readonly sha256: string | null; readonly program: Program }> {
    try {
      return await withOpenFile(path, async (source) => {
        const bytes = source.size <= WHOLE_BYTES ? await source.read(0, source.size) : null;
        const sha256 = bytes === null ? await sha256Of(source) : createHash("sha256").update(bytes).digest("hex");
        const known = this.#programs.get(sha256);
        if (known !== undefined) return { sha256, program: known };
        const program = await this.#read(() => (bytes === null ? readNeffIn(source) : parseNeff(bytes)));
        this.#programs.set(sha256, program);
        return { sha256, program };
      });
    } catch (error) {
      if (!(error instanceof NeffError)) throw error;
      return { sha256: null, program: { ...NO_PROGRAM, problem: error.message } };
    }
  }

  async #read(open: () => Neff | Promise<Neff>): Promise<Program> {
    try {
      const neff = await open();
      const { compiler, target, header, subgraphs } = neff;
      return { compiler, target, lnc: header.lncSize || subgraphs.length, deviceBytes: this.#options.measure?.(neff) ?? null, problem: null };
    } catch (error) {
      if (!(error instanceof NeuronError)) throw error;
      return { ...NO_PROGRAM, problem: error.message };
    }
  }
}

/** A completion mark may say how long the NEFF is. */
async function isWhole(done: string, neffBytes: number): Promise<boolean> {
  const said = /neff_size:\s*(\d+)/.exec(await textOf(done))?.[1];
  return said === undefined || Number(said) === neffBytes;
}

async function flagsOf(file: string): Promise<{ readonly target: string | null; readonly lnc: number | null }> {
  const words = (await textOf(file)).split(/[\s",=[\]']+/);
  const after = (...names: readonly string[]): string | null => words[words.findIndex((word) => names.includes(word)) + 1] ?? null;
  const has = (...names: readonly string[]): boolean => words.some((word) => names.includes(word));
  const lnc = has("--lnc", "-lnc", "--logical-nc-config") ? Number(after("--lnc", "-lnc", "--logical-nc-config")) : Number.NaN;
  return { target: has("--target") ? after("--target") : null, lnc: Number.isSafeInteger(lnc) ? lnc : null };
}

async function firstLine(file: string): Promise<string | null> {
  const lines = (await textOf(file)).split("\n").map((line) => line.trim()).filter((line) => line !== "");
  return (lines.find((line) => /error|fail/i.test(line)) ?? lines[0] ?? "").slice(0, 300) || null;
}

async function textOf(file: string): Promise<string> {
  const facts = await stat(file).catch(() => null);
  return facts === null || !facts.isFile() || facts.size > TEXT_BYTES ? "" : readFile(file, "utf8").catch(() => "");
}

/** `neuronxcc-2.20.9961.0+0acef03a` in a path. */
function versionIn(path: string): string | null {
  return path.split(sep).map((part) => /^(?:USER_)?neuron(?:x)?cc-(.+)$/.exec(part)?.[1]).find((part) => part !== undefined) ?? null;
}

function equalOf(entries: readonly CacheEntry[]): EqualEntries[] {
  const groups = new Map<string, string[]>();
  for (const { sha256, path } of entries) {
    if (sha256 === null) continue;
    const group = groups.get(sha256);
    if (group === undefined) groups.set(sha256, [path]);
    else group.push(path);
  }
  return [...groups].flatMap(([sha256, paths]) => (paths.length > 1 ? [{ sha256, paths }] : []));
}
