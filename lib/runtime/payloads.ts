import { NrtStatus } from "../abi/runtime_dmem.ts";
import type { Dmem } from "../dmem/types.ts";
import { NeffError, withFile } from "../neff/error.ts";
import type { FileVariable, Member, Neff } from "../neff/model.ts";
import { type PayloadRange, payloadRange } from "../neff/npy.ts";
import type { PassingNeff } from "../neff/open_neff.ts";
import type { NeffSource } from "../neff/source.ts";
import { NrtError } from "./errors.ts";

/** A range of a member that goes to device memory. */
export interface PayloadCopy {
  /** Full name of the member. */
  readonly member: string;
  /** First byte in the member. */
  readonly offset: number;
  /** Bytes. */
  readonly size: number;
  /** Where they go, from its first byte on. */
  readonly memory: Dmem;
  /** The constant, when it is one. */
  readonly variable?: FileVariable;
}

/** Where payloads come from when they were not kept, and whether to go on. */
export interface PayloadOptions {
  /** The file the NEFF was read from. */
  readonly source: NeffSource | undefined;
  /** Called after each pause; throws when the load must not go on. */
  readonly keep: () => void;
  /** Called now and then while payloads are streamed, with stored bytes read so far and their total. */
  readonly onProgress?: ((doneBytes: number, totalBytes: number) => void) | undefined;
}

/** Bytes copied between two pauses that let other work run. */
const PAUSE_BYTES = 32 * 2 ** 20;

/**
 * Copies payloads into device memory: from the members in memory, or, for a NEFF
 * read with `retain: "definitions"`, from its file as it passes by, with memory
 * that does not depend on their size.
 *
 * @throws {NrtError} NRT_INVALID when bytes were not kept and no source is given, or the source lacks a member
 */
export async function copyPayloads(neff: Neff, copies: readonly PayloadCopy[], options: PayloadOptions): Promise<void> {
  const away = copies.filter(({ member }) => neff.members.get(member)?.bytes === null);
  let sincePause = 0;
  for (const { member, offset, size, memory } of copies) {
    const bytes = neff.members.get(member)?.bytes;
    if (bytes === undefined || bytes === null) continue;
    memory.copyIn(bytes.subarray(offset, offset + size));
    sincePause += size;
    if (sincePause < PAUSE_BYTES) continue;
    sincePause = 0;
    await pause();
    options.keep();
  }
  if (away.length > 0) await streamPayloads(away, options);
}

/**
 * Copies the constants of a NEFF that is passing by into device memory, each piece as
 * it comes out of the archive. Returns the copies that are left: constants that went by
 * before they were wanted.
 *
 * @throws {NeffError} for a file that turns out to be damaged, or a constant whose length is not its variable's
 */
export async function copyPassing(passing: PassingNeff, copies: readonly PayloadCopy[], keep: () => void): Promise<readonly PayloadCopy[]> {
  const waiting = Map.groupBy(copies, ({ member }) => member);
  for await (const { member, chunks } of passing.rest()) {
    const here = (waiting.get(member.name) ?? []).map((copy) => (copy.variable === undefined ? copy : { ...copy, ...rangeIn(copy.variable, member, passing.file) }));
    waiting.delete(member.name);
    await copyChunks(chunks(), here, keep);
  }
  return [...waiting.values()].flat();
}

/** Where a constant's payload lies; an error names the file. */
function rangeIn(variable: FileVariable, member: Member, file: string | undefined): PayloadRange {
  try {
    return payloadRange(variable, member);
  } catch (error) {
    throw error instanceof NeffError && file !== undefined ? withFile(error, file) : error;
  }
}

/** Gives every piece of a member to the copies that want of it. */
async function copyChunks(chunks: AsyncIterable<Uint8Array>, copies: readonly PayloadCopy[], keep: () => void): Promise<void> {
  let at = 0;
  for await (const chunk of chunks) {
    keep();
    for (const copy of copies) copyOverlap(copy, chunk, at);
    at += chunk.length;
  }
}

async function streamPayloads(copies: readonly PayloadCopy[], options: PayloadOptions): Promise<void> {
  if (options.source === undefined) {
    throw new NrtError(NrtStatus.INVALID, `Cannot copy ${copies[0]!.member} in: the model was read without its payloads (${copies.length} are missing)`, {
      hint: 'Read it with retain: "all", or give load() the file as source.',
    });
  }
  const { streamMembers } = await import("../neff/stream.ts");
  const waiting = Map.groupBy(copies, ({ member }) => member);
  for await (const { name, chunks } of streamMembers(options.source, { onProgress: options.onProgress })) {
    const here = waiting.get(name);
    if (here === undefined) continue;
    waiting.delete(name);
    await copyChunks(chunks(), here, options.keep);
    if (waiting.size === 0) break;
  }
  const [missing] = waiting.keys();
  if (missing !== undefined) throw new NrtError(NrtStatus.INVALID, `Cannot copy ${missing} in: the source has no such member`, { hint: "Give load() the file the model was read from." });
}

/** The part of a chunk, which begins at byte `at` of its member, that a copy wants. */
function copyOverlap({ offset, size, memory }: PayloadCopy, chunk: Uint8Array, at: number): void {
  const first = Math.max(offset, at);
  const end = Math.min(offset + size, at + chunk.length);
  if (first < end) memory.copyIn(chunk.subarray(first - at, end - at), { offset: first - offset });
}

function pause(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
