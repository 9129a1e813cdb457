import { assembleNeff } from "./assemble.ts";
import { NeffError, withFile } from "./error.ts";
import { limitsWith, type NeffLimits } from "./limits.ts";
import type { ArchiveFacts, Member, Neff, Note } from "./model.ts";
import { expectedHash, noteTail, parseNeff, type ParseOptions, placeNotes } from "./read.ts";
import { type FileBytes, type NeffSource, openSource, readAll } from "./source.ts";
import type { MemberStream, StreamSummary } from "./stream.ts";

/** How to read a NEFF from a file. */
export interface ReadOptions extends ParseOptions {
  /**
   * `all` (default) keeps every member in memory. `definitions` keeps the JSON documents and
   * the first bytes of the rest: memory does not grow with the payloads, which
   * `streamMembers` delivers in a second pass.
   */
  readonly retain?: "all" | "definitions";
  /** With `retain: "definitions"`: also compute the hash, which costs a look at every stored byte. */
  readonly verifyHash?: boolean;
  /** Called now and then with stored bytes read so far and their total (`retain: "definitions"` only). */
  readonly onProgress?: ((doneBytes: number, totalBytes: number) => void) | undefined;
}

/** First bytes of a member that are always kept: enough for any `.npy` header of version 1. */
const HEAD_BYTES = 4096;
const NPY_HEAD_BYTES = 10 + 65_535;

/** JSON that no loader needs: kept out when payloads stay in the file. */
const DEBUG_JSON = /(^|\/)(debug_info\/|tensor_map\.json$|kernel_debug_info\.json$)|\.debuginfo\.json$/;

/**
 * Reads a NEFF from a path, URL, Blob or bytes; no device is needed. Throws a
 * `NeffError` that names the file, for everything that can be wrong with it.
 *
 * @example
 * const neff = await readNeff("model.neff");
 * console.log(neff.target, neff.subgraphs[0]?.variables.size); // → cayman 5
 */
export async function readNeff(source: NeffSource, options: ReadOptions = {}): Promise<Neff> {
  const limits = limitsWith(options.limits);
  const bytes = await openSource(source);
  const file = options.file ?? bytes.name;
  try {
    if (options.retain !== "definitions") return parseNeff(await readAll(bytes, limits), { limits, file });
    return await readDefinitions(bytes, limits, { ...options, file });
  } catch (error) {
    if (error instanceof NeffError && file !== undefined) throw withFile(error, file);
    throw error;
  } finally {
    await bytes.close();
  }
}

/**
 * Reads the definitions of a NEFF from bytes that are open already, such as a part of an
 * archive; they stay open. Throws a `NeffError` that names them.
 */
export async function readNeffIn(bytes: FileBytes, options: ParseOptions = {}): Promise<Neff> {
  const file = options.file ?? bytes.name;
  try {
    return await readDefinitions(bytes, limitsWith(options.limits), { ...options, file });
  } catch (error) {
    throw error instanceof NeffError && file !== undefined ? withFile(error, file) : error;
  }
}

async function readDefinitions(source: FileBytes, limits: NeffLimits, options: ReadOptions): Promise<Neff> {
  const { passMembers, placeIn } = await import("./stream.ts");
  const place = await placeIn(source, limits);
  const hash = options.verifyHash === true;
  const notes: Note[] = placeNotes(place);
  const members = new Map<string, Member>();
  const stream = passMembers(source, place, { limits, hash, onProgress: options.onProgress });
  let summary: StreamSummary | undefined;
  for (;;) {
    const step = await stream.next();
    if (step.done === true) {
      summary = step.value;
      break;
    }
    members.set(step.value.name, await keep(step.value, limits));
  }
  noteTail(notes, summary.junkBytes);
  const { header } = place;
  const archive: ArchiveFacts = {
    format: summary.format,
    paddingBytes: summary.paddingBytes,
    junkBytes: summary.junkBytes,
    tarBytes: summary.tarBytes,
    members: summary.members,
    pax: summary.pax,
    hashMatches: summary.hash === null ? null : summary.hash === expectedHash(header),
  };
  return assembleNeff({
    header,
    archive,
    members,
    notes,
    limits,
    wrappedAt: place.wrapped ? place.base : null,
    fileBytes: source.size,
    file: options.file,
  });
}

/** Keeps what is needed of a member that passes by. */
async function keep(stream: MemberStream, limits: NeffLimits): Promise<Member> {
  const { name, size } = stream;
  const isDocument = isDefinition(name) && size <= limits.jsonBytes;
  return await keepFirst(stream, isDocument ? size : Math.min(size, headBytesOf(name)));
}

/** Whether a member is JSON that says how to load the model. */
export function isDefinition(name: string): boolean {
  return name.endsWith(".json") && !DEBUG_JSON.test(name);
}

/** How many first bytes of a member are kept in every case. */
export function headBytesOf(name: string): number {
  return name.endsWith(".npy") ? NPY_HEAD_BYTES : HEAD_BYTES;
}

/** Keeps the first bytes of a member that passes by. */
export async function keepFirst(stream: MemberStream, count: number): Promise<Member> {
  const { name, size, offset, mode } = stream;
  const bytes = new Uint8Array(count);
  let filled = 0;
  if (count > 0) {
    for await (const chunk of stream.chunks()) {
      const piece = chunk.subarray(0, count - filled);
      bytes.set(piece, filled);
      filled += piece.length;
      if (filled === count) break;
    }
  }
  return { name, size, offset, mode, bytes: count === size ? bytes : null, head: bytes };
}
