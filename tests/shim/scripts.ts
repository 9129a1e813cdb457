// Scripts for the clients: see clients/README.md.
import { MemAllocV2MT64, MemBufCopy64, MemCopy64, MemGetExtendedInfo, MemGetPa, Memset64 } from "../../lib/abi/mod.ts";
import { type Request, requests } from "../../lib/abi/mod.ts";
import { BASE } from "./interpreter.ts";

/** Offsets in the arena: arguments, a handle, an address, data. */
export const AT = { argument: 0, handle: 4096, pa: 4104, info: 8192, data: 65536 } as const;

type Values = Readonly<Record<string, number | bigint>>;
interface Layout {
  readonly byteLength: number;
  alloc(values?: never): { readonly $bytes: Uint8Array };
}

/** Lines that store a struct in the arena. */
export function struct(layout: unknown, values: Values, offset: number = AT.argument): string {
  const made = (layout as Layout).alloc();
  for (const [name, value] of Object.entries(values)) (made as unknown as Record<string, number | bigint>)[name] = value;
  return `w ${offset} ${Buffer.from(made.$bytes).toString("hex")}`;
}

/** A line that issues a request on descriptor `fd`. */
export function request(name: string, fd = 0, offset: number = AT.argument): string {
  const { request: number, argumentBytes } = (requests as unknown as Readonly<Record<string, Request>>)[name]!;
  return `i ${fd} ${number} ${offset} ${Math.max(argumentBytes, 8)}`;
}

/** Allocates `size` bytes and shows handle and address. */
export function allocation(size: number, values: Values = {}, fd = 0): readonly string[] {
  return [
    struct(MemAllocV2MT64, { size, memType: 9, memHandle: BASE + AT.handle, ...values }),
    request("MEM_ALLOC_V2MT64", fd),
    `r ${AT.handle} 8`,
  ];
}

/** Looks up the address of a handle and shows it. */
export function addressOf(handle: number, fd = 0): readonly string[] {
  return [struct(MemGetPa, { memHandle: handle, pa: BASE + AT.pa }), request("MEM_GET_PA", fd), `r ${AT.pa} 8`];
}

/** Copies between the data area and a chunk. */
export function bufferCopy(handle: number, size: number, offset: number, toDevice: boolean, fd = 0): readonly string[] {
  return [
    struct(MemBufCopy64, { memHandle: handle, buffer: BASE + AT.data, size, offset, copyToMemHandle: toDevice ? 1 : 0 }),
    request("MEM_BUF_COPY64", fd),
  ];
}

export { MemCopy64, MemGetExtendedInfo, Memset64 };
