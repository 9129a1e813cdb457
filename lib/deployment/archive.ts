/** The programs in an archive that PyTorch wrote: found by its pickle, read in place. `docs/deployments.md`, "Archives". */
import { decodeHeader, HEADER_BYTES, HIGHEST_MAJOR, looksLikeNeff } from "../neff/header.ts";
import type { FileBytes } from "../neff/source.ts";
import { ModelFileError } from "../sharding/error.ts";
import { isNeuronNamed, type MetaNeff, readMetaneff } from "./metaneff.ts";
import { isKind, type PickleObject, type PickleText, type PickleValue, PickleCodeError, readPickle } from "./pickle.ts";
import { openMember, partOf, readZip, type ZipMember } from "./zip.ts";

/** A program as an archive holds it. */
export interface ArchivedProgram {
  /** Name of the model it is a bucket of; null where the archive does not tell. */
  readonly tag: string | null;
  readonly bucket: number;
  /** `load` for one that runs once, while weights are loaded. */
  readonly phase: "run" | "load";
  /** Its bytes, in the archive. */
  readonly neff: FileBytes;
  /** The metaneff's bytes; null when there is none. */
  readonly metaneff: FileBytes | null;
  readonly meta: MetaNeff | null;
}

/** What an archive holds. */
export interface ProgramArchive {
  /** How it was made: by NxD's builder, by `torch_neuronx.trace`, or not known. */
  readonly kind: "nxd" | "trace" | "archive";
  readonly programs: readonly ArchivedProgram[];
  /** What was not understood, a line each. */
  readonly problems: readonly string[];
}

const CLASSES = "__torch__.torch.classes.neuron.";
const METANEFF_BYTES = 256 * 2 ** 20;
const MOST_DEPTH = 64;

/**
 * Reads what is in an archive, which stays open: its NEFFs are parts of it.
 *
 * @throws {PickleCodeError} for a pickle with code
 * @throws {ModelFileError} for what is no archive, and for one without any NEFF
 */
export async function readArchive(source: FileBytes): Promise<ProgramArchive> {
  const members = await readZip(source);
  const pickle = members.find(({ name }) => /^([^/]+\/)?data\.pkl$/.test(name));
  const problems: string[] = [];
  const found = pickle === undefined ? null : await fromPickle(await openMember(source, pickle), problems);
  if (found !== null && found.programs.length > 0) return { ...found, problems };
  const programs = await searchMembers(source, members);
  if (programs.length === 0) {
    throw new ModelFileError(problems[0] === undefined ? `it holds no NEFF in ${members.length} members` : `it holds no NEFF that could be found, and ${problems[0]}`, {
      file: source.name ?? "the archive", kind: "invalid", hint: "Archives of models compiled for Neuron hold NEFFs; a checkpoint of weights does not.",
    });
  }
  problems.push("its programs were found by searching for NEFF headers: buckets, roles and repeated programs are not known");
  return { kind: "archive", programs, problems };
}

async function fromPickle(pickle: FileBytes, problems: string[]): Promise<Omit<ProgramArchive, "problems"> | null> {
  let root: PickleValue;
  try {
    root = await readPickle(pickle);
  } catch (error) {
    if (error instanceof PickleCodeError || !(error instanceof ModelFileError)) throw error;
    problems.push(error.message);
    return null;
  }
  const programs: ArchivedProgram[] = [];
  const kinds = new Set<string>();
  for (const { object, path } of neuronObjects(root)) {
    const name = object.className.slice(CLASSES.length);
    kinds.add(name);
    programs.push(...await programsOf(object, { ...placeOf(path, name), pickle, problems }));
  }
  return { kind: kinds.has("SPMDModel") ? "nxd" : kinds.has("Model") ? "trace" : "archive", programs };
}

interface Found {
  readonly object: PickleObject;
  readonly path: readonly (string | number)[];
}

/** The objects of Neuron's own classes, in the order of the pickle; each once, however often it is named. */
function neuronObjects(root: PickleValue): Found[] {
  const seen = new Set<PickleValue>();
  const found: Found[] = [];
  const open: { value: PickleValue; path: readonly (string | number)[] }[] = [{ value: root, path: [] }];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { value, path } = next;
    if (typeof value !== "object" || value === null || seen.has(value) || path.length > MOST_DEPTH) continue;
    seen.add(value);
    if (value.kind === "object" && value.className.startsWith(CLASSES)) found.push({ object: value, path });
    else open.push(...childrenOf(value).map(([key, child]) => ({ value: child, path: key === null ? path : [...path, key] })).reverse());
  }
  return found;
}

function childrenOf(value: Exclude<PickleValue, null | boolean | number>): [string | number | null, PickleValue][] {
  if (value.kind === "object") return [[null, value.state], [null, value.args]];
  if (value.kind === "list") return value.items.map((item, index) => [index, item]);
  if (value.kind !== "dict") return [];
  return value.entries.map(([key, item]) => [isKind(key, "text") ? key.text : typeof key === "number" ? key : null, item]);
}

/** Attributes on the way to a program that name no model. */
const STEPS = new Set(["models", "_modules", "nxd_model", "spmd_models", "model"]);

function placeOf(path: readonly (string | number)[], className: string): Pick<ArchivedProgram, "tag" | "bucket" | "phase"> {
  const names = path.filter((step): step is string => typeof step === "string");
  const last = path.at(-1);
  const tag = names.findLast((name) => !STEPS.has(name) && !/^\d+$/.test(name)) ?? names.at(-1) ?? null;
  if (className === "LayoutTransformation") return { tag: tag ?? "layout_transformation", bucket: 0, phase: "load" };
  const numbered = tag === null ? null : /^(.*?)_(?:bk|bucket_?)?(\d+)$/.exec(tag);
  if (numbered !== null && path.includes("spmd_models")) return { tag: numbered[1]!, bucket: Number(numbered[2]), phase: "run" };
  return { tag, bucket: typeof last === "number" ? last : /^\d+$/.test(last ?? "") ? Number(last) : 0, phase: "run" };
}

type Place = Pick<ArchivedProgram, "tag" | "bucket" | "phase"> & { readonly pickle: FileBytes; readonly problems: string[] };

/** A state's items are not told apart by their place, which differs between releases, but by what they are. */
async function programsOf({ state, args, className }: PickleObject, { tag, bucket, phase, pickle, problems }: Place): Promise<ArchivedProgram[]> {
  const neffs: FileBytes[] = [];
  const metas: { bytes: FileBytes; meta: MetaNeff }[] = [];
  for (const { offset, length } of [...textsIn(state), ...textsIn(args)]) {
    const bytes = partOf(pickle, { offset, length, name: `${pickle.name ?? ""}, ${tag ?? className} ${bucket}` });
    if (length >= HEADER_BYTES && looksLikeNeff(await bytes.read(0, 16))) neffs.push(bytes);
    else {
      const meta = await metaneffIn(bytes);
      if (meta !== null) metas.push({ bytes, meta });
    }
  }
  const what = `${tag ?? className} bucket ${bucket}`;
  if (neffs.length === 0) problems.push(`${what} has no NEFF`);
  if (metas.length < neffs.length) problems.push(`${what} has no metaneff: what its tensors are for is not known`);
  return neffs.map((neff, index) => ({ tag, bucket, phase, neff, metaneff: metas[index]?.bytes ?? null, meta: metas[index]?.meta ?? null }));
}

function textsIn(value: PickleValue): PickleText[] {
  if (isKind(value, "text")) return [value];
  if (isKind(value, "list")) return value.items.filter((item) => isKind(item, "text"));
  return isKind(value, "dict") ? value.entries.map(([, item]) => item).filter((item) => isKind(item, "text")) : [];
}

async function metaneffIn(bytes: FileBytes): Promise<MetaNeff | null> {
  if (bytes.size === 0 || bytes.size > METANEFF_BYTES) return null;
  try {
    const meta = readMetaneff(await bytes.read(0, bytes.size), bytes.name ?? "the metaneff");
    return isNeuronNamed(meta) ? meta : null;
  } catch (error) {
    if (error instanceof ModelFileError) return null;
    throw error;
  }
}

/** NEFFs in the pickle, and (as traces for Inf1 have them) in tensors. */
async function searchMembers(source: FileBytes, members: readonly ZipMember[]): Promise<ArchivedProgram[]> {
  const programs: ArchivedProgram[] = [];
  for (const member of members) {
    const isPickle = /(^|\/)data\.pkl$/.test(member.name);
    if (!isPickle && !/(^|\/)data\/\d+$/.test(member.name)) continue;
    const bytes = await openMember(source, member);
    for (const { offset, length } of isPickle ? await searchNeffs(bytes) : await neffAtStart(bytes)) {
      const neff = partOf(bytes, { offset, length, name: `${bytes.name ?? ""} at byte ${offset}` });
      programs.push({ tag: null, bucket: programs.length, phase: "run", neff, metaneff: null, meta: null });
    }
  }
  return programs;
}

interface Range {
  readonly offset: number;
  readonly length: number;
}

async function neffAtStart(bytes: FileBytes): Promise<Range[]> {
  const range = await neffAt(bytes, 0);
  return range === null ? [] : [range];
}

const WINDOW_BYTES = 2 ** 20;
const HEADER_SIZE = Buffer.from([0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0]);

/** Places of NEFFs in bytes of any kind; what lies inside of one is not looked at. */
export async function searchNeffs(bytes: FileBytes): Promise<readonly Range[]> {
  const found: Range[] = [];
  for (let at = 0; at < bytes.size;) {
    const window = await bytes.read(at, WINDOW_BYTES + HEADER_SIZE.length);
    if (window.length === 0) break;
    const hit = Buffer.from(window.buffer, window.byteOffset, window.length).indexOf(HEADER_SIZE);
    const range = hit < 1 ? null : await neffAt(bytes, at + hit - 1);
    if (range !== null) found.push(range);
    at = range !== null ? range.offset + range.length : hit < 0 ? at + WINDOW_BYTES : at + hit + 1;
  }
  return found;
}

async function neffAt(bytes: FileBytes, offset: number): Promise<Range | null> {
  const head = await bytes.read(offset, HEADER_BYTES);
  if (head.length < HEADER_BYTES || !looksLikeNeff(head)) return null;
  const { dataSize, major } = decodeHeader(head);
  const length = HEADER_BYTES + dataSize;
  return major <= HIGHEST_MAJOR && dataSize > 0 && offset + length <= bytes.size ? { offset, length } : null;
}
