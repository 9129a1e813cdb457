/** A fake device with its memory, the requests it saw, and what is left on it. */
import { readFileSync } from "node:fs";
import type { Kernel } from "../../ffi/kernel.ts";
import { type Product, productOfTarget } from "../../lib/abi/architecture.ts";
import { type AllocatorLayer, type DeviceMemory, type DeviceMemoryOptions, openDeviceMemory } from "../../lib/dmem/mod.ts";
import { type CallRecord, type RequestFault, type FaultyKernel, withRequestFaults, withRequestLog } from "../../lib/driver/layers.ts";
import { type NeuronDevice, openDevice } from "../../lib/driver/mod.ts";
import { createFake, type FakeMachine, type FakeOptions } from "../../lib/fake/machine.ts";
import type { NeffTarget } from "../../lib/neff/model.ts";

/** What a test device is opened with. */
export interface TestDeviceOptions {
  readonly fake?: Partial<Omit<FakeOptions, "product">>;
  readonly memory?: DeviceMemoryOptions;
  /** Puts something between the driver's requests and the fake. */
  readonly kernel?: (kernel: Kernel) => Kernel;
}

/** An open fake device. */
export class TestDevice {
  readonly fake: FakeMachine;
  readonly device: NeuronDevice;
  readonly memory: DeviceMemory;
  /** Requests since the memory was opened. */
  readonly calls: CallRecord[] = [];
  readonly #kernel: Kernel;
  #answering: Kernel;
  readonly #start: string;
  readonly #startChunks: number;

  constructor(product: Product, options: TestDeviceOptions = {}) {
    this.fake = createFake({ product, ...options.fake });
    this.#kernel = options.kernel?.(this.fake.kernel()) ?? this.fake.kernel();
    this.#answering = this.#kernel;
    this.device = openDevice({ kernel: withRequestLog(this.#seam(), (call) => this.calls.push(call)), index: 0 });
    this.memory = openDeviceMemory(this.device, options.memory);
    this.#start = JSON.stringify(this.memory.ledger.counters());
    this.#startChunks = this.chunks();
    this.calls.length = 0;
  }

  /** Makes calls fail from now on, counted from now; without a plan everything works again. */
  fail(...plan: RequestFault[]): FaultyKernel {
    const faulty = withRequestFaults(this.#kernel, plan);
    this.#answering = faulty;
    return faulty;
  }

  #seam(): Kernel {
    const now = () => this.#answering;
    return {
      kind: this.#kernel.kind,
      open: (path, flags) => now().open(path, flags),
      close: (fd) => now().close(fd),
      ioctl: (fd, request, address) => now().ioctl(fd, request, address),
      mmap: (fd, length, protection, flags, offset) => now().mmap(fd, length, protection, flags, offset),
      readText: (path) => now().readText(path),
      list: (path) => now().list(path),
    };
  }

  /** Device chunks of this process, as the driver lists them. */
  chunks(): number {
    return this.device.geometry.hbms.reduce((sum, _, hbm) => sum + this.device.dumpChunks(hbm).length, 0);
  }

  /** Whether nothing is on the device that was not there at the start. */
  get clean(): boolean {
    return JSON.stringify(this.memory.ledger.counters()) === this.#start && this.chunks() === this.#startChunks;
  }

  /** Bytes in use on all HBMs. */
  get used(): number {
    return this.memory.ledger.counters().hbm.reduce((sum, bytes) => sum + bytes, 0);
  }

  /** Names of the requests since the last look. */
  requests(): string[] {
    return this.calls.splice(0).filter(({ call }) => call === "ioctl").map(({ name }) => name);
  }

  /** Bytes at a device address. */
  peek(address: number, length: number): Uint8Array {
    const chunk = this.device.findChunk(address);
    if (chunk === undefined) throw new Error(`nothing is allocated at 0x${address.toString(16)}`);
    using mapping = this.device.mapAddress(chunk.pa, chunk.size);
    return mapping.bytes(address - chunk.pa, length).slice();
  }

  /** The address at a device address. */
  peekAddress(address: number): bigint {
    return new DataView(this.peek(address, 8).buffer).getBigUint64(0, true);
  }

  /** Driver category of the chunk at a device address. */
  category(address: number): number | undefined {
    const chunk = this.device.findChunk(address);
    return this.device.geometry.hbms.flatMap((_, hbm) => [...this.device.dumpChunks(hbm)]).find(({ pa }) => pa === chunk?.pa)?.category;
  }

  close(): void {
    this.memory.close();
    this.device.close();
    this.fake.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** The product a model's target runs on. */
export function productOf(target: NeffTarget): Product {
  return target === "*" ? "trn2" : productOfTarget[target];
}

/** A layer that notes every allocation. */
export function noting(into: { usage: unknown; size: number; alignment: number | undefined; kind: string; hbm: number | undefined; hint: string | undefined }[]): AllocatorLayer {
  return {
    name: "noting",
    allocated: (_, request, allocator) => void into.push({ usage: request.usage, size: request.size, alignment: request.alignment, kind: allocator.kind, hbm: request.hbm, hint: request.hint }),
  };
}

/** Resident bytes of this process, for tests that watch memory. */
export function residentBytes(): number {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync("/proc/self/status", "utf8"))?.[1] ?? 0) * 1024;
}
