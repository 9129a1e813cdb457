import assert from "node:assert/strict";
import type { Kernel } from "../../ffi/kernel.ts";
import { pinned } from "../../ffi/memory.ts";
import { DmemAllocatorRecord, DmemRecord } from "../../lib/abi/runtime_dmem.ts";
import { type Allocator, type DeviceMemory, type DeviceMemoryOptions, type Dmem, type LogLine, type MemoryEvent, openDeviceMemory, type TraceEvent } from "../../lib/dmem/mod.ts";
import { resetAlignmentSupport } from "../../lib/dmem/allocation.ts";
import type { FakeMachine, FakeOptions } from "../../lib/fake/machine.ts";
import { type CallRecord, type NeuronDevice, withRequestFaults, type RequestFault } from "../../lib/driver/mod.ts";
import { openBench, structAt } from "../driver/harness.ts";

/** Everything that was emitted, in one order. */
export type Emitted =
  | { readonly kind: "trace"; readonly event: TraceEvent }
  | { readonly kind: "memory"; readonly event: MemoryEvent }
  | { readonly kind: "log"; readonly line: LogLine }
  | { readonly kind: "call"; readonly call: CallRecord };

/** Device memory of a fake, with everything it does recorded. */
export interface MemoryBench {
  readonly fake: FakeMachine;
  readonly device: NeuronDevice;
  readonly memory: DeviceMemory;
  /** System calls since the memory was opened (or since the array was emptied). */
  readonly calls: CallRecord[];
  /** Events, log lines and calls in one order. */
  readonly emitted: Emitted[];
  /** Told about each call besides. */
  onCall: (call: CallRecord) => void;
  /** Request names. */
  names(): string[];
  /** Log messages. */
  messages(): string[];
  /** Forgets everything recorded. */
  forget(): void;
  [Symbol.dispose](): void;
}

/** What to open. */
export interface MemoryBenchOptions {
  readonly fake?: Partial<FakeOptions>;
  readonly memory?: DeviceMemoryOptions;
  /** Faults under the request log, armed after everything is open. */
  readonly faults?: readonly RequestFault[];
  readonly traceLines?: boolean;
  /** A layer under everything, from the start. */
  readonly wrap?: (kernel: Kernel) => Kernel;
}

/** Opens device memory on a fake. The process-wide alignment latch is set anew. */
export function openMemoryBench(options: MemoryBenchOptions = {}): MemoryBench {
  resetAlignmentSupport();
  const emitted: Emitted[] = [];
  let kernel: Kernel | undefined;
  const bench = openBench(options.fake, (process) => {
    const below = options.wrap?.(process) ?? process;
    return {
      kind: below.kind, open: (path, flags) => below.open(path, flags), close: (fd) => below.close(fd),
      ioctl: (fd, request, address) => (kernel ?? below).ioctl(fd, request, address),
      mmap: (fd, length, protection, flags, offset) => (kernel ?? below).mmap(fd, length, protection, flags, offset),
      readText: (path) => below.readText(path), list: (path) => below.list(path),
    };
  });
  const calls = bench.calls;
  let onCall: (call: CallRecord) => void = () => {};
  bench.onCall = (call) => {
    emitted.push({ kind: "call", call });
    onCall(call);
  };
  const memory = openDeviceMemory(bench.device, {
    ...options.memory,
    observer: {
      trace: (event) => void emitted.push({ kind: "trace", event }),
      memory: (event) => void emitted.push({ kind: "memory", event }),
      log: (line) => void emitted.push({ kind: "log", line }),
      traceLines: options.traceLines ?? false,
    },
  });
  if (options.faults !== undefined) kernel = withRequestFaults(fakeKernel(bench.fake, bench.device), options.faults);
  calls.length = 0;
  emitted.length = 0;
  return {
    fake: bench.fake, device: bench.device, memory, calls, emitted,
    set onCall(listener: (call: CallRecord) => void) {
      onCall = listener;
    },
    names: () => calls.filter(({ call }) => call === "ioctl").map(({ name }) => name),
    messages: () => emitted.flatMap((one) => one.kind === "log" ? [one.line.message] : []),
    forget() {
      calls.length = 0;
      emitted.length = 0;
    },
    [Symbol.dispose]() {
      memory.close();
      bench[Symbol.dispose]();
    },
  };
}

/** The kernel the device was opened on: the fake's process that holds it. */
function fakeKernel(fake: FakeMachine, _device: NeuronDevice): Kernel {
  return fake.processes.at(-1)!;
}

const patterns = new Map<number, Uint8Array<ArrayBuffer>>();

/** Deterministic bytes: byte i is `i * 7 + (i >> 8) * 13 + seed`. The caller's own copy. */
export function pattern(size: number, seed = 1): Uint8Array<ArrayBuffer> {
  const key = seed & 255;
  let known = patterns.get(key);
  if (known === undefined || known.length < size) {
    known = new Uint8Array(Math.max(size, 65_536));
    for (let i = 0; i < known.length; i++) known[i] = (i * 7 + (i >> 8) * 13 + key) & 255;
    patterns.set(key, known);
  }
  return known.slice(0, size);
}

/** Asserts that two byte sequences are equal, quickly, and names the first byte that differs. */
export function same(actual: ArrayBuffer | Uint8Array, expected: Uint8Array, message = "bytes"): void {
  const bytes = actual instanceof Uint8Array ? actual : new Uint8Array(actual);
  if (bytes.length === expected.length && Buffer.compare(bytes, expected) === 0) return;
  const at = expected.findIndex((byte, index) => byte !== bytes[index]);
  assert.fail(`${message}: ${bytes.length} bytes for ${expected.length}, first difference at ${at}: ${bytes[at]} for ${expected[at]}`);
}

/** Whether all bytes have one value. */
export function all(bytes: Uint8Array, value: number): boolean {
  return Buffer.compare(bytes, Buffer.alloc(bytes.length, value)) === 0;
}

/** The record of an allocation. */
export function recordOf(memory: Dmem) {
  return DmemRecord.over(structAt(memory.record, DmemRecord.byteLength));
}

/** Addresses of an allocator's nodes, head to tail, through memory. */
export function forward(allocator: Allocator): number[] {
  const { dummyHead, dummyTail } = DmemAllocatorRecord.offsets;
  const nodes: number[] = [];
  for (let at = next(allocator.record + dummyHead); at !== allocator.record + dummyTail; at = next(at)) nodes.push(at);
  return nodes;
}

/** The same, tail to head. */
export function backward(allocator: Allocator): number[] {
  const { dummyHead, dummyTail } = DmemAllocatorRecord.offsets;
  const nodes: number[] = [];
  for (let at = previous(allocator.record + dummyTail); at !== allocator.record + dummyHead; at = previous(at)) nodes.push(at);
  return nodes;
}

function next(node: number): number {
  return DmemRecord.over(structAt(node, 192)).next;
}

function previous(node: number): number {
  return DmemRecord.over(structAt(node, 192)).prev;
}

/** A memory source that refuses after `limit` requests. */
export function limitedSource(limit: number) {
  let used = 0;
  return (byteLength: number) => {
    if (used++ >= limit) throw new RangeError("Out of memory");
    return pinned(byteLength);
  };
}
