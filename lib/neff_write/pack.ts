import { createHash } from "node:crypto";
import { lstat, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import * as v from "valibot";
import { ArgumentError, NeuronError } from "../../ffi/error.ts";
import { NeffError, printable } from "../neff/error.ts";
import { bitsText } from "../neff/summary.ts";
import { parseJson } from "../neff/json.ts";
import { DEFAULT_LIMITS } from "../neff/limits.ts";
import { nameFault } from "../neff/read.ts";
import type { Neff, NeffHeader } from "../neff/model.ts";
import { checkShape, Whole } from "../neff/shape.ts";
import type { MemberSpec } from "./tar_write.ts";
import { type Compression, type NeffSpec, writeNeff } from "./write.ts";

/** Name of the file that keeps what an unpacked folder cannot: header, order of members, form of storage. */
export const MANIFEST_NAME = "neff-manifest.json";

/** One file of an unpacked NEFF. */
export interface UnpackedFile {
  /** Path below the folder, steps separated by `/`. */
  readonly path: string;
  readonly bytes: Uint8Array;
}

const Manifest = v.looseObject({
  manifest: v.literal(1),
  packager: v.union([v.literal(1), v.literal(2)]),
  compression: v.union([v.literal("gzip"), v.literal("stored"), v.literal("none")]),
  header: v.looseObject({
    major: Whole,
    minor: Whole,
    buildVersion: v.string(),
    numTpb: Whole,
    uuid: v.string(),
    name: v.string(),
    requestedTpb: Whole,
    tpbPerNode: v.array(Whole),
    featureBits: v.string(),
    lncSize: Whole,
  }),
  contentSha256: v.string(),
  members: v.array(v.looseObject({ name: v.string(), mode: Whole })),
});

/** Content of the manifest. */
export type NeffManifest = v.InferOutput<typeof Manifest>;

/** What makes a name unfit for a path below a folder; stricter than reading, which never touches a disk. */
function pathFault(name: string): string | undefined {
  const fault = nameFault(name);
  if (fault !== undefined) return fault;
  const steps = name.split("/");
  if (steps.includes("") || steps.includes(".")) return "has an empty step in its path";
  if (/^[A-Za-z]:/.test(name)) return "has a drive letter in its path";
  if (steps.some((step) => new TextEncoder().encode(step).length > 255)) return "has a step of more than 255 bytes in its path";
  return name === MANIFEST_NAME ? "has the name of the manifest" : undefined;
}

function refusePath(name: string, reason: string): never {
  throw new NeffError(`member "${printable(name)}" ${reason}`, {
    kind: "unsafe-name",
    where: { member: name },
    hint: "It cannot be unpacked into a folder.",
  });
}

/** Refuses names that leave the folder or need a file and a folder in one place. */
function checkPaths(names: Iterable<string>): void {
  const all = new Set(names);
  for (const name of all) {
    const fault = pathFault(name);
    if (fault !== undefined) refusePath(name, fault);
    for (let slash = name.indexOf("/"); slash >= 0; slash = name.indexOf("/", slash + 1)) {
      if (all.has(name.slice(0, slash))) refusePath(name, `lies below "${printable(name.slice(0, slash))}", which is a file`);
    }
  }
}

/**
 * The members of a NEFF as files, in archive order, and the manifest as the last one. No
 * name leaves the folder: such a NEFF is refused. Needs a NEFF read with its payloads.
 *
 * @example
 * const neff = await readNeff("model.neff");
 * const files = unpackNeff(neff);
 * console.log(files.at(-1)?.path); // → neff-manifest.json
 */
export function unpackNeff(neff: Neff): readonly UnpackedFile[] {
  checkPaths(neff.members.keys());
  const files = [...neff.members.values()].map(({ name, bytes }): UnpackedFile => {
    if (bytes === null) {
      throw new ArgumentError(`Cannot unpack ${name}: its bytes were not kept`, { hint: 'Read the NEFF with retain: "all".' });
    }
    return { path: name, bytes };
  });
  const manifest = new TextEncoder().encode(`${JSON.stringify(manifestOf(neff, files), null, 2)}\n`);
  return [...files, { path: MANIFEST_NAME, bytes: manifest }];
}

function manifestOf(neff: Neff, files: readonly UnpackedFile[]): NeffManifest {
  const { header } = neff;
  return {
    manifest: 1,
    packager: header.pkgVersion === 1 ? 1 : 2,
    compression: neff.archive.format === "gzip" ? "gzip" : "none",
    header: keptHeader(header),
    contentSha256: contentDigest(files),
    members: [...neff.members.values()].map(({ name, mode }) => ({ name, mode })),
  };
}

/** The fields that are not computed anew. */
function keptHeader(header: NeffHeader): NeffManifest["header"] {
  const { major, minor, buildVersion, numTpb, uuid, name, requestedTpb, tpbPerNode, featureBits, lncSize } = header;
  return {
    major,
    minor,
    buildVersion,
    numTpb,
    uuid,
    name,
    requestedTpb,
    tpbPerNode: [...tpbPerNode],
    featureBits: bitsText(featureBits),
    lncSize,
  };
}

/** A digest over names and bytes that does not depend on their order. */
function contentDigest(files: readonly UnpackedFile[]): string {
  const digest = createHash("sha256");
  for (const { path, bytes } of files.toSorted((a, b) => (a.path < b.path ? -1 : 1))) {
    digest.update(`${path.length}:${path}:${bytes.length}:`).update(bytes);
  }
  return digest.digest("hex");
}

/** How to pack. */
export interface PackOptions {
  /** Form of storage other than the manifest's; `stored` gives the same bytes on every runtime. */
  readonly compression?: Compression | undefined;
}

/** A packed NEFF and what changed against the manifest. */
export interface PackResult {
  readonly bytes: Uint8Array;
  /** Files the manifest does not list; they follow in the order of their names. */
  readonly added: readonly string[];
  /** Files the manifest lists and that are gone. */
  readonly removed: readonly string[];
  /** Whether names and bytes are those that were unpacked; else the NEFF gets a uuid of its own. */
  readonly unchanged: boolean;
}

/**
 * Packs files into a NEFF: the reverse of {@linkcode unpackNeff}. Sizes and hash are computed
 * anew. The runtime recognises a model by its uuid alone, so a changed content gets another
 * one. Without a manifest the members are sorted and the header has default values.
 *
 * @example
 * const neff = await readNeff("model.neff");
 * const { bytes, unchanged } = packNeff(unpackNeff(neff));
 * console.log(unchanged, parseNeff(bytes).header.uuid === neff.header.uuid); // → true true
 */
export function packNeff(files: readonly UnpackedFile[], options: PackOptions = {}): PackResult {
  const stored = files.find(({ path }) => path === MANIFEST_NAME);
  const manifest = stored === undefined ? undefined : readManifest(stored.bytes);
  const content = new Map(files.filter((file) => file !== stored).map((file) => [file.path, file]));
  checkPaths(content.keys());
  const listed = manifest?.members ?? [];
  const known = new Set(listed.map(({ name }) => name));
  const added = [...content.keys()].filter((path) => !known.has(path)).sort();
  const members: MemberSpec[] = [
    ...listed.flatMap(({ name, mode }) => (content.has(name) ? [{ name, mode, data: bytesOf(content, name) }] : [])),
    ...added.map((name) => ({ name, data: bytesOf(content, name) })),
  ];
  const unchanged = manifest !== undefined && contentDigest([...content.values()]) === manifest.contentSha256;
  const spec: NeffSpec = { members, ...storageOf(manifest, options), header: headerOf(manifest, unchanged) };
  return {
    bytes: writeNeff(spec),
    added: manifest === undefined ? [] : added,
    removed: listed.flatMap(({ name }) => (content.has(name) ? [] : [name])),
    unchanged,
  };
}

function bytesOf(content: ReadonlyMap<string, UnpackedFile>, name: string): Uint8Array {
  return content.get(name)?.bytes ?? new Uint8Array(0);
}

function storageOf(manifest: NeffManifest | undefined, options: PackOptions): Pick<NeffSpec, "packager" | "compression"> {
  return { packager: manifest?.packager ?? 2, compression: options.compression ?? manifest?.compression ?? "gzip" };
}

function headerOf(manifest: NeffManifest | undefined, unchanged: boolean): NonNullable<NeffSpec["header"]> {
  if (manifest === undefined) return {};
  const { uuid, featureBits, major, minor, buildVersion, numTpb, name, requestedTpb, tpbPerNode, lncSize } = manifest.header;
  return {
    major,
    minor,
    buildVersion,
    numTpb,
    name,
    requestedTpb,
    tpbPerNode,
    lncSize,
    featureBits: BigInt(featureBits),
    ...(unchanged ? { uuid } : {}),
  };
}

function readManifest(bytes: Uint8Array): NeffManifest {
  const { value } = parseJson(bytes, { member: MANIFEST_NAME, limits: DEFAULT_LIMITS, duplicates: "ignore" });
  const manifest = checkShape(Manifest, value, MANIFEST_NAME);
  if (/^0x[0-9a-f]{1,16}$/.test(manifest.header.featureBits)) return manifest;
  throw new NeffError(`feature bits "${printable(manifest.header.featureBits)}" are no hexadecimal number`, {
    kind: "invalid-definition",
    where: { member: MANIFEST_NAME, path: "$.header.featureBits" },
  });
}

/**
 * Unpacks a NEFF into a folder that is new or empty: nothing that is there can be overwritten
 * or lead elsewhere. Returns the paths that were written. Throws a `NeffError` for a NEFF whose
 * names are unfit, a `NeuronError` when the folder is.
 */
export async function unpackNeffTo(neff: Neff, folder: string): Promise<readonly string[]> {
  const files = unpackNeff(neff);
  try {
    await mkdir(folder, { recursive: true });
    if ((await readdir(folder)).length > 0) {
      throw new NeuronError(`Cannot unpack into ${folder}: it is not empty`, { hint: "Name a new folder." });
    }
    for (const { path, bytes } of files) {
      const target = join(folder, path);
      await mkdir(dirname(target), { recursive: true });
      await writeFile(target, bytes, { flag: "wx" });
    }
  } catch (error) {
    throw folderFault("unpack into", folder, error);
  }
  return files.map(({ path }) => path);
}

function folderFault(verb: string, folder: string, error: unknown): unknown {
  const { code, message } = (error ?? {}) as { code?: string; message?: string };
  if (error instanceof NeuronError || code === undefined) return error;
  return new NeuronError(`Cannot ${verb} ${folder}: ${message ?? code}`, { details: { errno: code }, cause: error });
}

/** Packs a folder, manifest included when there is one. Symbolic links and other special files are refused. */
export async function packFolder(folder: string, options: PackOptions = {}): Promise<PackResult> {
  try {
    const files: UnpackedFile[] = [];
    for await (const path of filesIn(folder, "")) files.push({ path, bytes: new Uint8Array(await readFile(join(folder, path))) });
    return packNeff(files, options);
  } catch (error) {
    throw folderFault("pack", folder, error);
  }
}

async function* filesIn(folder: string, prefix: string): AsyncGenerator<string> {
  for (const name of (await readdir(join(folder, prefix))).sort()) {
    const path = prefix === "" ? name : `${prefix}/${name}`;
    const facts = await lstat(join(folder, path));
    if (facts.isDirectory()) yield* filesIn(folder, path);
    else if (facts.isFile()) yield path;
    else {throw new NeuronError(`Cannot pack ${join(folder, path)}: it is no regular file`, {
        hint: "Replace links by what they point to.",
      });}
  }
}
