// A program that issues raw requests to a fake device, as a C program would.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { type Pinned, pinned } from "../../ffi/memory.ts";
import { MemCategory } from "../../lib/abi/driver_enums.ts";
import type { Request } from "../../lib/abi/request.ts";
import { requests } from "../../lib/abi/requests.ts";
import { createFake, type FakeMachine, type FakeOptions } from "../../lib/fake/machine.ts";
import type { FakeProcess } from "../../lib/fake/process.ts";

/** `O_RDWR`. */
export const READ_WRITE = 2;
/** `O_WRONLY`. */
export const WRITE_ONLY = 1;

const RESULT_AT = 16 * 1024;
const DATA_AT = 32 * 1024;
/** Most bytes `write` and `read` of a client move. */
export const DATA_BYTES = 4 * 2 ** 20;

/** What an allocation asks for; the rest is a plain device chunk of HBM 0 for core 0. */
export interface Wanted {
  readonly align?: number;
  readonly host?: boolean;
  readonly hbm?: number;
  readonly core?: number;
  readonly category?: number;
}

type Values = Readonly<Record<string, number | bigint | string>>;

/** A process with one descriptor, and memory for arguments, results and data. */
export class Client {
  readonly process: FakeProcess;
  fd: number;
  readonly memory: Pinned = pinned(DATA_AT + DATA_BYTES);
  /** Where results are stored. */
  readonly resultAt: number = this.memory.address + RESULT_AT;
  /** Where data is taken from and stored. */
  readonly dataAt: number = this.memory.address + DATA_AT;
  readonly data: Uint8Array = this.memory.bytes.subarray(DATA_AT);

  constructor(process: FakeProcess, fd: number = process.open("/dev/neuron0", READ_WRITE)) {
    this.process = process;
    this.fd = fd;
  }

  /** Issues a request with the given fields; the others are 0. Results go to `resultAt` only where a field says so. */
  send(name: keyof typeof requests, fields: Values = {}, fd: number = this.fd): number {
    const { request, argument } = requests[name] as Request;
    if (argument !== null) {
      this.memory.bytes.fill(0, 0, argument.byteLength);
      for (const [field, value] of Object.entries(fields)) setField(this.memory.view, argument.fields, field, value);
    }
    return this.process.ioctl(fd, request, this.memory.address);
  }

  /** A field of the argument after the request. */
  field(name: keyof typeof requests, field: string): number {
    const struct = (requests[name] as Request).argument!;
    return (struct.over(this.memory.view) as unknown as Record<string, number>)[field]!;
  }

  /** The u64 at `resultAt`. */
  get result(): number {
    return Number(this.memory.view.getBigUint64(RESULT_AT, true));
  }

  /** Allocates: a handle, or −errno. */
  alloc(size: number, { align = 0, host = false, hbm = 0, core = 0, category = host ? MemCategory.TENSORS_HOST : MemCategory.TENSORS_DEVICE }: Wanted = {}): number {
    const result = this.send("MEM_ALLOC_V2MT64", {
      size, align, hostMemory: Number(host), dramChannel: hbm, ncId: core, memType: category, memHandle: this.resultAt,
    });
    return result === 0 ? this.result : result;
  }

  /** The device address of a handle, or −errno. */
  pa(memHandle: number): number {
    const result = this.send("MEM_GET_PA", { memHandle, pa: this.resultAt });
    return result === 0 ? this.result : result;
  }

  free(memHandle: number): number {
    return this.send("MEM_FREE", { memHandle });
  }

  write(memHandle: number, offset: number, bytes: Uint8Array): number {
    this.data.set(bytes);
    return this.send("MEM_BUF_COPY64", { memHandle, buffer: this.dataAt, size: bytes.length, offset, copyToMemHandle: 1 });
  }

  /** Bytes of a chunk, or −errno. */
  read(memHandle: number, offset: number, size: number): Uint8Array | number {
    const result = this.send("MEM_BUF_COPY64", { memHandle, buffer: this.dataAt, size, offset, copyToMemHandle: 0 });
    return result === 0 ? this.data.slice(0, size) : result;
  }
}

function setField(view: DataView, fields: Readonly<Record<string, { readonly kind: string; readonly offset: number }>>, name: string, value: number | bigint | string): void {
  const field = fields[name];
  assert.ok(field !== undefined, `no field ${name}`);
  const number = BigInt(value);
  if (field.kind === "u8" || field.kind === "i8") view.setUint8(field.offset, Number(BigInt.asUintN(8, number)));
  else if (field.kind === "u16") view.setUint16(field.offset, Number(BigInt.asUintN(16, number)), true);
  else if (field.kind === "u32" || field.kind === "i32") view.setUint32(field.offset, Number(BigInt.asUintN(32, number)), true);
  else view.setBigUint64(field.offset, BigInt.asUintN(64, number), true);
}

/** A machine and a client of its first process. */
export function openClient(options: Partial<FakeOptions> = {}): { readonly machine: FakeMachine; readonly client: Client; [Symbol.dispose](): void } {
  const machine = createFake({ product: "trn2", ...options });
  const client = new Client(machine.process());
  return { machine, client, [Symbol.dispose]: () => machine.close() };
}

/** Bytes that differ from place to place. */
export function pattern(size: number, seed = 1): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(size);
  for (let i = 0; i < size; i++) bytes[i] = (i * 7 + (i >> 8) * 13 + seed) & 255;
  return bytes;
}

/** The lines of `/proc/self/maps` that belong to a fake device. */
export function fakeMappings(): string[] {
  return readFileSync("/proc/self/maps", "utf8").split("\n").filter((line) => line.includes("neuron-dmem-fake"));
}

/** Number of open descriptors of this process. */
export function descriptorCount(): number {
  return readdirSync("/proc/self/fd").length;
}
