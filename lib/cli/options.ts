/** Options that several commands share, and how their values are read. */
import { type Command, InvalidArgumentError, Option } from "commander";
import { NeuronError } from "../../ffi/error.ts";
import { parseBytes } from "../text/bytes.ts";

/** The products a fake device can be. */
export const PRODUCTS = ["trn1", "inf2", "trn2", "trn3"] as const;

/** What a model can be compiled for: the code names of the architectures, and the products that have them. */
export const TARGET_NAMES = ["sunda", "cayman", "mariana", ...PRODUCTS] as const;

/** `--json`, the same for every command that prints something. */
export function jsonOption(): Option {
  return new Option("--json", "print JSON instead of tables");
}

/** `--expect`, for commands that notice when a device is missing. */
export function expectOption(): Option {
  return new Option("--expect <N|list>", "devices that must be there: how many, or which").argParser(deviceCount);
}

/** Adds `--fake` and `--device`. */
export function deviceOptions(command: Command): Command {
  return command
    .addOption(new Option("--fake <product>", "use a fake device").choices(PRODUCTS).conflicts("device"))
    .addOption(new Option("--device <N>", "use the real device /dev/neuronN").argParser(integer));
}

/** Adds where to look for devices: a fake machine, or files that stand for the system's. */
export function machineOptions(command: Command): Command {
  return command
    .addOption(new Option("--fake <product>", "look at a fake machine").choices(PRODUCTS))
    .addOption(new Option("--devices <N|list>", "devices of the fake machine: how many, or which (3,5)").argParser(deviceCount))
    .addOption(new Option("--sysfs <root>", "directory that stands for /sys"));
}

/** Parses a non-negative integer option, decimal or `0x…`. */
export function integer(text: string): number {
  const value = /^(0x[0-9a-f]+|\d+)$/i.test(text) ? Number(text) : NaN;
  if (!Number.isSafeInteger(value)) throw new InvalidArgumentError(`"${text}" is not a non-negative integer.`);
  return value;
}

/** Parses how many devices a fake machine has, or which: `16`, `3,5`. */
export function deviceCount(text: string): number | readonly number[] {
  const numbers = text.split(",").map((part) => integer(part.trim()));
  if (!text.includes(",")) return numbers[0]!;
  if (new Set(numbers).size < numbers.length) throw new InvalidArgumentError(`"${text}" names a device twice.`);
  return numbers;
}

/** Parses a time such as `20ms`, `1.5s` or `200us` into milliseconds. */
export function milliseconds(text: string): number {
  const match = /^(\d+(?:\.\d+)?)(us|µs|ms|s)$/.exec(text);
  if (match === null) throw new InvalidArgumentError(`"${text}" is not a time such as 20ms or 1.5s.`);
  return Number(match[1]) * ({ us: 1e-3, µs: 1e-3, ms: 1, s: 1e3 })[match[2] as "ms"];
}

/** Parses seconds between samples. */
export function seconds(text: string): number {
  const value = /^\d+(\.\d+)?$/.test(text) ? Number(text) : NaN;
  if (!(value >= LEAST_SECONDS && value <= MOST_SECONDS)) throw new InvalidArgumentError(`"${text}" is not a number of seconds from ${LEAST_SECONDS} to ${MOST_SECONDS}.`);
  return value;
}

const LEAST_SECONDS = 0.1;
const MOST_SECONDS = 3600;

/** Collects an option that may be given several times. */
export function several(text: string, before: readonly string[] = []): readonly string[] {
  return [...before, text];
}

/** Parses a 64-bit mask, decimal or `0x…`. */
export function mask(text: string): bigint {
  const value = /^(0x[0-9a-f]+|\d+)$/i.test(text) ? BigInt(text) : -1n;
  if (value < 0n || value >= 1n << 64n) throw new InvalidArgumentError(`"${text}" is not a 64-bit mask such as 0x80000000000000ff.`);
  return value;
}

/** Parses a byte count such as `64KiB`, `1.5GB` or `4096`. */
export function size(text: string): number {
  try {
    return parseBytes(text);
  } catch (error) {
    if (error instanceof NeuronError) throw new InvalidArgumentError(`${error.message}. ${error.hint ?? ""}`.trim());
    throw error;
  }
}

/** Parses one byte count, or a range of them (`64KiB..1GiB`): the first, four times as much and so on, and the last. */
export function sizes(text: string): readonly number[] {
  const [from, to, more] = text.split(/\.\.|…/);
  if (more !== undefined) throw new InvalidArgumentError(`"${text}" is not a range such as 64KiB..1GiB.`);
  const first = size(from!);
  const last = to === undefined ? first : size(to);
  if (first < 1 || last < first) throw new InvalidArgumentError(`"${text}" is not a range of sizes: the first must be at least 1 and at most the last.`);
  const list: number[] = [];
  for (let next = first; next < last; next *= SIZE_STEP) list.push(next);
  return [...list, last];
}

const SIZE_STEP = 4;
