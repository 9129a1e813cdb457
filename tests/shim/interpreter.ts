// Carries out a script of clients/README.md on any kernel.
import { Mapping } from "../../ffi/mod.ts";

/** Address of the arena in every client. */
export const BASE = 0x200000000000;
/** Bytes of the arena. */
export const ARENA = 2 ** 20;

/** What an interpreter works on. */
export interface Machinery {
  readonly arena: Uint8Array;
  open(path: string, flags: number): number;
  close(fd: number): number;
  dup(fd: number): number;
  ioctl(fd: number, request: number, address: number): number;
  mmap(fd: number, length: number, protection: number, flags: number, offset: number): Mapping | number;
  /** Process id. */
  readonly pid: number;
  /** What `stat` says, as the clients print it. */
  stat(path: string): string | number;
}

/** Makes a function that carries out one line and returns what is printed, or undefined. */
export function interpreter(machinery: Machinery): (line: string) => string | number | undefined {
  const { arena } = machinery;
  const fds = new Map<number, number>();
  const maps = new Map<number, Mapping>();
  const name = (key: number, fd: number) => {
    fds.set(key, fd);
    return Math.min(fd, 0);
  };
  return (line) => {
    const [op, ...words] = line.split(" ");
    const [a = 0, b = 0, c = 0, d = 0, e = 0] = words.map(Number);
    const fd = fds.get(a) ?? -1;
    switch (op) {
      case "o": return name(a, machinery.open(words[1]!, c));
      case "c": return machinery.close(fd);
      case "d": return name(b, machinery.dup(fd));
      case "w": return void arena.set(Buffer.from(words[1]!, "hex"), a);
      case "p": return void arena.set(pattern(b, c), a);
      case "i": return machinery.ioctl(fd, b, BASE + c);
      case "a": return machinery.ioctl(fd, b, c);
      case "r": return Buffer.from(arena.slice(a, a + b)).toString("hex");
      case "h": return fnv(arena.subarray(a, a + b));
      case "m": {
        const mapping = machinery.mmap(fds.get(b) ?? -1, c, d, 1, e);
        if (typeof mapping === "number") return mapping;
        maps.set(a, mapping);
        return 0;
      }
      case "l": return Buffer.from(maps.get(a)!.bytes(b, c)).toString("hex");
      case "s": return void maps.get(a)!.bytes().set(Buffer.from(words[2]!, "hex"), b);
      case "u": maps.get(a)!.close(); return 0;
      case "g": return machinery.pid;
      case "t": return machinery.stat(words[0]!);
      default: return undefined;
    }
  };
}

/** The bytes of operation `p`. */
export function pattern(length: number, seed: number): Uint8Array {
  return Uint8Array.from({ length }, (_, i) => (i * 7 + (i >> 8) * 13 + seed) & 255);
}

/** 32-bit FNV-1a. */
export function fnv(bytes: Uint8Array): number {
  let hash = 2166136261;
  for (let i = 0; i < bytes.length; i++) hash = Math.imul(hash ^ bytes[i]!, 16777619);
  return hash >>> 0;
}
