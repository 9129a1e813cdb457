import { MapFlag, OpenFlag, Protection } from "../../ffi/native.ts";
import type { Value } from "./recording.ts";

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
