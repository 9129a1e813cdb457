import type { Kernel } from "../../ffi/kernel.ts";
import { bytesAt } from "../../ffi/memory.ts";
import { type AnyRequest, type CallRecord, type NeuronDevice, openDevice, withRequestLog } from "../../lib/driver/mod.ts";
import { createFake, type FakeMachine, type FakeOptions } from "../../lib/fake/machine.ts";
import { requests } from "../../lib/abi/requests.ts";
import { argumentFields } from "../../lib/driver/arguments.ts";

/** A fake device opened through a request log. */
export interface Bench {
  readonly fake: FakeMachine;
  readonly kernel: Kernel;
  readonly device: NeuronDevice;
  /** Every system call since the device was opened. */
  readonly calls: CallRecord[];
  /** Told about each call besides; replace it to act in the middle of an operation. */
  onCall: (record: CallRecord) => void;
  /** Names of the requests since then. */
  names(): string[];
  [Symbol.dispose](): void;
}

/** Opens a fake device; `wrap` puts layers under the log. */
export function openBench(options: Partial<FakeOptions> = {}, wrap: (kernel: Kernel) => Kernel = (kernel) => kernel): Bench {
  const fake = createFake({ product: "trn2", ...options });
  const calls: CallRecord[] = [];
  let opened: Bench | undefined;
  const kernel = withRequestLog(wrap(fake.kernel()), (record) => {
    calls.push(record);
    opened?.onCall(record);
  });
  const device = openDevice({ kernel, hbmSize: options.hbmSize });
  calls.length = 0;
  const bench: Bench = {
    fake, kernel, device, calls,
    onCall: () => {},
    names: () => calls.filter(({ call }) => call === "ioctl").map(({ name }) => name),
    [Symbol.dispose]() {
      device.close();
      fake.close();
    },
  };
  opened = bench;
  return bench;
}

/** A plain device chunk of the fake. */
export function chunk(size: number, more: Partial<Parameters<NeuronDevice["alloc"]>[0]> = {}) {
  return { size, alignment: 0, host: false, hbm: 0, core: 0, category: 9, ...more };
}

/** A kernel that answers every request from a function, for what no fake can show (petabyte offsets, odd answers). */
export function scriptedKernel(answer: (name: string, fields: Record<string, unknown>, write: (field: string, value: number) => void) => number, version = "2.24.7.0"): Kernel {
  const byNumber = new Map(Object.values<AnyRequest>(requests).map((request) => [request.request, request]));
  const base: Kernel = {
    kind: "fake",
    open: () => 3,
    close: () => 0,
    ioctl: () => -22,
    mmap: () => -1,
    readText: (path) => path === "/sys/module/neuron/version" ? `${version}\n` : -2,
    list: () => -2,
  };
  return {
    ...base,
    ioctl(_fd, number, address) {
      const request = byNumber.get(number);
      if (request === undefined) return -22;
      const struct = request.argument;
      if (struct === null) return answer(request.name, {}, () => {});
      const view = structAt(address, struct.byteLength);
      const fields = struct.over(view) as unknown as Record<string, unknown>;
      return answer(request.name, argumentFields(request, view, 0), (field, value) => {
        fields[field] = value;
      });
    },
  };
}

/** A view over `length` bytes at an address of this process. */
export function structAt(address: number, length: number): DataView {
  const bytes = bytesAt(address, length);
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Writes a u64 where a request's pointer field points. */
export function writeCell(address: unknown, value: number): void {
  structAt(address as number, 8).setBigUint64(0, BigInt(value), true);
}
