import { cString, type Native, openLibc } from "./native_calls.ts";

/** C declarations of the functions used, in Deno's types; addresses travel as u64 (always a bigint there). */
const SYMBOLS = {
  open: { parameters: ["buffer", "i32", "u32"], result: "i32" },
  close: { parameters: ["i32"], result: "i32" },
  ioctl: { parameters: ["i32", "u32", "u64"], result: "i32" },
  mmap: { parameters: ["u64", "u64", "i32", "i32", "i32", "i64"], result: "i64" },
  munmap: { parameters: ["u64", "u64"], result: "i32" },
  memfd_create: { parameters: ["buffer", "u32"], result: "i32" },
  ftruncate: { parameters: ["i32", "i64"], result: "i32" },
  fallocate: { parameters: ["i32", "i32", "i64", "i64"], result: "i32" },
  pread: { parameters: ["i32", "u64", "u64", "i64"], result: "i64" },
  pwrite: { parameters: ["i32", "u64", "u64", "i64"], result: "i64" },
  read: { parameters: ["i32", "u64", "u64"], result: "i64" },
  write: { parameters: ["i32", "u64", "u64"], result: "i64" },
  memmove: { parameters: ["u64", "u64", "u64"], result: "void" },
  memset: { parameters: ["u64", "i32", "u64"], result: "void" },
  syscall: { parameters: ["i64", "i64", "i64", "i64", "i64", "i64", "i64"], result: "i64" },
  __errno_location: { parameters: [], result: "pointer" },
} as const;

/** The part of Deno's interface this file uses; the package is type-checked without Deno's own declarations. */
interface DenoFfi {
  dlopen(name: string, symbols: typeof SYMBOLS): { symbols: Record<keyof typeof SYMBOLS, (...args: readonly unknown[]) => unknown> };
  UnsafePointer: { of(view: ArrayBufferView): unknown; create(value: bigint): unknown; value(pointer: unknown): bigint };
  UnsafePointerView: {
    new (pointer: unknown): { getInt32(offset?: number): number; getUint32(offset?: number): number };
    getArrayBuffer(pointer: unknown, length: number): ArrayBuffer;
  };
}

/** Opens libc through `Deno.dlopen`. @throws {NeuronError} when no C library can be opened */
export function denoNative(): Native {
  const deno = (globalThis as unknown as { Deno: DenoFfi }).Deno;
  const { symbols } = openLibc((name) => deno.dlopen(name, SYMBOLS));
  const { open, close, ioctl, mmap, munmap, memfd_create, ftruncate, fallocate, pread, pwrite, memmove, memset, syscall } = symbols;
  const readFd = symbols.read;
  const writeFd = symbols.write;
  // The errno slot belongs to the thread; each Worker has its own copy of this module.
  const errno = new deno.UnsafePointerView(symbols.__errno_location());
  const result = (value: unknown): number => {
    const number = Number(value);
    return number < 0 ? -errno.getInt32() : number;
  };
  const pointer = (address: number): unknown => deno.UnsafePointer.create(BigInt(address));

  return {
    runtime: "deno",
    open: (path, flags, mode) => result(open(cString(path), flags, mode)),
    close: (fd) => result(close(fd)),
    ioctl(fd, request, address) {
      const value = ioctl(fd, request, BigInt(address)) as number;
      return value === -1 ? -errno.getInt32() : value;
    },
    mmap: (length, protection, flags, fd, offset) =>
      result(mmap(0n, BigInt(length), protection, flags, fd, BigInt(offset))),
    munmap: (at, length) => result(munmap(BigInt(at), BigInt(length))),
    memfdCreate: (name, flags) => result(memfd_create(cString(name), flags)),
    ftruncate: (fd, length) => result(ftruncate(fd, BigInt(length))),
    fallocate: (fd, mode, offset, length) => result(fallocate(fd, mode, BigInt(offset), BigInt(length))),
    pread: (fd, at, length, offset) => result(pread(fd, BigInt(at), BigInt(length), BigInt(offset))),
    pwrite: (fd, at, length, offset) => result(pwrite(fd, BigInt(at), BigInt(length), BigInt(offset))),
    read: (fd, at, length) => result(readFd(fd, BigInt(at), BigInt(length))),
    write: (fd, at, length) => result(writeFd(fd, BigInt(at), BigInt(length))),
    memmove: (destination, source, length) => void memmove(BigInt(destination), BigInt(source), BigInt(length)),
    memset: (at, value, length) => void memset(BigInt(at), value, BigInt(length)),
    syscall: (number, a = 0, b = 0, c = 0, d = 0, e = 0, f = 0) =>
      result(syscall(BigInt(number), BigInt(a), BigInt(b), BigInt(c), BigInt(d), BigInt(e), BigInt(f))),
    addressOf(view) {
      void view.buffer;
      return Number(deno.UnsafePointer.value(deno.UnsafePointer.of(view)));
    },
    bufferAt: (at, length) => deno.UnsafePointerView.getArrayBuffer(pointer(at), length),
    readU32: (at) => new deno.UnsafePointerView(pointer(at)).getUint32(),
  };
}
