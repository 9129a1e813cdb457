import { linuxKernel, native, pinned, struct, u32, u64 } from "../ffi/mod.ts";
import type { Suite } from "./support/harness.ts";
import { slowMachine } from "./support/machine.ts";

const REQUEST = 0x80384e66;

const Argument = struct("argument", 56, { size: u64(0), align: u64(8), host: u32(16), channel: u32(20), core: u32(28), type: u32(32), handle: u64(40) });

/** The cost of our layers over a bare foreign call: the wrapper, the encoding, the errno check. */
export async function run(suite: Suite): Promise<void> {
  const system = native();
  const bare = bareIoctl();
  const memory = pinned(64);
  const argument = Argument.over(memory.view);
  await suite.row("getpid through syscall(2)", () => system.syscall(39), { label: "host" });
  const entry = await suite.row("bare ioctl, fails with EBADF", () => bare(-1, REQUEST, memory.address), { label: "host" });
  await suite.row("native.ioctl with errno", () => system.ioctl(-1, REQUEST, memory.address), { floor: "bare ioctl, fails with EBADF" });
  const kernel = linuxKernel();
  await suite.row("encode 5 fields + kernel.ioctl", () => {
    argument.size = 4096;
    argument.align = 0;
    argument.channel = 1;
    argument.core = 2;
    argument.type = 10;
    return kernel.ioctl(-1, REQUEST, memory.address);
  }, { floor: "bare ioctl, fails with EBADF", ...(system.runtime === "bun" ? { overFloor: 25, garbageAtMost: 0, limit: slowMachine(entry) } : {}) });
  await suite.row("read 3 fields of a struct view", () => argument.size + argument.channel + argument.handle, { within: 10, garbageAtMost: 0 });
}

/** `ioctl` alone, straight from the runtime's own FFI. */
function bareIoctl(): (fd: number, request: number, address: number) => unknown {
  const global = globalThis as unknown as {
    Deno?: { dlopen(name: string, symbols: object): { symbols: { ioctl(fd: number, request: number, address: bigint): number } } };
  };
  if (global.Deno !== undefined) {
    const { ioctl } = global.Deno.dlopen("libc.so.6", { ioctl: { parameters: ["i32", "u32", "u64"], result: "i32" } }).symbols;
    return (fd, request, address) => ioctl(fd, request, BigInt(address));
  }
  const { dlopen } = process.getBuiltinModule("bun:ffi" as "node:fs") as unknown as typeof import("bun:ffi");
  const { ioctl } = dlopen("libc.so.6", { ioctl: { args: ["i32", "u32", "ptr"], returns: "i32" } }).symbols;
  return ioctl as unknown as (fd: number, request: number, address: number) => unknown;
}
