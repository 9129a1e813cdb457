import { bunNative } from "./bun.ts";
import { denoNative } from "./deno.ts";
import { nodeNative } from "./node.ts";
import { type Native, UnsupportedRuntimeError } from "./native_calls.ts";

export { type Native, UnsupportedRuntimeError } from "./native_calls.ts";

let opened: Native | undefined;

const create: () => Native = "Bun" in globalThis ? bunNative : "Deno" in globalThis ? denoNative : nodeNative;

/**
 * The native interface of this runtime; libc is opened at the first call.
 *
 * @throws {UnsupportedRuntimeError} outside Linux (`ioctl` is variadic, and other
 * systems pass variadic arguments differently), and on runtimes without FFI
 */
export function native(): Native {
  if (opened !== undefined) return opened;
  if (process.platform !== "linux") {
    throw new UnsupportedRuntimeError(`Cannot open a device: the Neuron driver exists only on Linux, this is ${process.platform}`, {
      hint: "Reading, planning and fitting NEFF files works everywhere; devices, real or fake, need Linux.",
      details: { platform: process.platform },
    });
  }
  return opened = create();
}

/** Flags of `open(2)`, asm-generic values (the same on x86-64 and aarch64). */
export const OpenFlag = { RDONLY: 0, WRONLY: 1, RDWR: 2, CREAT: 0o100, CLOEXEC: 0o2000000 } as const;

/** Protection bits of `mmap(2)`. */
export const Protection = { NONE: 0, READ: 1, WRITE: 2 } as const;

/** Flags of `mmap(2)`. */
export const MapFlag = { SHARED: 1, PRIVATE: 2, FIXED: 0x10, ANONYMOUS: 0x20, NORESERVE: 0x4000, POPULATE: 0x8000 } as const;

/** Flags of `memfd_create(2)`. */
export const MemfdFlag = { CLOEXEC: 1, ALLOW_SEALING: 2 } as const;

/** Modes of `fallocate(2)`. */
export const FallocateMode = { KEEP_SIZE: 1, PUNCH_HOLE: 2 } as const;
