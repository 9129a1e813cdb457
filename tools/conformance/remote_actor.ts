import { readFileSync } from "node:fs";
import { constants } from "node:os";
import { checkResult, Errno } from "../../ffi/errno.ts";
import { NeuronError } from "../../ffi/error.ts";
import { MapFlag, Protection } from "../../ffi/native.ts";
import { readU64, writeU64 } from "../../ffi/u64.ts";
import type { Actor, Ending, ListedRequest, MappingInfo } from "./actor.ts";
import type { RemoteLink } from "./remote_link.ts";

const PAGE_BYTES = 4096;
/** Room for paths, results and lists of requests. */
const SCRATCH_BYTES = 2 ** 20;
/** Room for the largest buffer of a recording, and arguments before it. */
const AREA_BYTES = 40 * 2 ** 20;
/** Bytes of a list and of a request in it, as `client.c` has them. */
const LIST_BYTES = 24;
const REQUEST_BYTES = 24;
const AT_FDCWD = -100;
const MREMAP_MAYMOVE = 1;
const NOBODY = 65534;

/** Memory of a process for what its calls point to. A fork has it at the same addresses. */
interface Ground {
  readonly scratch: number;
  readonly area: number;
  /** End of the area: the page there is unmapped, the one after it can only be read, the next is unmapped. */
  readonly end: number;
}

/** A real process that makes the calls it is told. */
export class RemoteActor implements Actor {
  readonly readOnlyPage: number;
  readonly #link: RemoteLink;
  readonly #ground: Ground;
  readonly #connect: (parent: RemoteLink, pid: number) => RemoteLink;

  /** @param connect waits for the connection of a child */
  constructor(link: RemoteLink, connect: (parent: RemoteLink, pid: number) => RemoteLink, ground: Ground = prepareGround(link)) {
    this.#link = link;
    this.#connect = connect;
    this.#ground = ground;
    this.readOnlyPage = ground.end + PAGE_BYTES;
  }

  get pid(): number {
    return this.#link.pid;
  }

  open(path: string, flags: number): number {
    return this.#link.call("openat", AT_FDCWD, this.#text(path), flags, 0);
  }

  close(fd: number): number {
    return this.#link.call("close", fd);
  }

  dup(fd: number): number {
    return this.#link.call("dup", fd);
  }

  ioctl(fd: number, request: number, address: bigint): number {
    return this.#link.call("ioctl", fd, request >>> 0, address);
  }

  issue(lists: readonly (readonly ListedRequest[])[]): number[][] {
    const { scratch } = this.#ground;
    const starts = lists.map((_, index) => lists.slice(0, index).reduce((sum, { length }) => sum + length, 0));
    const requestsAt = lists.length * LIST_BYTES;
    const view = new DataView(new ArrayBuffer(requestsAt + lists.reduce((sum, { length }) => sum + length, 0) * REQUEST_BYTES));
    if (view.byteLength > SCRATCH_BYTES) throw new NeuronError(`Cannot issue requests that take ${view.byteLength} bytes at once: more than ${SCRATCH_BYTES}`);
    lists.forEach((list, index) => {
      const start = requestsAt + starts[index]! * REQUEST_BYTES;
      writeU64(view, index * LIST_BYTES, scratch + start);
      writeU64(view, index * LIST_BYTES + 8, list.length);
      list.forEach(({ fd, request, address }, place) => {
        const at = start + place * REQUEST_BYTES;
        view.setInt32(at, fd, true);
        view.setUint32(at + 4, request, true);
        writeU64(view, at + 8, address);
      });
    });
    this.#link.poke(scratch, new Uint8Array(view.buffer));
    checkResult(this.#link.issue(scratch, lists.length), "issue requests");
    const after = new DataView(this.#link.peek(scratch, view.byteLength).buffer);
    return starts.map((start, index) => Array.from(
      { length: readU64(after, index * LIST_BYTES + 16) },
      (_, place) => Number(after.getBigInt64(requestsAt + (start + place) * REQUEST_BYTES + 16, true)),
    ));
  }

  mmap(fd: number, length: number, protection: number, flags: number, offset: number): number {
    return this.#link.call("mmap", 0, length, protection, flags, fd, offset);
  }

  munmap(address: number, length: number): number {
    return this.#link.call("munmap", address, length);
  }

  mprotect(address: number, length: number, protection: number): number {
    return this.#link.call("mprotect", address, length, protection);
  }

  mremap(address: number, length: number, newLength: number): number {
    return this.#link.call("mremap", address, length, newLength, MREMAP_MAYMOVE);
  }

  readWriteSeek(call: "read" | "write" | "lseek", fd: number): number {
    return call === "lseek" ? this.#link.call("lseek", fd, 0, 0) : this.#link.call(call, fd, this.#ground.area, 8);
  }

  closesOnExec(fd: number): boolean {
    return this.#link.closesOnExec(fd);
  }

  load(address: number, length: number): Uint8Array | undefined {
    return this.#isOwn(address, length) ? this.#link.peek(address, length) : this.#link.load(address, length);
  }

  store(address: number, bytes: Uint8Array): boolean {
    if (!this.#isOwn(address, bytes.length)) return this.#link.store(address, bytes);
    this.#link.poke(address, bytes);
    return true;
  }

  area(length: number, before: "page" | "unmapped" = "page"): number {
    const { area, end } = this.#ground;
    if (length > AREA_BYTES) throw new NeuronError(`Cannot place ${length} bytes of a recorded call: more than ${AREA_BYTES}`);
    return before === "unmapped" ? end - length : area;
  }

  mapping(address: number): MappingInfo | undefined {
    const text = address.toString(16).padStart(8, "0");
    const line = readFileSync(`/proc/${this.pid}/maps`, "utf8").split("\n").find((each) => each.startsWith(`${text}-`));
    const [, perms, offset] = line?.split(/\s+/) ?? [];
    return perms === undefined ? undefined : { perms, offset: Number.parseInt(offset!, 16) };
  }

  fork(): RemoteActor {
    const pid = checkResult(this.#link.fork(), "fork");
    return new RemoteActor(this.#connect(this.#link, pid), this.#connect, this.#ground);
  }

  exit(code: number): void {
    this.#link.callLast("exit_group", code);
  }

  kill(child: Actor, signal: string): number {
    const number = (constants.signals as Readonly<Record<string, number>>)[signal] ?? Number(signal);
    const result = this.#link.call("kill", child.pid, number);
    if (result === 0) (child as RemoteActor).#link.untilEnded();
    return result;
  }

  wait(child: Actor): Ending {
    const { scratch } = this.#ground;
    checkResult(this.#link.call("wait4", child.pid, scratch, 0, 0), "wait for", { subject: `process ${child.pid}` });
    const status = new DataView(this.#link.peek(scratch, 4).buffer).getInt32(0, true);
    const signal = status & 0x7f;
    return signal === 0 ? { exit: (status >> 8) & 0xff } : { signal };
  }

  /** Becomes nobody; without privileges there are none to give up. */
  dropPrivileges(): void {
    if (this.#link.call("setgroups", 0, 0) === -Errno.EPERM) return;
    checkResult(this.#link.call("setresgid", NOBODY, NOBODY, NOBODY), "drop privileges");
    checkResult(this.#link.call("setresuid", NOBODY, NOBODY, NOBODY), "drop privileges");
  }

  /** The text of a file, or −errno. */
  readText(path: string): string | number {
    const fd = this.open(path, 0);
    if (fd < 0) return fd;
    const length = this.#link.call("read", fd, this.#ground.scratch, PAGE_BYTES);
    this.close(fd);
    return length < 0 ? length : new TextDecoder().decode(this.#link.peek(this.#ground.scratch, length));
  }

  /** Writes to a file. Returns the bytes written, or −errno. */
  writeText(path: string, text: string): number {
    const fd = this.open(path, 1);
    if (fd < 0) return fd;
    const bytes = new TextEncoder().encode(text);
    const result = this.#link.call("write", fd, this.#text(text), bytes.length);
    this.close(fd);
    return result;
  }

  /** All files below a directory, by path. */
  tree(directory: string): Map<string, string> {
    const files = new Map<string, string>();
    const bytes = this.#link.tree(this.#text(directory));
    if (typeof bytes === "number") return files;
    const view = new DataView(bytes.buffer);
    const decoder = new TextDecoder();
    for (let at = 0; at < bytes.length;) {
      const [path, text] = [view.getUint32(at, true), view.getUint32(at + 4, true)];
      const start = at + 8;
      at = start + path + text;
      files.set(decoder.decode(bytes.subarray(start, start + path)), decoder.decode(bytes.subarray(start + path, at)));
    }
    return files;
  }

  /** Ends the process. */
  release(): void {
    this.#link.close();
  }

  #isOwn(address: number, length: number): boolean {
    const { scratch, end } = this.#ground;
    return address >= scratch && address + length <= end;
  }

  /** Puts text into the process's memory. Returns its address. */
  #text(text: string): number {
    this.#link.poke(this.#ground.scratch, new TextEncoder().encode(`${text}\0`));
    return this.#ground.scratch;
  }
}

function prepareGround(link: RemoteLink): Ground {
  const length = SCRATCH_BYTES + AREA_BYTES + 3 * PAGE_BYTES;
  const flags = MapFlag.PRIVATE | MapFlag.ANONYMOUS | MapFlag.NORESERVE;
  const scratch = checkResult(link.call("mmap", 0, length, Protection.READ | Protection.WRITE, flags, -1, 0), "mmap", { subject: "memory for arguments" });
  const end = scratch + SCRATCH_BYTES + AREA_BYTES;
  for (const [page, protection] of [Protection.NONE, Protection.READ, Protection.NONE].entries()) {
    checkResult(link.call("mprotect", end + page * PAGE_BYTES, PAGE_BYTES, protection), "mprotect");
  }
  return { scratch, area: scratch + SCRATCH_BYTES, end };
}
