import { Buffer } from "node:buffer";
import { crc32 } from "node:zlib";
import { MapFlag, OpenFlag, Protection } from "../../ffi/native.ts";
import type { Scenario, Step, Value } from "./recording.ts";

/** The recordings' test pattern repeats after this many bytes. */
const PATTERN_PERIOD = 65536;

/** Fills bytes with `pattern(seed)` from its byte `from` on. */
export function fillPattern(into: Uint8Array, seed: number, from = 0): void {
  const first = Math.min(into.length, PATTERN_PERIOD);
  for (let index = 0; index < first; index++) into[index] = ((index + from) * 7 + ((index + from) >> 8) * 13 + seed) & 255;
  for (let done = PATTERN_PERIOD; done < into.length; done *= 2) into.copyWithin(done, 0, Math.min(done, into.length - done));
}

function allEqual(bytes: Uint8Array, value: number): boolean {
  for (let index = 0; index < bytes.length; index++) if (bytes[index] !== value) return false;
  return true;
}

/** CRC-32 with the usual polynomial, as eight hex digits. */
export function crcText(bytes: Uint8Array): string {
  return crc32(bytes).toString(16).padStart(8, "0");
}

/** Bytes as hex. */
export function hexText(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The bytes of a hex text. */
export function hexBytes(text: string): Uint8Array {
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
}

/** Whether bytes are what a recorded description says: a pattern, all one value, hex, or a checksum. */
export function matchesDescription(bytes: Uint8Array, description: string): boolean {
  const pattern = /^pattern\(seed=(\d+)\)\[(\d+)\.\.(\d+)\)$/.exec(description);
  if (pattern !== null) {
    const [seed, from, to] = pattern.slice(1).map(Number) as [number, number, number];
    const wanted = new Uint8Array(to - from);
    fillPattern(wanted, seed, from);
    return bytes.length === wanted.length && Buffer.compare(bytes, wanted) === 0;
  }
  const all = /^all 0x([0-9a-f]{2}), (\d+) bytes$/.exec(description);
  if (all !== null) return bytes.length === Number(all[2]) && allEqual(bytes, Number.parseInt(all[1]!, 16));
  if (description.startsWith("hex:")) return hexText(bytes) === description.slice(4);
  const sum = /^crc32:([0-9a-f]+) len:(\d+) first16:([0-9a-f]*)$/.exec(description);
  if (sum === null) return false;
  return bytes.length === Number(sum[2]) && hexText(bytes.subarray(0, 16)) === sum[3] && crcText(bytes) === sum[1]!.padStart(8, "0");
}

/** A short description of bytes, for the report of a difference. */
export function describe(bytes: Uint8Array): string {
  const first = bytes[0] ?? 0;
  if (bytes.length > 0 && allEqual(bytes, first)) return `all 0x${first.toString(16).padStart(2, "0")}, ${bytes.length} bytes`;
  if (bytes.length <= 64) return `hex:${hexText(bytes)}`;
  return `crc32:${crcText(bytes)} len:${bytes.length} first16:${hexText(bytes.subarray(0, 16))}`;
}

const OPEN: Readonly<Record<string, number>> = { O_RDONLY: OpenFlag.RDONLY, O_WRONLY: OpenFlag.WRONLY, O_RDWR: OpenFlag.RDWR, O_NONBLOCK: 0o4000, O_CLOEXEC: OpenFlag.CLOEXEC };
const PROTECTIONS: Readonly<Record<string, number>> = { PROT_NONE: 0, PROT_READ: Protection.READ, PROT_WRITE: Protection.WRITE, PROT_EXEC: 4 };
const MAPPINGS: Readonly<Record<string, number>> = { MAP_SHARED: MapFlag.SHARED, MAP_PRIVATE: MapFlag.PRIVATE, MAP_FIXED: MapFlag.FIXED };

function bits(value: Value | undefined, names: Readonly<Record<string, number>>): number {
  if (typeof value === "number") return value;
  return String(value).split("|").reduce((sum, name) => sum | (names[name] ?? Number(name)), 0);
}

/** The bits behind `O_RDWR|O_CLOEXEC`, or a plain number; `O_RDWR` when nothing is said. */
export function openFlags(value: Value | undefined): number {
  return value === undefined ? OpenFlag.RDWR : bits(value, OPEN);
}

/** The bits behind `PROT_READ|PROT_WRITE`. */
export function protection(value: Value | undefined): number {
  return bits(value, PROTECTIONS);
}

/** The bits behind `MAP_SHARED`. */
export function mapFlags(value: Value | undefined): number {
  return bits(value, MAPPINGS);
}

/** A step that did not come out as recorded. */
export interface UnlikeStep {
  /** Its scenario. */
  readonly scenario: Scenario;
  /** The step. */
  readonly step: Step;
  /** What differed. */
  readonly difference: string;
  /** Whether the fake refused the step, or one before it in a danger scenario. */
  readonly refused: boolean;
  /** Whether a real process called the kernel. */
  readonly outOfProcess: boolean;
  /** Whether the step, or one before it, asked for what only root may do, and the process is not root. */
  readonly denied: boolean;
}

/** A difference that is right as it is, and why. */
export interface Justification {
  /** Its name in reports. */
  readonly name: string;
  /** Why the difference is right. */
  readonly reason: string;
  /** Whether it explains a difference. */
  readonly explains: (unlike: UnlikeStep) => boolean;
}

/** All differences from the recordings that are allowed: everything else counts as different. */
export const justifications: readonly Justification[] = [
  {
    name: "refused-danger",
    reason: "The request would stop or corrupt a real kernel, or the scenario shows what does; the fake refuses it loudly instead, and what follows depends on it.",
    explains: ({ scenario, difference, refused }) => difference.startsWith("refused: ") || (scenario.category === "danger" && refused),
  },
  {
    name: "not-root",
    reason: "The recorded process was root, this one is not: it may not map memory that no chunk explains nor write to sysfs, and what follows depends on it.",
    explains: ({ denied }) => denied,
  },
  {
    name: "memory-file",
    reason: "To the kernel, the node under the shim is a memory file: it seeks in it, and lets mappings of it grow, without asking anybody.",
    explains: ({ step, difference, outOfProcess }) => outOfProcess && (step.op === "lseek" || step.op === "mremap") && difference.startsWith("ret 0 "),
  },
];

/** Whether a step was denied what only root may do. */
export function isDenied(step: Step, difference: string): boolean {
  return (step.op === "mmap" && difference.startsWith("ret -1 EPERM, ")) || (step.op === "sysfs-write" && difference.startsWith("ret -1 EACCES, "));
}

/** The justification of a difference, or undefined. */
export function justify(unlike: UnlikeStep): Justification | undefined {
  return justifications.find((each) => each.explains(unlike));
}
