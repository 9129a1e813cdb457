import { cString, type Native, openLibc, UnsupportedRuntimeError } from "./native_calls.ts";

/** The part of koffi that this file uses. */
interface Koffi {
  load(name: string): { func(prototype: string): (...args: readonly unknown[]) => number | bigint };
  errno(): number;
  /** Memory at an address, not copied. */
  view(address: bigint, length: number): ArrayBuffer;
}

/** C declarations in koffi's words. Addresses are plain 64-bit numbers; `at` takes a view and gives its address back. */
const PROTOTYPES = {
  open: "int open(const void *path, int flags, uint32 mode)",
  close: "int close(int fd)",
  ioctl: "int ioctl(int fd, uint32 request, uint64 argument)",
  mmap: "int64 mmap(uint64 address, uint64 length, int protection, int flags, int fd, int64 offset)",
  munmap: "int munmap(uint64 address, uint64 length)",
  memfdCreate: "int memfd_create(const void *name, uint32 flags)",
  ftruncate: "int ftruncate(int fd, int64 length)",
  fallocate: "int fallocate(int fd, int mode, int64 offset, int64 length)",
  pread: "int64 pread(int fd, uint64 buffer, uint64 count, int64 offset)",
  pwrite: "int64 pwrite(int fd, uint64 buffer, uint64 count, int64 offset)",
  read: "int64 read(int fd, uint64 buffer, uint64 count)",
  write: "int64 write(int fd, uint64 buffer, uint64 count)",
  move: "uint64 memmove(uint64 destination, uint64 source, uint64 count)",
  set: "uint64 memset(uint64 address, int value, uint64 count)",
  syscall: "int64 syscall(int64 number, int64 a, int64 b, int64 c, int64 d, int64 e, int64 f)",
  at: "uint64 memmove(void *destination, uint64 source, uint64 count)",
} as const;

/**
 * Opens libc through koffi, which the user has installed: Node has no foreign function
 * interface of its own.
 *
 * @throws {UnsupportedRuntimeError} when koffi is not there
 */
export function nodeNative(): Native {
  const koffi = findKoffi();
  const libc = openLibc((name) => koffi.load(name));
  const c = Object.fromEntries(Object.entries(PROTOTYPES).map(([name, prototype]) => [name, libc.func(prototype)])) as Record<keyof typeof PROTOTYPES, (...args: readonly unknown[]) => number | bigint>;
  const result = (value: number | bigint): number => value < 0 ? -koffi.errno() : Number(value);
  const bufferAt = (at: number, length: number): ArrayBuffer => koffi.view(BigInt(at), length);

  return {
    runtime: "node",
    open: (path, flags, mode) => result(c.open(cString(path), flags, mode)),
    close: (fd) => result(c.close(fd)),
    ioctl: (fd, request, address) => result(c.ioctl(fd, request, address)),
    mmap: (length, protection, flags, fd, offset) => result(c.mmap(0, length, protection, flags, fd, offset)),
    munmap: (at, length) => result(c.munmap(at, length)),
    memfdCreate: (name, flags) => result(c.memfdCreate(cString(name), flags)),
    ftruncate: (fd, length) => result(c.ftruncate(fd, length)),
    fallocate: (fd, mode, offset, length) => result(c.fallocate(fd, mode, offset, length)),
    pread: (fd, at, length, offset) => result(c.pread(fd, at, length, offset)),
    pwrite: (fd, at, length, offset) => result(c.pwrite(fd, at, length, offset)),
    read: (fd, at, length) => result(c.read(fd, at, length)),
    write: (fd, at, length) => result(c.write(fd, at, length)),
    memmove: (destination, source, length) => void c.move(destination, source, length),
    memset: (at, value, length) => void c.set(at, value, length),
    syscall: (number, a = 0, b = 0, e = 0, d = 0, f = 0, g = 0) => result(c.syscall(number, a, b, e, d, f, g)),
    addressOf(view) {
      void view.buffer;
      return Number(c.at(view, 0, 0));
    },
    bufferAt,
    readU32: (at) => new DataView(bufferAt(at, 4)).getUint32(0, true),
  };
}

function findKoffi(): Koffi {
  try {
    return process.getBuiltinModule("node:module").createRequire(import.meta.url)("koffi") as Koffi;
  } catch (cause) {
    throw new UnsupportedRuntimeError("Cannot open a device: this runtime has no foreign function interface", {
      hint: "Run with Bun 1.4 or later (npm install -g bun) or with Deno 2, or add one to Node: npm install koffi.", cause,
    });
  }
}
