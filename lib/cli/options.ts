/** How a command is described as data, and how the values of its options are read. */
import { InvalidArgumentError } from "commander";
import { NeuronError } from "../../ffi/error.ts";
import { parseBytes } from "../text/size.ts";

/** An option of a command, whose value is a `T`. */
export interface OptionSpec<T> {
  /** As written in help, for example `-o, --out <page>`. */
  readonly flags: string;
  readonly description: string;
  /** The value where the option is not given. */
  readonly standard: T;
  /** The standard value for people, where it does not say itself. */
  readonly standardText?: string | undefined;
  /** What it can be, where that is a list. */
  readonly choices?: readonly string[] | undefined;
  /** Options that cannot be given beside it, by their names in the table. */
  readonly conflicts?: readonly string[] | undefined;
  /** Reads the text; `before` is what an earlier use of the option gave. @throws {InvalidArgumentError} */
  parse?(text: string, before: T): T;
}

/** An argument of a command, whose value is a `T`. */
export interface ArgumentSpec<T> {
  /** As written in help: `<file>`, `[file...]`. */
  readonly syntax: string;
  readonly description?: string | undefined;
  readonly choices?: readonly (T & string)[] | undefined;
}

/** A command: help, manual, completion and the types of its options come from this. */
export interface CommandSpec {
  /** Heading it stands under. */
  readonly group: string;
  /** A few words. */
  readonly summary: string;
  /** A sentence, lower case, without its full stop. */
  readonly description: string;
  readonly args: Readonly<Record<string, ArgumentSpec<unknown>>>;
  readonly options: Readonly<Record<string, OptionSpec<unknown>>>;
  /** What to type, and what for; run by the tests from the root of the repository. */
  readonly examples?: readonly (readonly [line: string, what: string])[];
  /** Files of `schemas/` with the type they are made from. */
  readonly schemas?: readonly { readonly file: string; readonly type: string }[];
  /** Replaces the usage that the arguments give. */
  readonly usage?: string;
  /** What follows the arguments belongs to another program. */
  readonly passThrough?: boolean;
  /** Arguments may begin with `-`: unknown options are arguments, and only `--help` helps. */
  readonly dashedArguments?: boolean;
}

/** What a command is given: its arguments and options by name. */
export type GivenOf<Spec extends CommandSpec> =
  & { readonly [Name in keyof Spec["args"]]: Spec["args"][Name] extends ArgumentSpec<infer T> ? T : never }
  & { readonly [Name in keyof Spec["options"]]: Spec["options"][Name] extends OptionSpec<infer T> ? T : never };

/** What an option can say besides its flags. */
type More<T> = Partial<Pick<OptionSpec<T>, "conflicts" | "standardText">>;

/** An argument that has to be given. */
export function one(syntax: `<${string}>`, description?: string): ArgumentSpec<string> {
  return { syntax, description };
}

/** An argument that may be left out. */
export function maybe(syntax: `[${string}]`, description?: string): ArgumentSpec<string | undefined> {
  return { syntax, description };
}

/** An argument that may be given several times. */
export function many(syntax: `<${string}...>` | `[${string}...]`): ArgumentSpec<readonly string[]> {
  return { syntax };
}

/** An argument out of a list. */
export function oneOf<const T extends string>(syntax: `<${string}>`, choices: readonly T[]): ArgumentSpec<T> {
  return { syntax, choices };
}

/** A switch: false unless given; `--no-…` is true unless given. */
export function flag(flags: string, description: string): OptionSpec<boolean> {
  return { flags, description, standard: flags.startsWith("--no-") };
}

/** An option with a text that may be left out. */
export function text(flags: string, description: string, more: More<string | undefined> = {}): OptionSpec<string | undefined> {
  return { flags, description, standard: undefined, ...more };
}

/** An option with a value that may be left out. */
export function value<T>(flags: string, description: string, parse: (text: string) => T, more: More<T | undefined> = {}): Parsed<T> {
  return { flags, description, standard: undefined, parse, ...more };
}

/** An option with a value and a standard. */
export function valueOr<T>(flags: string, description: string, standard: T, parse: (text: string) => T, standardText?: string): OptionSpec<T> {
  return { flags, description, standard, parse, standardText };
}

/** An option out of a list. */
export function choice<const T extends string>(flags: string, description: string, choices: readonly T[], more: More<T | undefined> = {}): OptionSpec<T | undefined> {
  return { flags, description, choices, standard: undefined, ...more };
}

/** An option out of a list, with a standard. */
export function choiceOr<const T extends string>(flags: string, description: string, choices: readonly T[], standard: T): OptionSpec<T> {
  return { flags, description, choices, standard };
}

/** An option that may be given several times. */
export function several(flags: string, description: string): OptionSpec<readonly string[]> {
  return { flags, description, standard: [], parse: (text, before) => [...before, text] };
}

/** An option with a byte count that may be given several times: the sum. */
export function summed(flags: string, description: string): OptionSpec<number | undefined> {
  return { flags, description, standard: undefined, parse: (text, before) => (before ?? 0) + size(text) };
}

/** The same option, refused when it is given twice: the first value would be lost without a word. */
export function once(spec: OptionSpec<string | undefined>): OptionSpec<string | undefined>;
export function once<T>(spec: Parsed<T>): Parsed<T>;
export function once(spec: OptionSpec<unknown>): OptionSpec<unknown> {
  return {
    ...spec,
    parse(text, before) {
      if (before !== undefined) throw new InvalidArgumentError("It can be given once.");
      return spec.parse === undefined ? text : spec.parse(text, before);
    },
  };
}

/** An option whose text is read. */
type Parsed<T> = OptionSpec<T | undefined> & Required<Pick<OptionSpec<T | undefined>, "parse">>;

/** The products a fake device can be. */
export const PRODUCTS = ["trn1", "inf2", "trn2", "trn3"] as const;

/** What a model can be compiled for: the code names of the architectures, and the products that have them. */
export const TARGET_NAMES = ["sunda", "cayman", "mariana", ...PRODUCTS] as const;

/** `--json`, the same for every command that prints something. */
export const JSON_OPTION = { json: flag("--json", "print JSON instead of tables") };

/** `--force`, for commands that write a file. */
export const FORCE_OPTION = { force: flag("--force", "replace a file of another kind too") };

/** `--expect`, for commands that notice when a device is missing. */
export const EXPECT_OPTION = { expect: value("--expect <N|list>", "devices that must be there: how many, or which", deviceCount) };

/** `--fake` and `--device`: which device is used. */
export const DEVICE_OPTIONS = {
  fake: choice("--fake <product>", "use a fake device", PRODUCTS, { conflicts: ["device"] }),
  device: value("--device <N>", "use the real device /dev/neuronN", integer),
};

/** Where to look for devices: a fake machine, or files that stand for the system's. */
export const MACHINE_OPTIONS = {
  fake: choice("--fake <product>", "look at a fake machine", PRODUCTS),
  devices: value("--devices <N|list>", "devices of the fake machine: how many, or which (3,5)", deviceCount),
  sysfs: text("--sysfs <root>", "directory that stands for /sys"),
};

/** How models are put on a device. */
export const STAGING_OPTIONS = {
  ...DEVICE_OPTIONS,
  core: value("--core <N>", "first NeuronCore to load on, device-relative (default: the first this process may use)", integer),
  io: choiceOr("--io <how>", "where inputs and outputs go: tensors bound by name, or placed by the plan", ["tensors", "plan"], "tensors"),
};

/** Parses a non-negative integer option, decimal or `0x…`. */
export function integer(text: string): number {
  const number = /^(0x[0-9a-f]+|\d+)$/i.test(text) ? Number(text) : NaN;
  if (!Number.isSafeInteger(number)) throw new InvalidArgumentError(`"${text}" is not a non-negative integer.`);
  return number;
}

/** Parses how many devices a fake machine has, or which: `16`, `3,5`. */
export function deviceCount(text: string): number | readonly number[] {
  const numbers = text.split(",").map((part) => integer(part.trim()));
  if (!text.includes(",")) return numbers[0]!;
  if (new Set(numbers).size < numbers.length) throw new InvalidArgumentError(`"${text}" names a device twice.`);
  return numbers;
}

/** Milliseconds of each unit of time. */
const MILLISECONDS = new Map([["us", 1e-3], ["µs", 1e-3], ["ms", 1], ["s", 1e3]]);

/** Parses a time such as `20ms`, `1.5s` or `200us` into milliseconds. */
export function milliseconds(text: string): number {
  const [, number, unit] = /^(\d+(?:\.\d+)?)(us|µs|ms|s)$/.exec(text) ?? [];
  if (unit === undefined) throw new InvalidArgumentError(`"${text}" is not a time such as 20ms or 1.5s.`);
  return Number(number) * MILLISECONDS.get(unit)!;
}

const LEAST_SECONDS = 0.1;
const MOST_SECONDS = 3600;

/** Parses seconds between samples. */
export function seconds(text: string): number {
  const number = /^\d+(\.\d+)?$/.test(text) ? Number(text) : NaN;
  if (!(number >= LEAST_SECONDS && number <= MOST_SECONDS)) throw new InvalidArgumentError(`"${text}" is not a number of seconds from ${LEAST_SECONDS} to ${MOST_SECONDS}.`);
  return number;
}

/** Parses a 64-bit mask, decimal or `0x…`. */
export function mask(text: string): bigint {
  const number = /^(0x[0-9a-f]+|\d+)$/i.test(text) ? BigInt(text) : -1n;
  if (number < 0n || number >= 1n << 64n) throw new InvalidArgumentError(`"${text}" is not a 64-bit mask such as 0x80000000000000ff.`);
  return number;
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

const SIZE_STEP = 4;

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
