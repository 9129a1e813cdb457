import { Errno } from "../../ffi/errno.ts";
import { NeuronError } from "../../ffi/error.ts";
import type { Mapping } from "../../ffi/kernel.ts";
import { bytesAt, type Pinned, pinned, readProcess, registerPinned, unregisterPinned, writeProcess } from "../../ffi/memory.ts";
import { MapFlag, native, Protection } from "../../ffi/native.ts";
import { syscalls } from "../../ffi/syscalls.ts";
import { readFileSync } from "node:fs";
import { carefulMemory } from "../../lib/fake/careful_memory.ts";
import { createFake, type FakeMachine, type FakeOptions } from "../../lib/fake/machine.ts";
import type { FakeProcess } from "../../lib/fake/process.ts";
import { ownMemory, type UserMemory } from "../../lib/fake/user_memory.ts";
import type { Actor, Ending, MappingInfo, Subject } from "./actor.ts";

const PAGE_BYTES = 4096;
/** Room for the largest buffer of a recording, and arguments before it. */
const AREA_BYTES = 40 * 2 ** 20;
const SIGKILL = 9;

/** Memory in which arguments and buffers of all processes of a subject are placed, followed by an unmapped page. */
interface Playground {
  readonly address: number;
  readonly end: number;
  readonly readOnlyPage: number;
  readonly close: () => void;
}

function createPlayground(): Playground {
  const length = AREA_BYTES + 3 * PAGE_BYTES;
  const flags = MapFlag.PRIVATE | MapFlag.ANONYMOUS | MapFlag.NORESERVE;
  const address = native().mmap(length, Protection.READ | Protection.WRITE, flags, -1, 0);
  if (address < 0) throw new NeuronError(`Cannot reserve ${length} bytes for the arguments of recorded calls`);
  const end = address + AREA_BYTES;
  protect(end, PAGE_BYTES, Protection.NONE);
  protect(end + PAGE_BYTES, PAGE_BYTES, Protection.READ);
  protect(end + 2 * PAGE_BYTES, PAGE_BYTES, Protection.NONE);
  const buffer = native().bufferAt(address, AREA_BYTES);
  const area: Pinned = { address, byteLength: AREA_BYTES, bytes: new Uint8Array(buffer), view: new DataView(buffer) };
  registerPinned(area);
  const close = () => {
    unregisterPinned(area);
    buffer.transfer(0);
    native().munmap(address, length);
  };
  return { address, end, readOnlyPage: end + PAGE_BYTES, close };
}

function protect(address: number, length: number, protection: number): number {
  return native().syscall(syscalls.mprotect, address, length, protection);
}

/** A process of the fake, made to issue recorded calls. */
class FakeActor implements Actor {
  readonly readOnlyPage: number;
  readonly process: FakeProcess;
  readonly #playground: Playground;
  readonly #careful: boolean;
  readonly #mappings = new Map<number, { readonly mapping: Mapping; readonly length: number }>();
  ending: Ending | undefined;

  constructor(process: FakeProcess, playground: Playground, careful: boolean) {
    this.process = process;
    this.#playground = playground;
    this.#careful = careful;
    this.readOnlyPage = playground.readOnlyPage;
  }

  get pid(): number {
    return this.process.pid;
  }

  open(path: string, flags: number): number {
    return this.process.open(path, flags);
  }

  close(fd: number): number {
    return this.process.close(fd);
  }

  dup(fd: number): number {
    return this.process.dup(fd);
  }

  ioctl(fd: number, request: number, address: bigint): number {
    return this.process.ioctl(fd, request, Number(address));
  }

  mmap(fd: number, length: number, protection: number, flags: number, offset: number): number {
    const mapping = this.process.mmap(fd, length, protection, flags, offset);
    if (typeof mapping === "number") return mapping;
    this.#mappings.set(mapping.address, { mapping, length });
    return mapping.address;
  }

  munmap(address: number, length: number): number {
    const found = this.#mappings.get(address);
    if (found === undefined || length < found.length) return native().munmap(address, length);
    this.#mappings.delete(address);
    found.mapping.close();
    return 0;
  }

  mprotect(address: number, length: number, protection: number): number {
    return protect(address, length, protection);
  }

  /** The driver's mappings may not grow. */
  mremap(_address: number, length: number, newLength: number): number {
    return newLength > length ? -Errno.EFAULT : 0;
  }

  /** The node has no such operations: the kernel answers for it. */
  readWriteSeek(call: "read" | "write" | "lseek", fd: number): number {
    return this.process.file(fd) === undefined ? -Errno.EBADF : call === "lseek" ? -Errno.ESPIPE : -Errno.EINVAL;
  }

  /** All descriptors the driver itself makes are closed on exec. */
  closesOnExec(fd: number): boolean {
    return this.process.file(fd)?.buffer === true;
  }

  load(address: number, length: number): Uint8Array | undefined {
    if (!this.#careful) return bytesAt(address, length).slice();
    if (!this.#mine(address)) return undefined;
    const into = pinned(length);
    return readProcess(process.pid, address, into.address, length) === length ? into.bytes : undefined;
  }

  store(address: number, bytes: Uint8Array): boolean {
    if (!this.#careful) {
      bytesAt(address, bytes.length).set(bytes);
      return true;
    }
    if (!this.#mine(address)) return false;
    const from = pinned(bytes.length);
    from.bytes.set(bytes);
    return writeProcess(process.pid, address, from.address, bytes.length) === bytes.length;
  }

  area(length: number, before: "page" | "unmapped" = "page"): number {
    const { address, end } = this.#playground;
    if (length > AREA_BYTES) throw new NeuronError(`Cannot place ${length} bytes of a recorded call: more than ${AREA_BYTES}`);
    return before === "unmapped" ? end - length : address;
  }

  mapping(address: number): MappingInfo | undefined {
    const text = address.toString(16).padStart(8, "0");
    const line = readFileSync("/proc/self/maps", "utf8").split("\n").find((each) => each.startsWith(`${text}-`));
    const [, perms, offset] = line?.split(/\s+/) ?? [];
    return perms === undefined ? undefined : { perms, offset: Number.parseInt(offset!, 16) };
  }

  fork(): Actor {
    return new FakeActor(this.process.fork(), this.#playground, this.#careful);
  }

  exit(code: number): void {
    this.#end({ exit: code });
  }

  kill(child: Actor): number {
    (child as FakeActor).#end({ signal: SIGKILL });
    return 0;
  }

  wait(child: Actor): Ending {
    return (child as FakeActor).ending ?? {};
  }

  dropPrivileges(): void {
    this.process.root = false;
  }

  /** Unmaps what is still mapped. */
  release(): void {
    for (const { mapping } of this.#mappings.values()) mapping.close();
    this.#mappings.clear();
  }

  #end(ending: Ending): void {
    this.ending = ending;
    this.release();
    this.process.exit();
  }

  /** A forked child shares this process's address space in truth, but has no mappings of the device from before. */
  #mine(address: number): boolean {
    const { address: start, end } = this.#playground;
    if (address >= start && address < end + 3 * PAGE_BYTES) return true;
    for (const [from, { length }] of this.#mappings) if (address >= from && address < from + length) return true;
    return false;
  }
}

/** How a subject in this process is made. */
export interface InProcessOptions extends FakeOptions {
  /** Whether bad addresses are used: memory is then accessed with a system call each. Default true. */
  readonly careful?: boolean;
}

/** A freshly loaded fake driver in this process. */
export function inProcessSubject(options: InProcessOptions): Subject & { readonly machine: FakeMachine } {
  const careful = options.careful ?? true;
  const machine = createFake(options);
  const memory: UserMemory = careful ? carefulMemory() : ownMemory();
  const playground = createPlayground();
  const first = new FakeActor(machine.process({ memory, root: true }), playground, careful);
  return {
    machine,
    first,
    readText: (path) => machine.readText(path),
    writeText: (path, text) => machine.writeText(path, text),
    tree: (directory) => new Map([...machine.sysfs.tree(directory)].map(([path, file]) => [path, file.read()])),
    close() {
      first.release();
      machine.close();
      playground.close();
    },
  };
}
