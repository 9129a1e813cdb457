import type { FFIType, Pointer } from "bun:ffi";
import { cString, type Native, openLibc } from "./native_calls.ts";

/** A 64-bit result as a number where it fits one. Its type is known by number only. */
const I64_FAST = "i64_fast" as unknown as FFIType.i64_fast;

/** C declarations of the functions used, in Bun's types. `u32` for ioctl's request: writing a 32-bit register clears the upper half. */
const SYMBOLS = {
  // int open(const char *path, int flags, mode_t mode)
  open: { args: ["ptr", "i32", "u32"], returns: "i32" },
  // int close(int fd)
  close: { args: ["i32"], returns: "i32" },
  // int ioctl(int fd, unsigned long request, void *arg)
  ioctl: { args: ["i32", "u32", "ptr"], returns: "i32" },
  // void *mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
  mmap: { args: ["ptr", "u64", "i32", "i32", "i32", "i64"], returns: "ptr" },
  // int munmap(void *addr, size_t length)
  munmap: { args: ["ptr", "u64"], returns: "i32" },
  // int memfd_create(const char *name, unsigned flags)
  memfd_create: { args: ["ptr", "u32"], returns: "i32" },
  // int ftruncate(int fd, off_t length)
  ftruncate: { args: ["i32", "i64"], returns: "i32" },
  // int fallocate(int fd, int mode, off_t offset, off_t len)
  fallocate: { args: ["i32", "i32", "i64", "i64"], returns: "i32" },
  // ssize_t pread(int fd, void *buf, size_t count, off_t offset)
  pread: { args: ["i32", "ptr", "u64", "i64"], returns: I64_FAST },
  // ssize_t pwrite(int fd, const void *buf, size_t count, off_t offset)
  pwrite: { args: ["i32", "ptr", "u64", "i64"], returns: I64_FAST },
  // ssize_t read(int fd, void *buf, size_t count)
  read: { args: ["i32", "ptr", "u64"], returns: I64_FAST },
  // ssize_t write(int fd, const void *buf, size_t count)
  write: { args: ["i32", "ptr", "u64"], returns: I64_FAST },
  // void *memmove(void *dest, const void *src, size_t n); what it returns is known
  memmove: { args: ["ptr", "ptr", "u64"], returns: "void" },
  // void *memset(void *s, int c, size_t n)
  memset: { args: ["ptr", "i32", "u64"], returns: "void" },
  // long syscall(long number, ...)
  syscall: { args: ["i64", "i64", "i64", "i64", "i64", "i64", "i64"], returns: I64_FAST },
  // int *__errno_location(void)
  __errno_location: { args: [], returns: "ptr" },
} as const;


type BunFfi = typeof import("bun:ffi");

/** Opens libc through `bun:ffi`. @throws {NeuronError} when no C library can be opened */
export function bunNative(): Native {
  // Not imported: the module has to load on other runtimes too.
  const ffi = process.getBuiltinModule("bun:ffi") as unknown as BunFfi;
  const { ptr, read, toArrayBuffer } = ffi;
  const { symbols } = openLibc((name) => ffi.dlopen(name, SYMBOLS));
  const { open, close, ioctl, mmap, munmap, memfd_create, ftruncate, fallocate, pread, pwrite, memmove, memset, syscall } = symbols;
  const readFd = symbols.read;
  const writeFd = symbols.write;
  // The errno slot belongs to the thread; each Worker has its own copy of this module.
  const errnoAt = symbols.__errno_location() as Pointer;
  // A view is read in a nanosecond, `read.i32` in ten.
  const errno = new Int32Array(toArrayBuffer(errnoAt, 0, 4) as ArrayBuffer);
  const failed = (): number => -errno[0]!;
  const address = (value: number): Pointer => value as Pointer;
  const result = (value: number | bigint): number => Number(value) < 0 ? failed() : Number(value);

  return {
    runtime: "bun",
    open: (path, flags, mode) => result(open(cString(path), flags, mode)),
    close: (fd) => result(close(fd)),
    ioctl(fd, request, argument) {
      const value = ioctl(fd, request, argument as Pointer);
      return value === -1 ? -errno[0]! : value;
    },
    mmap(length, protection, flags, fd, offset) {
      const value = mmap(null, length, protection, flags, fd, offset) as unknown as number | bigint | null;
      // MAP_FAILED does not fit a number and arrives as the bigint 2^64 − 1.
      if (typeof value === "bigint" || value === -1) return failed();
      return value ?? 0;
    },
    munmap: (at, length) => result(munmap(address(at), length)),
    memfdCreate: (name, flags) => result(memfd_create(cString(name), flags)),
    ftruncate: (fd, length) => result(ftruncate(fd, length)),
    fallocate: (fd, mode, offset, length) => result(fallocate(fd, mode, offset, length)),
    pread: (fd, at, length, offset) => result(pread(fd, address(at), length, offset)),
    pwrite: (fd, at, length, offset) => result(pwrite(fd, address(at), length, offset)),
    read: (fd, at, length) => result(readFd(fd, address(at), length)),
    write: (fd, at, length) => result(writeFd(fd, address(at), length)),
    memmove: (destination, source, length) => memmove(address(destination), address(source), length),
    memset: (at, value, length) => memset(address(at), value, length),
    syscall: (number, a = 0, b = 0, c = 0, d = 0, e = 0, f = 0) => result(syscall(number, a, b, c, d, e, f)),
    addressOf(view) {
      void view.buffer;
      return Number(ptr(view as Uint8Array));
    },
    bufferAt: (at, length) => toArrayBuffer(address(at), 0, length) as ArrayBuffer,
    readU32: (at) => read.u32(address(at), 0),
  };
}
