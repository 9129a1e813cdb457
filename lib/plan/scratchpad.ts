/**
 * The scratchpad: a core's arena for intermediate variables. The compiler gave
 * every such variable an offset; pages are reserved when a model is loaded and
 * shared by all models of the core, because one runs at a time.
 *
 * Rules of the scratchpad notes. Two of the places they leave open are decided
 * here: the page count never shrinks below what a loaded model uses, and a model
 * always resolves against its own number of pages.
 */
import { NrtStatus } from "../abi/runtime_dmem.ts";
import { SCRATCHPAD_CONTIGUOUS_PAGE_BYTES, SCRATCHPAD_MAX_PAGES, SCRATCHPAD_PAGE_BYTES } from "../abi/runtime_tensor.ts";
import { PlanError } from "./error.ts";

const LARGEST_PAGE_BYTES = 0xffffffff;
const SMALLEST_PAGE_ALIGNMENT = 0x1000;
/** The documented unit of page sizes, for advice. */
const PAGE_STEP_BYTES = 512 * 2 ** 20;
const MIB = 2 ** 20;

/** How an arena hands out memory. */
export interface ScratchpadMode {
  /** Bytes of one page. */
  readonly pageBytes: number;
  /** Adjacent pages growing downwards, or independent ones. */
  readonly contiguous: boolean;
  /** Why the contiguous mode was asked for and not taken, else null. */
  readonly note: string | null;
}

/** What decides the mode of a core's arena. */
export interface ScratchpadRequest {
  /** Page size of the paged mode. Default 512 MiB. */
  readonly pageBytes?: number | undefined;
  /** Whether the contiguous mode is switched on; `possible` for wherever it can be, which is what current runtimes do by themselves. Default off. */
  readonly contiguous?: boolean | "possible" | undefined;
  /** `neuron_arch` of the device: 2, 3 or 4. */
  readonly architecture: number;
  /** Physical cores of a logical core. */
  readonly lncSize: number;
  /** Whether the driver has contiguous pages (feature bit 0x80). */
  readonly driverContiguous: boolean;
}

/**
 * Chooses the mode of an arena. No device bytes are reserved here.
 *
 * @throws {PlanError} NRT_INVALID for a page size of 0 or above 2^32 − 1
 */
export function scratchpadMode(request: ScratchpadRequest): ScratchpadMode {
  const pageBytes = request.pageBytes ?? SCRATCHPAD_PAGE_BYTES;
  if (!Number.isSafeInteger(pageBytes) || pageBytes < 1 || pageBytes > LARGEST_PAGE_BYTES) {
    throw new PlanError(
      `Cannot set up a scratchpad: Invalid scratchpad page size ${pageBytes} bytes, it must be between 1 and ${LARGEST_PAGE_BYTES} bytes`,
      { details: { pageBytes }, hint: "Set NEURON_SCRATCHPAD_PAGE_SIZE to a multiple of 512 below 4096 (MiB)." },
    );
  }
  const { contiguous = false, architecture, lncSize, driverContiguous } = request;
  if (contiguous === false) return { pageBytes, contiguous: false, note: null };
  const note = architecture > 2 && lncSize === 1
    ? "Contiguous Scratchpad feature is disabled on LNC 1"
    : driverContiguous ? null : "Contiguous Scratchpad feature is disabled due to incompatible driver";
  // Nobody asked for what is not possible: nothing to report.
  if (note !== null) return { pageBytes, contiguous: false, note: contiguous === true ? note : null };
  return { pageBytes: SCRATCHPAD_CONTIGUOUS_PAGE_BYTES, contiguous: true, note: null };
}

/** Page sizes that can be set, in bytes, as documented: multiples of 512 MiB below 4 GiB. */
export const PAGE_SIZES: readonly number[] = Array.from({ length: 7 }, (_, index) => (index + 1) * PAGE_STEP_BYTES);

/** Why a page size cannot be set, in words that follow a colon, or null. The documented range; the runtime itself only refuses 0. @param mebibytes as `NEURON_SCRATCHPAD_PAGE_SIZE` has it */
export function pageSizeProblem(mebibytes: number): string | null {
  const step = PAGE_STEP_BYTES / MIB;
  return PAGE_SIZES.includes(mebibytes * MIB) ? null : `the scratchpad page size must be a multiple of ${step} below ${(PAGE_SIZES.length + 1) * step} (MiB)`;
}

/** Where the packer put a piece. */
export interface ScratchpadPlacement {
  /** Offset of the piece in the arena. */
  readonly offset: number;
  /** The running total behind it. */
  readonly next: number;
}

/**
 * Places a piece of an arena behind the running total `current`: at it, or in the
 * paged mode at the next page boundary when it would cross one it could have
 * started on.
 */
export function packPiece(mode: ScratchpadMode, current: number, size: number): ScratchpadPlacement {
  const { pageBytes, contiguous } = mode;
  const inPage = current % pageBytes;
  const fits = contiguous || inPage === 0 || size <= pageBytes - inPage;
  const offset = fits ? current : current - inPage + pageBytes;
  return { offset, next: offset + size };
}

/** Sizes of a subgraph's two arenas: the plan's header. */
export interface ArenaNeed {
  /** `local_scratchpad_size`. */
  readonly localBytes: number;
  /** `shared_scratchpad_size`. */
  readonly sharedBytes: number;
}

/** Where a model's arenas lie in the arenas of its cores. */
export interface ArenaLayout {
  /** Size of the area the subgraphs share: the largest any asks for; at offset 0 of the first core's arena. */
  readonly sharedBytes: number;
  /** Per core: offset of the subgraph's local part, and bytes of the core's arena. */
  readonly cores: readonly { readonly localOffset: number; readonly totalBytes: number }[];
}

/** Lays out the arenas of a model whose subgraph i runs on the i-th core of a logical core. */
export function arenaLayout(mode: ScratchpadMode, needs: readonly ArenaNeed[]): ArenaLayout {
  const sharedBytes = needs.reduce((most, need) => Math.max(most, need.sharedBytes), 0);
  const cores = needs.map((need, core) => {
    const { offset, next } = packPiece(mode, core === 0 ? sharedBytes : 0, need.localBytes);
    return { localOffset: offset, totalBytes: next };
  });
  return { sharedBytes, cores };
}

/**
 * Pages an arena of `totalBytes` needs.
 *
 * @throws {PlanError} NRT_RESOURCE above 1024 pages
 */
export function pagesFor(mode: ScratchpadMode, totalBytes: number): number {
  const pages = Math.ceil(totalBytes / mode.pageBytes);
  if (pages > SCRATCHPAD_MAX_PAGES) {
    throw new PlanError(
      `Cannot reserve a scratchpad of ${totalBytes} bytes: Number of scratchpad pages requested exceeded the max number of pages ` +
        `allowed (requested: ${pages}, max: ${SCRATCHPAD_MAX_PAGES})`,
      { status: NrtStatus.RESOURCE, details: { pages, most: SCRATCHPAD_MAX_PAGES, pageBytes: mode.pageBytes }, hint: "Use a larger scratchpad page size." },
    );
  }
  return pages;
}

/**
 * Where the range `[offset, offset + size)` of an arena of `pages` pages lies:
 * the page's index, or −1 when it crosses a page of the paged mode or leaves the
 * arena. The offset in the page is `offset % pageBytes`.
 */
export function pageOf(mode: ScratchpadMode, pages: number, offset: number, size: number): number {
  const { pageBytes, contiguous } = mode;
  const page = Math.floor(offset / pageBytes);
  if (page >= pages) return -1;
  if (contiguous) return offset + size <= pageBytes * pages ? pages - 1 - page : -1;
  return offset - page * pageBytes + size <= pageBytes ? page : -1;
}

/**
 * What to set so that a variable of `largestBytes` fits a page: the runtime's
 * advice after variables had to be private, in its own words.
 *
 * @returns the page size in MiB, and the two settings
 *
 * @example
 * console.log(pageAdvice(600 * MiB).settings[1]); // → NEURON_SCRATCHPAD_PAGE_SIZE=1024
 */
export function pageAdvice(largestBytes: number): { readonly pageMebibytes: number; readonly settings: readonly string[] } {
  const pageMebibytes = (Math.ceil(largestBytes / PAGE_STEP_BYTES) * PAGE_STEP_BYTES) / MIB;
  return {
    pageMebibytes,
    settings: [
      `NEURON_CC_FLAGS="--hbm-scratchpad-page-size=${pageMebibytes}"`,
      `NEURON_SCRATCHPAD_PAGE_SIZE=${pageMebibytes}`,
    ],
  };
}

/** One page's memory, as the core's allocator hands it out. */
export interface ScratchpadMemory {
  /** Device address of the page's first byte. */
  readonly address: number;
  /** Gives the page back. */
  release(): void;
}

/** A host mapping of contiguous pages. */
export interface ScratchpadMapping {
  /** Host address of arena offset 0. */
  readonly address: number;
  /** Unmaps. */
  close(): void;
}

/** Who gives an arena its pages. */
export interface PageSource<M extends ScratchpadMemory> {
  /** One page of the paged mode: usage SCRATCHPAD, aligned to 4 MiB. */
  page(bytes: number): M;
  /** The next page of the contiguous mode. */
  contiguousPage(bytes: number): M;
  /** Maps `bytes` from the lowest page on into the host (contiguous mode). */
  map(lowest: M, bytes: number): ScratchpadMapping;
}

/** The part of an arena one model uses. Its pages stay, and stay where they are, until it is released. */
export interface PageClaim<M extends ScratchpadMemory> {
  /** Pages the model counts on: its own number, not the arena's. */
  readonly pages: number;
  /** Page bytes: `offset % pageBytes` is the offset in the page. */
  readonly pageBytes: number;
  /** Whether the arena could not grow as far as asked for; what lies beyond is not found. */
  readonly cut: boolean;
  /** Host address of arena offset 0; 0 in the paged mode, whose pages are not mapped. */
  readonly va: number;
  /** The pages, by the arena's index. */
  readonly memories: readonly M[];
  /** The page of a range, or undefined when the range has none. */
  find(offset: number, size: number): M | undefined;
  /** Gives the references back; pages nobody uses any more are freed, the newest first. A second call does nothing. */
  release(): void;
}

/** The arena of one core. */
export class Scratchpad<M extends ScratchpadMemory> {
  readonly mode: ScratchpadMode;
  readonly #source: PageSource<M>;
  readonly #pages: { readonly memory: M; references: number }[] = [];

  /** An empty arena. */
  constructor(source: PageSource<M>, mode: ScratchpadMode) {
    this.#source = source;
    this.mode = mode;
  }

  /** References per page, by index: how many loaded models count on it. */
  get references(): readonly number[] {
    return this.#pages.map((page) => page.references);
  }

  /** Device addresses of the pages, by index. */
  get addresses(): readonly number[] {
    return this.#pages.map((page) => page.memory.address);
  }

  /** Device bytes of the arena. */
  get byteLength(): number {
    return this.#pages.length * this.mode.pageBytes;
  }

  /**
   * Reserves the pages of an arena of `totalBytes`; a failure leaves the arena as
   * it was. In the contiguous mode an arena that cannot grow any further is a
   * ceiling, not a failure.
   *
   * @throws {PlanError} above 1024 pages
   * @throws whatever the allocator throws
   */
  reserve(totalBytes: number): PageClaim<M> {
    const needed = pagesFor(this.mode, totalBytes);
    const before = this.#pages.length;
    try {
      while (this.#pages.length < needed && this.#grow());
    } catch (error) {
      this.#shrink(before);
      throw error;
    }
    const pages = Math.min(needed, this.#pages.length);
    for (let index = 0; index < pages; index++) this.#at(index).references++;
    try {
      return this.#reservation(pages, pages < needed);
    } catch (error) {
      this.#release(pages);
      throw error;
    }
  }

  #reservation(pages: number, cut: boolean): PageClaim<M> {
    const { mode } = this;
    // The model's own pages: later growth and other models' release cannot change what it resolves to.
    const own = this.#pages.slice(0, pages).map((page) => page.memory);
    const lowest = mode.contiguous ? own.at(-1) : undefined;
    const mapping = lowest === undefined ? undefined : this.#source.map(lowest, pages * mode.pageBytes);
    let released = false;
    return {
      pages,
      pageBytes: mode.pageBytes,
      cut,
      va: mapping?.address ?? 0,
      memories: own,
      find: (offset, size) => own[pageOf(mode, pages, offset, size)],
      release: () => {
        if (released) return;
        released = true;
        mapping?.close();
        this.#release(pages);
      },
    };
  }

  #release(pages: number): void {
    for (let index = 0; index < pages; index++) this.#at(index).references--;
    this.#shrink(this.#pages.filter((page) => page.references > 0).length);
  }

  /** Adds one page. False: the contiguous arena has reached its ceiling. */
  #grow(): boolean {
    const { pageBytes, contiguous } = this.mode;
    const memory = contiguous ? this.#growDown(pageBytes) : this.#source.page(pageBytes);
    if (memory === undefined) return false;
    if (memory.address % SMALLEST_PAGE_ALIGNMENT !== 0) {
      memory.release();
      throw new PlanError(`Cannot use the scratchpad page at 0x${memory.address.toString(16)}: Page needs to be 4K aligned`, {
        status: NrtStatus.FAILURE,
        details: { address: memory.address },
      });
    }
    this.#pages.push({ memory, references: 0 });
    return true;
  }

  /** The next page below the last one; undefined when the place is taken, also by another core's arena. */
  #growDown(pageBytes: number): M | undefined {
    let memory: M;
    try {
      memory = this.#source.contiguousPage(pageBytes);
    } catch (error) {
      if ((error as { status?: unknown }).status === NrtStatus.RESOURCE) return undefined;
      throw error;
    }
    const last = this.#pages.at(-1);
    if (last === undefined || memory.address + pageBytes === last.memory.address) return memory;
    memory.release();
    return undefined;
  }

  /** References never increase with the index, so that what is freed is always the end of the arena. */
  #shrink(length: number): void {
    while (this.#pages.length > length) this.#pages.pop()?.memory.release();
  }

  #at(index: number): { readonly memory: M; references: number } {
    return this.#pages[index] as { readonly memory: M; references: number };
  }
}
