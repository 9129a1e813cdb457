import { checkResult, Errno } from "../../ffi/errno.ts";
import { NeuronError } from "../../ffi/error.ts";
import { Mapping } from "../../ffi/kernel.ts";
import { addressOf, moveBytes } from "../../ffi/memory.ts";
import { FallocateMode, MapFlag, MemfdFlag, native, Protection } from "../../ffi/native.ts";
import type { DmaThread } from "./dma_thread.ts";
import { PAGE_BYTES } from "../hbm/layout.ts";

/** Pages of a word of the map. */
const WORD_BITS = 5;
/** Pages of one map: a GiB of memory. */
const MAP_PAGES = 2 ** 18;
const MAP_BYTES = MAP_PAGES * PAGE_BYTES;

/**
 * Which pages of a device's memory were never written through this process's
 * mappings. To write such a page there, the system makes it, maps it and comes back:
 * several times the cost of writing it through the descriptor.
 *
 * This is about speed only: a page somebody else has written may count as fresh.
 */
export class FreshPages {
  /** A bit per page, set when it is not fresh; by GiB. */
  readonly #maps = new Map<number, Uint32Array>();

  /** Whether no page of `[address, address + length)` was written. What must hold: the range lies in one GiB. */
  has(address: number, length: number): boolean {
    const map = this.#maps.get(mapOf(address));
    if (map === undefined) return true;
    const last = pageOf(address + length - 1);
    for (let page = pageOf(address); page <= last; page = nextWord(page)) {
      if ((map[page >>> WORD_BITS]! & bits(page, last)) !== 0) return false;
    }
    return true;
  }

  /**
   * Notes that the pages of a range are written. Returns whether all that begin in it were
   * fresh: what is written piece by piece ends and goes on in the middle of a page. What
   * must hold: the range lies in one GiB.
   */
  take(address: number, length: number): boolean {
    const index = mapOf(address);
    let map = this.#maps.get(index);
    if (map === undefined) this.#maps.set(index, map = new Uint32Array(MAP_PAGES >>> WORD_BITS));
    const first = pageOf(address);
    const last = pageOf(address + length - 1);
    const continued = address % PAGE_BYTES === 0 ? 0 : 1 << (first & 31);
    let used = 0;
    for (let page = first; page <= last; page = nextWord(page)) {
      const wanted = bits(page, last);
      const before = map[page >>> WORD_BITS]!;
      used |= before & wanted & ~(page === first ? continued : 0);
      map[page >>> WORD_BITS] = before | wanted;
    }
    return used === 0;
  }

  /** Notes that the pages of a range were given back. Length and address are multiples of a page. */
  release(address: number, length: number): void {
    for (const end = address + length; address < end;) {
      const stop = Math.min(end, (mapOf(address) + 1) * MAP_BYTES);
      const map = this.#maps.get(mapOf(address));
      const last = pageOf(stop - 1);
      if (map !== undefined) for (let page = pageOf(address); page <= last; page = nextWord(page)) map[page >>> WORD_BITS]! &= ~bits(page, last);
      address = stop;
    }
  }
}

function mapOf(address: number): number {
  return Math.floor(address / MAP_BYTES);
}

/** Number of a page in its map. */
function pageOf(address: number): number {
  return Math.floor(address / PAGE_BYTES) % MAP_PAGES;
}

/** The first page of the word after that of `page`. */
function nextWord(page: number): number {
  return (page | 31) + 1;
}

/** The bits of the pages from `page` to `last` in the word of `page`. */
function bits(page: number, last: number): number {
  const low = page & 31;
  const high = (page | 31) <= last ? 31 : last & 31;
  return (0xffffffff >>> (31 - high)) & (0xffffffff << low);
}

/** Length of the file: every device physical address is below it. */
export const BACKING_BYTES = 2 ** 48;
/** The device is seen through windows of this size; below the 4 GiB limit of a view. */
const WINDOW_BYTES = 2 ** 30;
/** Windows kept mapped at once. */
const WINDOW_LIMIT = 128;
/** What `startCopy` gives when the bytes are there already. */
export const NOTHING_STARTED = -1;
/** The file's name in `/proc/self/maps`. */
const NAME = "neuron-dmem-fake";

/**
 * The memory of one device: a sparse file in memory whose offsets are device
 * physical addresses, so that a mapping at `offset = address` needs no
 * translation. Untouched ranges read as zero and cost nothing.
 */
export class Backing {
  #fd = -1;
  #closed = false;
  readonly #fresh = new FreshPages();
  readonly #windows = new Map<number, Mapping>();
  #recentIndex = -1;
  #recent: Mapping | undefined;
  /** Moves bytes of asynchronous copies beside this thread; whatever else touches the memory waits for it. */
  readonly #thread: DmaThread | undefined;

  constructor(thread?: DmaThread) {
    this.#thread = thread;
  }

  /** The file's descriptor, made at first use. @throws {SystemError} when it cannot be made */
  get fd(): number {
    if (this.#fd >= 0) return this.#fd;
    if (this.#closed) throw new NeuronError("Cannot use the memory of a fake device: it was closed");
    const fd = checkResult(native().memfdCreate(NAME, MemfdFlag.CLOEXEC), "memfd_create");
    const result = native().ftruncate(fd, BACKING_BYTES);
    if (result < 0) {
      native().close(fd);
      checkResult(result, "ftruncate", { subject: "the fake device's memory", details: { bytes: BACKING_BYTES } });
    }
    return this.#fd = fd;
  }

  /** Whether anything was ever stored or mapped. */
  get used(): boolean {
    return this.#fd >= 0;
  }

  /**
   * Up to `length` bytes at `address`, without a copy: as many as the window
   * holds from there on (at least one). What must hold: not kept beyond the
   * current request.
   */
  bytes(address: number, length: number): Uint8Array {
    this.#thread?.drain();
    return this.#window(address).bytes(address % WINDOW_BYTES, withinWindow(address, length));
  }

  /**
   * The address in this process of the byte at `address`; as many bytes follow it as the
   * window holds. What must hold: not kept beyond the current request.
   */
  at(address: number): number {
    return this.#window(address).address + address % WINDOW_BYTES;
  }

  /** Sets `length` bytes at `address` to `value`. */
  fill(address: number, length: number, value: number): void {
    this.#thread?.drain();
    for (let done = 0; done < length;) {
      const step = withinWindow(address + done, length - done);
      native().memset(this.at(address + done), value, step);
      done += step;
    }
  }

  /** Stores bytes at `address`. */
  write(address: number, bytes: Uint8Array): void {
    this.load(address, addressOf(bytes), bytes.length);
  }

  /** Stores `length` bytes that lie at `from` in this process. What must hold: they are mapped. */
  load(address: number, from: number, length: number): void {
    this.#thread?.drain();
    for (let done = 0; done < length;) {
      const step = withinWindow(address + done, length - done);
      this.#put(address + done, from + done, step);
      done += step;
    }
  }

  /** Puts `length` bytes from `address` to `into` in this process. What must hold: it is mapped and writable. */
  store(address: number, into: number, length: number): void {
    this.#thread?.drain();
    for (let done = 0; done < length;) {
      const step = withinWindow(address + done, length - done);
      this.#get(address + done, into + done, step);
      done += step;
    }
  }

  /** Copies `length` bytes inside the device, lowest first. */
  copy(from: number, to: number, length: number): void {
    this.#thread?.drain();
    this.#copy(from, to, length, undefined);
  }

  /** Like `copy`, by the DMA thread where there is one: the bytes are there after `settle` with the number returned. */
  startCopy(from: number, to: number, length: number): number {
    const thread = this.#thread?.running === true ? this.#thread : undefined;
    this.#copy(from, to, length, thread);
    return thread?.started ?? NOTHING_STARTED;
  }

  /** Waits for a copy of `startCopy`. */
  settle(started: number): void {
    if (started !== NOTHING_STARTED) this.#thread!.wait(started);
  }

  #copy(from: number, to: number, length: number, thread: DmaThread | undefined): void {
    for (let done = 0; done < length;) {
      const step = withinWindow(to + done, withinWindow(from + done, length - done));
      const source = this.at(from + done);
      if (thread === undefined) this.#put(to + done, source, step);
      else thread.start(this.at(to + done), source, step);
      done += step;
    }
  }

  /** Stores bytes of this process; fresh pages through the descriptor. What must hold: the range lies in one window. */
  #put(address: number, from: number, length: number): void {
    if (length >= PAGE_BYTES && this.#fresh.take(address, length) && native().pwrite(this.fd, from, length, address) === length) return;
    moveBytes(this.at(address), from, length);
  }

  /** Reads bytes into this process. Pages nobody has written are not made for it. What must hold: the range lies in one window. */
  #get(address: number, into: number, length: number): void {
    if (length >= PAGE_BYTES && this.#fresh.has(address, length) && native().pread(this.fd, into, length, address) === length) return;
    moveBytes(into, this.at(address), length);
  }

  /** Gives the pages of `[address, address + length)` back to the system; they read as zero afterwards. */
  discard(address: number, length: number): void {
    if (this.#fd < 0) return;
    this.#thread?.drain();
    this.#fresh.release(address, length);
    checkResult(
      native().fallocate(this.#fd, FallocateMode.PUNCH_HOLE | FallocateMode.KEEP_SIZE, address, length),
      "fallocate", { details: { address, length } },
    );
  }

  /** Maps a range for a caller. Returns −errno on failure. @param onUnmap told the address when it is unmapped */
  map(address: number, length: number, protection: number, flags: number, onUnmap?: (address: number) => void): Mapping | number {
    const at = native().mmap(length, protection, flags, this.fd, address);
    if (at < 0) return at;
    if (onUnmap === undefined) return new Mapping(at, length);
    return new Mapping(at, length, (where, bytes) => {
      onUnmap(where);
      return native().munmap(where, bytes);
    });
  }

  /** Unmaps all windows and closes the file. Mappings handed out stay. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#thread?.drain();
    for (const mapping of this.#windows.values()) mapping.close();
    this.#windows.clear();
    this.#recentIndex = -1;
    this.#recent = undefined;
    if (this.#fd >= 0) native().close(this.#fd);
    this.#fd = -1;
  }

  #window(address: number): Mapping {
    const index = Math.floor(address / WINDOW_BYTES);
    return index === this.#recentIndex ? this.#recent! : this.#find(index);
  }

  #find(index: number): Mapping {
    let window = this.#windows.get(index);
    if (window === undefined) {
      if (this.#windows.size >= WINDOW_LIMIT) this.#evict();
      const mapping = this.map(index * WINDOW_BYTES, WINDOW_BYTES, Protection.READ | Protection.WRITE, MapFlag.SHARED);
      if (typeof mapping === "number") {
        throw new NeuronError(`Cannot reach address ${index * WINDOW_BYTES} of the fake device: mapping failed`, {
          details: { errno: -mapping, limit: -mapping === Errno.ENOMEM ? "address space or map count" : undefined },
        });
      }
      window = mapping;
      this.#windows.set(index, window);
    }
    this.#recentIndex = index;
    return this.#recent = window;
  }

  #evict(): void {
    this.#thread?.drain();
    for (const [index, mapping] of this.#windows) {
      // The most recent window may be the source of the copy that needs another one.
      if (index === this.#recentIndex) continue;
      this.#windows.delete(index);
      return mapping.close();
    }
  }
}

/** How many of `length` bytes from `address` on lie in its window. */
function withinWindow(address: number, length: number): number {
  return Math.min(length, WINDOW_BYTES - address % WINDOW_BYTES);
}
