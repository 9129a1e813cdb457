/** Options that several commands share, and how their values are read. */
import { type Command, InvalidArgumentError, Option } from "commander";
import { NeuronError } from "../../ffi/error.ts";
import { parseBytes } from "../report/bytes.ts";

/** The products a fake device can be. */
export const PRODUCTS = ["trn1", "inf2", "trn2", "trn3"] as const;

/** What a model can be compiled for: the code names of the architectures, and the products that have them. */
export const TARGET_NAMES = ["sunda", "cayman", "mariana", ...PRODUCTS] as const;

/** `--json`, the same for every command that prints something. */
export function jsonOption(): Option {
  return new Option("--json", "print JSON instead of tables");
}

/** Adds `--fake` and `--device`. */
export function deviceOptions(command: Command): Command {
  return command
    .addOption(new Option("--fake <product>", "use a fake device").choices(PRODUCTS).conflicts("device"))
    .addOption(new Option("--device <N>", "use the real device /dev/neuronN").argParser(integer));
}

/** Parses a non-negative integer option, decimal or `0x…`. */
export function integer(text: string): number {
  const value = /^(0x[0-9a-f]+|\d+)$/i.test(text) ? Number(text) : NaN;
  if (!Number.isSafeInteger(value)) throw new InvalidArgumentError(`"${text}" is not a non-negative integer.`);
  return value;
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
