import { evtAccelCarveout, TpbArch } from "../abi/runtime_context.ts";
import { NrtStatus } from "../abi/runtime_dmem.ts";
import type { Dmem } from "../dmem/types.ts";
import { NeffError, withFile } from "../neff/error.ts";
import type { FileVariable, Member, Neff, Reservation, Subgraph } from "../neff/model.ts";
import { type PayloadRange, payloadRange } from "../neff/npy.ts";
import type { PassingNeff } from "../neff/open_neff.ts";
import type { NeffSource } from "../neff/source.ts";
import type { StagedModel } from "../stage/staged_model.ts";
import type { ModelPart } from "./core.ts";
import { NrtError, type RuntimeNote } from "./errors.ts";

/** Steps of an unload, in their order (context notes, 5.2). */
export type ReleaseStep = "rings" | "tables" | "ucode" | "instructions" | "variables";

/**
 * Frees everything a model holds and nothing else: rings, tables, its own
 * libraries (not the core's shared set), instructions, then scratchpad claims,
 * the garbage list and last the MODEL allocators, which must be empty by then.
 *
 * Destroying an allocator frees no device memory; whatever was left in it would
 * stay allocated. That is a defect and reported as one.
 *
 * @throws {PlanError} NRT_FAILURE when something was left
 */
export function releaseModel(staged: StagedModel, parts: readonly ModelPart[], trace: (step: ReleaseStep) => void = () => {}): void {
  trace("rings");
  for (const part of parts) freeAll(part.rings);
  trace("tables");
  for (const part of parts) freeAll(part.tables);
  trace("ucode");
  for (const part of parts) if (part.ucode?.shared === false) part.ucode.set.memory.close();
  trace("instructions");
  for (const part of parts) freeAll(part.instructions);
  trace("variables");
  staged.unload();
}

function freeAll(memories: readonly Dmem[]): void {
  for (const memory of memories) memory.close();
}

/** What the check of a model's state buffer reservations says. */
export interface CarveoutAnswer {
  /** Drives the model's event reset and fp8 flags: it has an event accelerator carveout. */
  readonly evtAccel: boolean;
  /** A note when it has none where one is usual. */
  readonly notes: readonly RuntimeNote[];
}

/**
 * Checks the place of the event accelerator in the state buffer, as a model of
 * an architecture must have it: partitions 0 to 127, 8 bytes, at 0x37FF8 on
 * cayman and 0x3FFF8 on mariana. A model without one loads; sunda is not checked.
 *
 * On-chip memory is validated, never allocated.
 *
 * @throws {NrtError} NRT_INVALID for one that lies elsewhere
 */
export function checkCarveout(subgraph: Subgraph, architecture: number): CarveoutAnswer {
  const reservations = subgraph.reservations ?? [];
  const found = reservations.find((reservation) => reservation.type === "evtaccel");
  const stranger = reservations.find((reservation) => reservation.type !== "evtaccel");
  if (stranger !== undefined) throw refuse(subgraph, `its type ${JSON.stringify(stranger.type)} is unknown, only evtaccel is`, stranger);
  const offset = architecture === TpbArch.CAYMAN ? evtAccelCarveout.offset.cayman
    : architecture === TpbArch.MARIANA ? evtAccelCarveout.offset.mariana : undefined;
  if (offset === undefined) return { evtAccel: found !== undefined, notes: [] };
  if (found === undefined) {
    return { evtAccel: false, notes: [{ code: "no-evtaccel", message: `model ${subgraph.name} has no evtaccel reservation on SBUF` }] };
  }
  for (const reservation of reservations) checkPlace(subgraph, reservation, offset);
  return { evtAccel: true, notes: [] };
}

function checkPlace(subgraph: Subgraph, reservation: Reservation, offset: number): void {
  const { startPartition, partitions, size } = evtAccelCarveout;
  if (reservation.basePartition !== startPartition) throw refuse(subgraph, `it must start at 0, it starts at partition ${reservation.basePartition}`, reservation);
  if (reservation.partitions !== partitions) throw refuse(subgraph, `it must span ${partitions} partitions, it spans ${reservation.partitions}`, reservation);
  if (reservation.offset !== offset) throw refuse(subgraph, `it must lie at 0x${offset.toString(16)}, it lies at 0x${reservation.offset.toString(16)}`, reservation);
  if (reservation.size !== size) throw refuse(subgraph, `it must have ${size} bytes, it has ${reservation.size}`, reservation);
}

function refuse(subgraph: Subgraph, why: string, reservation: Reservation): NrtError {
  return new NrtError(NrtStatus.INVALID, `Cannot load ${subgraph.name}: the evtaccel reservation in the state buffer does not fit the device: ${why}`, {
    hint: "Compile the model for this device's architecture.",
    details: { subgraph: subgraph.name, reservation },
  });
}

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
    memory.write(bytes.subarray(offset, offset + size));
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
  const waiting = byMember(copies);
  for await (const { member, chunks } of passing.rest()) {
    const here = (waiting.get(member.name) ?? []).map((copy) => (copy.variable === undefined ? copy : { ...copy, ...rangeIn(copy.variable, member, passing.file) }));
    waiting.delete(member.name);
    await copyChunks(chunks(), here, keep);
  }
  return [...waiting.values()].flat();
}

function byMember(copies: readonly PayloadCopy[]): Map<string, PayloadCopy[]> {
  const groups = new Map<string, PayloadCopy[]>();
  for (const copy of copies) {
    const group = groups.get(copy.member);
    if (group === undefined) groups.set(copy.member, [copy]);
    else group.push(copy);
  }
  return groups;
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
  const waiting = byMember(copies);
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
  if (first < end) memory.write(chunk.subarray(first - at, end - at), { at: first - offset });
}

function pause(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
