import { Errno } from "../../ffi/errno.ts";
import type { Kernel, Mapping } from "../../ffi/kernel.ts";
import { type Call, type Caller, type MachineState, type MappingRecord, type MapPlan, planMapping } from "./call.ts";
import { BLOCKED, type Wait, waitOut } from "./options.ts";
import type { Device } from "./device.ts";
import { dispatch, type DispatchTable, findEntry } from "./dispatch.ts";
import { type CallContext, type Middleware, ProcessDied, through } from "./faults.ts";
import type { Slot } from "./process_table.ts";
import type { UserMemory } from "./user_memory.ts";

/** Number of the first descriptor; high, so that a fake one is never mistaken for a real one. */
const FIRST_FD = 0x10000;
const ACCESS_MODE = 3;
const WRITE_ONLY = 1;

/** An open file of the node, shared by duplicates and forked children. */
export interface OpenFile {
  /** The device. */
  readonly device: Device;
  /** Whether it was opened O_WRONLY (or with access mode 3): 19 requests work, nothing is attached. */
  readonly freeAccess: boolean;
  /** Access mode, 0 … 3. */
  readonly mode: number;
  /** Whether it is a dma-buf, which answers nothing. */
  readonly buffer: boolean;
  /** Descriptors that refer to it. */
  references: number;
}

/** A machine as its processes see it. */
export interface ProcessMachine extends MachineState {
  /** The requests of its driver version. */
  readonly dispatchTable: DispatchTable;
  /** What calls go through before they reach the driver, the first one outermost. */
  readonly middlewares: readonly Middleware[];
  /** Runs an action once a device is ready. */
  whenReady(device: Device, action: () => number): number | Wait;
  /** Does what the driver does at every close of a descriptor. */
  flush(file: OpenFile, process: FakeProcess): void;
  /** Gives up an open file: nothing refers to it any more. */
  release(file: OpenFile): void;
  /** Begins a wait; returns `BLOCKED`, or the answer where there is nothing to wait for. */
  begin(wait: Wait | number): number;
  /** The wait that was begun. */
  takeWait(): Wait;
  /** A file below sysfs, or −errno. */
  readText(path: string): string | number;
  /** The names in a directory below sysfs, or −errno. */
  list(path: string): readonly string[] | number;
  /** A process id nobody has. */
  nextPid(): number;
  /** Notes a process. */
  started(process: FakeProcess): void;
  /** Forgets one that ended. */
  ended(process: FakeProcess): void;
}

/** A process that uses the fake devices of a machine: the same calls as the Linux kernel, and its end. */
export class FakeProcess implements Kernel, Caller {
  readonly kind = "fake";
  /** Process id as the driver reports it. */
  readonly pid: number;
  /** The memory its addresses point into. */
  readonly memory: UserMemory;
  /** Whether it may map device memory without an allocation. */
  root: boolean;
  /** Its slot on each device it is attached to, by device index. */
  readonly slots: (Slot | undefined)[] = [];
  readonly pins: Set<number> = new Set();
  readonly mappings: MappingRecord[] = [];
  /**
   * Makes the descriptor of a dma-buf for a process that is not this one.
   * Returns it, or −errno. Default: a descriptor of this process that can only
   * be closed.
   */
  exporter: ((device: Device, pa: number) => number) | undefined;
  readonly #machine: ProcessMachine;
  readonly #table: DispatchTable;
  readonly #files: (OpenFile | undefined)[] = [];
  readonly #call: Call;
  #alive = true;

  /** Made by {@linkcode FakeMachine.process} and {@linkcode FakeProcess.fork}. */
  constructor(machine: ProcessMachine, pid: number, memory: UserMemory, root: boolean) {
    this.#machine = machine;
    this.#table = machine.dispatchTable;
    this.pid = pid;
    this.memory = memory;
    this.root = root;
    this.#call = { caller: this, memory, device: undefined as unknown as Device, slot: undefined, request: 0, address: 0, machine };
  }

  /** Whether it has not ended. */
  get alive(): boolean {
    return this.#alive;
  }

  /** `open(2)` of `/dev/neuronN`; waits while the device is being reset. Other paths are ENOENT. */
  open(path: string, flags: number): number {
    const result = this.openOrWait(path, flags);
    return typeof result === "number" ? result : waitOut(this.#machine.clock, result);
  }

  /** `open(2)` that hands back a {@linkcode Wait} instead of waiting. */
  openOrWait(path: string, flags: number): number | Wait {
    return this.#observe("open", "open", { path, flags }, () => this.#open(path, flags));
  }

  #open(path: string, flags: number): number | Wait {
    const match = /^\/dev\/neuron(0|[1-9][0-9]*)$/.exec(path);
    const device = match === null ? undefined : this.#machine.devices[Number(match[1])];
    if (device === undefined) return -Errno.ENOENT;
    const mode = flags & ACCESS_MODE;
    if ((mode & WRITE_ONLY) !== 0) return this.#install({ device, freeAccess: true, mode, buffer: false, references: 0 });
    return this.#machine.whenReady(device, () => this.#attach(device, mode));
  }

  /** `close(2)`: the driver's flush, then the last reference. */
  close(fd: number): number {
    return this.#observe("close", "close", { fd }, () => this.#close(fd)) as number;
  }

  #close(fd: number): number {
    const file = this.#files[fd - FIRST_FD];
    if (file === undefined) return -Errno.EBADF;
    this.#files[fd - FIRST_FD] = undefined;
    this.#machine.flush(file, this);
    if (--file.references === 0) this.#machine.release(file);
    return 0;
  }

  /** `dup(2)`. */
  dup(fd: number): number {
    return this.#observe("dup", "dup", { fd }, () => {
      const file = this.#files[fd - FIRST_FD];
      return file === undefined ? -Errno.EBADF : this.#install(file);
    }) as number;
  }

  /** Gives this process a descriptor of another process's open file, as passing it over a socket does. Returns it, or −EBADF. */
  adopt(process: FakeProcess, fd: number): number {
    const file = process.file(fd);
    return file === undefined ? -Errno.EBADF : this.#install(file);
  }

  /** Gives up a descriptor from `adopt` that no program had: nothing is flushed, and no call is observed. */
  abandon(fd: number): void {
    const file = this.#files[fd - FIRST_FD];
    if (file === undefined) return;
    this.#files[fd - FIRST_FD] = undefined;
    if (--file.references === 0) this.#machine.release(file);
  }

  /** The open file of a descriptor, or undefined. */
  file(fd: number): OpenFile | undefined {
    return this.#files[fd - FIRST_FD];
  }

  /** `ioctl(2)`. @param request number of the request @param address of the argument in this process's memory */
  ioctl(fd: number, request: number, address: number): number {
    let result = this.#issue(fd, request, address);
    while (result === BLOCKED) result = waitOut(this.#machine.clock, this.#machine.takeWait());
    return result;
  }

  /** `ioctl(2)` that hands back a {@linkcode Wait} instead of waiting: for a supervisor of several processes. @param request number of the request */
  ioctlOrWait(fd: number, request: number, address: number): number | Wait {
    const result = this.#issue(fd, request, address);
    return result === BLOCKED ? this.#machine.takeWait() : result;
  }

  /** `mmap(2)`: `offset` is a device physical address and `length` the whole chunk. */
  mmap(fd: number, length: number, protection: number, flags: number, offset: number): Mapping | number {
    let made: Mapping | number = -Errno.ENOMEM;
    const result = this.#observe("mmap", "mmap", { fd, length, protection, flags, offset }, () => {
      made = this.#mmap(fd, length, protection, flags, offset);
      return typeof made === "number" ? made : made.address;
    }) as number;
    return result < 0 ? result : made;
  }

  #mmap(fd: number, length: number, protection: number, flags: number, offset: number): Mapping | number {
    const file = this.#files[fd - FIRST_FD];
    if (file === undefined) return -Errno.EBADF;
    const plan = this.#plan(fd, length, protection, flags, offset);
    if (typeof plan === "number") return plan;
    const mapping = file.device.backing.map(plan.pa, length, plan.protection, flags, (address) => this.unmapped(address, length));
    if (typeof mapping !== "number") this.mapped(fd, plan, mapping.address, length);
    return mapping;
  }

  /** What the driver says to a mapping, for a process whose memory is mapped by somebody else. Returns −errno when refused. */
  planMapping(fd: number, length: number, protection: number, flags: number, offset: number): MapPlan | number {
    let plan: MapPlan | number = -Errno.ENOMEM;
    const result = this.#observe("mmap", "mmap", { fd, length, protection, flags, offset }, () => {
      plan = this.#plan(fd, length, protection, flags, offset);
      return typeof plan === "number" ? plan : 0;
    }) as number;
    return result < 0 ? result : plan;
  }

  #plan(fd: number, length: number, protection: number, flags: number, offset: number): MapPlan | number {
    const file = this.#files[fd - FIRST_FD];
    if (file === undefined) return -Errno.EBADF;
    if (file.buffer) return -Errno.ENOTSUPP;
    return planMapping(this, file.device, { mode: file.mode, length, protection, flags, offset });
  }

  /** Records that a planned mapping was made at `va`. */
  mapped(fd: number, plan: MapPlan, va: number, length: number): void {
    const device = this.#files[fd - FIRST_FD]?.device;
    if (!plan.recorded || device === undefined || this.slots[device.index] === undefined) return;
    this.#observe("mapped", "mapped", { fd, pa: plan.pa, address: va, length }, () => {
      this.mappings.push({ device, va, size: Math.ceil(length / 4096) * 4096, pa: plan.pa });
      return 0;
    });
  }

  /** Forgets a mapping that was unmapped as a whole; a part leaves the record as it was. */
  unmapped(va: number, length: number): void {
    const size = Math.ceil(length / 4096) * 4096;
    const index = this.mappings.findIndex((record) => record.va === va && record.size === size);
    if (index < 0) return;
    this.#observe("unmapped", "unmapped", { address: va, length }, () => {
      this.mappings.splice(index, 1);
      return 0;
    });
  }

  /** Makes a dma-buf descriptor for device memory. */
  exportBuffer(device: Device, pa: number): number {
    if (this.exporter !== undefined) return this.exporter(device, pa);
    return this.#install({ device, freeAccess: true, mode: 0, buffer: true, references: 0 });
  }

  /** The text of a sysfs file, or −errno. */
  readText(path: string): string | number {
    return this.#machine.readText(path);
  }

  /** The names in a sysfs directory or `/dev`, or −errno. */
  list(path: string): readonly string[] | number {
    return this.#machine.list(path);
  }

  /** `fork(2)`: a child that inherits the descriptors but is attached to nothing and has no mappings. */
  fork(options: { readonly pid?: number; readonly memory?: UserMemory } = {}): FakeProcess {
    const child = new FakeProcess(this.#machine, options.pid ?? this.#machine.nextPid(), options.memory ?? this.memory, this.root);
    this.#machine.started(child);
    this.#observe("fork", "fork", { child: child.pid }, () => 0);
    this.#files.forEach((file, index) => {
      if (file === undefined) return;
      child.#files[index] = file;
      file.references++;
    });
    return child;
  }

  /** Ends the process: closes everything, lowest descriptor first. A second call does nothing. */
  exit(): void {
    if (!this.#alive) return;
    this.#observe("exit", "exit", {}, () => {
      this.#alive = false;
      for (let index = 0; index < this.#files.length; index++) this.#close(FIRST_FD + index);
      this.#machine.ended(this);
      return 0;
    });
  }

  /** Ends the process as a signal does; for the driver the same as an exit. */
  kill(): void {
    this.exit();
  }

  #issue(fd: number, request: number, address: number): number {
    if (this.#machine.middlewares.length === 0) return this.#execute(fd, request, address);
    const name = findEntry(this.#table, request | 0)?.name ?? `0x${(request >>> 0).toString(16).padStart(8, "0")}`;
    return this.#observe("ioctl", name, { fd, request: request >>> 0, address }, () => this.#execute(fd, request, address)) as number;
  }

  #execute(fd: number, request: number, address: number): number {
    const file = this.#files[fd - FIRST_FD];
    if (file === undefined) return -Errno.EBADF;
    if (file.buffer) return -Errno.ENOTTY;
    const call = this.#call;
    call.device = file.device;
    call.slot = this.slots[file.device.index];
    call.request = request | 0;
    call.address = address;
    return dispatch(this.#table, call, file.freeAccess);
  }

  /** Runs a call through the machine's middlewares, if it has any. A wait is handed back as it is. */
  #observe(kind: CallContext["kind"], name: string, args: CallContext["arguments"], action: () => number | Wait): number | Wait {
    const { middlewares } = this.#machine;
    if (middlewares.length === 0) return action();
    let wait: Wait | undefined;
    const result = through(middlewares, this.#context(kind, name, args), () => {
      const outcome = action();
      if (typeof outcome === "number") return outcome;
      wait = outcome;
      return BLOCKED;
    });
    return wait !== undefined && result === BLOCKED ? wait : result;
  }

  #context(kind: CallContext["kind"], name: string, args: CallContext["arguments"]): CallContext {
    const machine = this.#machine;
    const call = this.#call;
    return {
      process: this, kind, name, arguments: args,
      delay(milliseconds, run) {
        if (kind === "ioctl") return machine.begin({ deadline: machine.clock.now() + milliseconds, poll: () => undefined, expired: run });
        machine.clock.advance(milliseconds);
        return run();
      },
      withMemory(wrap, run) {
        const before = call.memory;
        call.memory = wrap(before);
        try {
          return run();
        } finally {
          call.memory = before;
        }
      },
      die: () => {
        this.exit();
        throw new ProcessDied(`Cannot finish ${name}: a planned fault ended process ${this.pid} there`, { details: { pid: this.pid, name } });
      },
    };
  }

  #attach(device: Device, mode: number): number {
    const slot = device.processes.attach(this.pid);
    if (slot === undefined) return -Errno.EBUSY;
    this.slots[device.index] = slot;
    device.openCount++;
    return this.#install({ device, freeAccess: false, mode, buffer: false, references: 0 });
  }

  #install(file: OpenFile): number {
    file.references++;
    let index = this.#files.indexOf(undefined);
    if (index < 0) index = this.#files.length;
    this.#files[index] = file;
    return FIRST_FD + index;
  }
}
