import { assembleNeff, constantMember } from "./assemble.ts";
import { NeffError, withFile } from "./error.ts";
import { isGzip } from "./gzip.ts";
import { HEADER_BYTES } from "./header.ts";
import { limitsWith, type NeffLimits } from "./limits.ts";
import type { ArchiveFacts, Member, Neff, Note } from "./model.ts";
import { noteTail, type NeffPlace, type ParseOptions, placeNotes } from "./read.ts";
import { headBytesOf, isDefinition, keepFirst } from "./read_neff.ts";
import { type FileBytes, type NeffSource, openSource } from "./source.ts";
import { type MemberStream, passMembers, placeIn, type StreamSummary } from "./stream.ts";

/** Payload bytes kept when nothing else is asked for. */
const KEPT_BYTES = 32 * 2 ** 20;

/** How to open a NEFF. */
export interface OpenNeffOptions extends ParseOptions {
  /** Most bytes of payloads that are kept in memory, default 32 MiB: small models whole, of others what comes first. */
  readonly keptBytes?: number | undefined;
  /** Called now and then with stored bytes read so far and their total. */
  readonly onProgress?: ((doneBytes: number, totalBytes: number) => void) | undefined;
}

/** A constant that passes by. */
export interface PassingConstant {
  /** The member, with its real size and its first bytes. */
  readonly member: Member;
  /** All of its bytes in pieces, valid until the next piece is asked for; what is not read is skipped. */
  chunks(): AsyncGenerator<Uint8Array>;
}

/** A NEFF of which the definitions are known and the rest may still have to pass by. */
export interface PassingNeff extends AsyncDisposable {
  /**
   * The model. While members are still to come, `members` has the constants among them
   * as `pending`, and lacks the others; sizes of the archive grow.
   */
  readonly neff: Neff;
  /** What the NEFF was opened from: for a second pass over constants that went by before the definitions. */
  readonly source: NeffSource;
  /** Name of the file, for messages; undefined for bytes without one. */
  readonly file: string | undefined;
  /**
   * Lets the rest pass by and hands out the constants in it; once. When it ends, the
   * archive was whole and has every constant. @throws {NeffError}
   */
  rest(): AsyncGenerator<PassingConstant, void>;
  /** Closes the file. */
  close(): Promise<void>;
}

/**
 * Opens a NEFF to be loaded in one pass, with memory that does not depend on its size:
 * reads up to the first member that is too large to keep, and says what the model is if
 * its definitions came before that. If they come later (no compiler writes that), it
 * passes over the whole archive; constants that were too large to keep then need a
 * second pass, with `streamMembers`.
 *
 * Throws a `NeffError` that names the file.
 */
export async function openNeff(source: NeffSource, options: OpenNeffOptions = {}): Promise<PassingNeff> {
  const limits = limitsWith(options.limits);
  const bytes = await openSource(source);
  const file = options.file ?? bytes.name;
  try {
    const place = await placeIn(bytes, limits);
    const format = isGzip(await bytes.read(place.base + HEADER_BYTES, 3)) ? "gzip" : "tar";
    const { keptBytes = KEPT_BYTES, onProgress } = options;
    return await new Passing({ source, bytes, place, limits, file, format, keptBytes, onProgress }).begin();
  } catch (error) {
    await bytes.close();
    throw named(error, file);
  }
}

function named(error: unknown, file: string | undefined): unknown {
  return error instanceof NeffError && file !== undefined ? withFile(error, file) : error;
}

interface PassingParts {
  readonly source: NeffSource;
  readonly bytes: FileBytes;
  readonly place: NeffPlace;
  readonly limits: NeffLimits;
  readonly file: string | undefined;
  readonly format: ArchiveFacts["format"];
  readonly keptBytes: number;
  readonly onProgress: OpenNeffOptions["onProgress"];
}

class Passing implements PassingNeff {
  neff!: Neff;
  readonly source: NeffSource;
  readonly file: string | undefined;
  readonly #parts: PassingParts;
  readonly #stream: AsyncGenerator<MemberStream, StreamSummary>;
  #members = new Map<string, Member>();
  #room: number;
  /** The member at which the definitions were complete. */
  #held: MemberStream | undefined;
  #summary: StreamSummary | undefined;
  #notes: Note[] = [];

  constructor(parts: PassingParts) {
    this.#parts = parts;
    this.#room = parts.keptBytes;
    this.source = parts.source;
    this.file = parts.file;
    this.#stream = passMembers(parts.bytes, parts.place, { limits: parts.limits, onProgress: parts.onProgress });
  }

  /** Reads until the definitions are known. */
  async begin(): Promise<this> {
    for (let stream = await this.#next(); stream !== undefined; stream = await this.#next()) {
      if (!this.#fits(stream)) {
        const early = this.#attempt();
        if (early !== undefined) {
          this.neff = early;
          this.#held = stream;
          return this;
        }
      }
      await this.#take(stream);
    }
    this.neff = this.#assemble(this.#members, undefined);
    return this;
  }

  async *rest(): AsyncGenerator<PassingConstant, void> {
    const early = this.#summary === undefined;
    try {
      const constants = this.#pending();
      for (let stream = this.#held ?? await this.#next(); stream !== undefined; stream = await this.#next()) {
        this.#held = undefined;
        if (constants.delete(stream.name)) yield await this.#constant(stream);
        else await this.#take(stream);
      }
      if (constants.size > 0) this.#lacks(constants);
      if (early) noteTail(this.#notes, this.#summary?.junkBytes ?? 0);
    } catch (error) {
      throw named(error, this.#parts.file);
    }
  }

  async close(): Promise<void> {
    await this.#stream.return(undefined as never);
    await this.#parts.bytes.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #next(): Promise<MemberStream | undefined> {
    if (this.#summary !== undefined) return undefined;
    const step = await this.#stream.next();
    if (step.done !== true) return step.value;
    this.#summary = step.value;
    return undefined;
  }

  #fits({ name, size }: MemberStream): boolean {
    return isDefinition(name) ? size <= this.#parts.limits.jsonBytes : size <= this.#room;
  }

  /** Keeps a member, or its first bytes when there is no room. */
  async #take(stream: MemberStream): Promise<void> {
    const { name, size } = stream;
    const whole = this.#fits(stream);
    if (whole && !isDefinition(name)) this.#room -= size;
    this.#put(await keepFirst(stream, whole ? size : Math.min(size, headBytesOf(name))));
  }

  #put(member: Member): void {
    // Whatever stood for it until now had no place in the archive.
    this.#members.delete(member.name);
    this.#members.set(member.name, member);
  }

  /** Takes the first bytes of a constant, and hands it out from its first byte. */
  async #constant(stream: MemberStream): Promise<PassingConstant> {
    const { name, size, offset, mode } = stream;
    const pieces = stream.chunks();
    const head = new Uint8Array(Math.min(size, headBytesOf(name)));
    let filled = 0;
    let rest: Uint8Array = new Uint8Array(0);
    while (filled < head.length) {
      const step = await pieces.next();
      if (step.done === true) break;
      const used = Math.min(step.value.length, head.length - filled);
      head.set(step.value.subarray(0, used), filled);
      filled += used;
      rest = step.value.subarray(used);
    }
    const member: Member = { name, size, offset, mode, bytes: null, head };
    this.#put(member);
    const { file } = this;
    return {
      member,
      async *chunks() {
        yield head;
        if (rest.length > 0) yield rest;
        try {
          yield* pieces;
        } catch (error) {
          throw named(error, file);
        }
      },
    };
  }

  /** Constants that have not come yet. */
  #pending(): Set<string> {
    return new Set([...this.#members.values()].flatMap(({ pending, name }) => (pending === true ? [name] : [])));
  }

  /** The model, if everything that describes it is there. */
  #attempt(): Neff | undefined {
    const members = new Map(this.#members);
    try {
      const neff = this.#assemble(members, (member) => void members.set(member.name, member));
      // An engine file that is not there yet may still come; one that never comes leaves the engine idle.
      if (neff.subgraphs.some(({ engines }) => engines.some(({ present, member }) => !present && member !== null))) return undefined;
      this.#members = members;
      return neff;
    } catch (error) {
      // Something is missing or wrong: which of the two is known when all has passed by.
      if (error instanceof NeffError) return undefined;
      throw error;
    }
  }

  #assemble(members: Map<string, Member>, addPending: ((member: Member) => void) | undefined): Neff {
    const { place, limits, file, bytes } = this.#parts;
    const notes = this.#notes = placeNotes(place);
    if (this.#summary !== undefined) noteTail(notes, this.#summary.junkBytes);
    return assembleNeff({
      header: place.header, archive: this.#archive(), members, notes, limits, file, addPending,
      wrappedAt: place.wrapped ? place.base : null, fileBytes: bytes.size,
    });
  }

  /** Facts of the archive as far as they are known: its sizes grow until all has passed by. */
  #archive(): ArchiveFacts {
    const summary = () => this.#summary;
    const members = () => this.#members.size;
    return {
      format: this.#parts.format,
      get paddingBytes() {
        return summary()?.paddingBytes ?? 0;
      },
      get junkBytes() {
        return summary()?.junkBytes ?? 0;
      },
      get tarBytes() {
        return summary()?.tarBytes ?? 0;
      },
      get members() {
        return summary()?.members ?? members();
      },
      get pax() {
        return summary()?.pax ?? false;
      },
      hashMatches: null,
    };
  }

  /** The archive has ended without constants that its definitions name. @throws {NeffError} */
  #lacks(missing: ReadonlySet<string>): void {
    for (const name of missing) this.#members.delete(name);
    for (const subgraph of this.neff.subgraphs) {
      for (const variable of subgraph.byId) if (variable.type === "file") constantMember(variable, { members: this.#members, subgraph });
    }
  }
}
