/** Files that commands write: never over an input, nor over a file of another kind unless forced. */
import { randomUUID } from "node:crypto";
import { writeSync } from "node:fs";
import { lstat, open, rename, rm, stat, writeFile } from "node:fs/promises";
import { NeuronError } from "../../ffi/error.ts";
import { looksLikeNeff } from "../neff/mod.ts";
import { PLAN_MAGIC } from "../plan/plan_file.ts";
import { UsageError } from "./failure.ts";

/** Kinds of files that are written. */
export type OutputKind = keyof typeof KINDS;

/** What an output has to be kept from. */
export interface OutputOptions {
  /** What is written. */
  readonly kind: OutputKind;
  /** Files the command reads. */
  readonly inputs?: readonly string[];
  /** Whether a file of another kind may be replaced. */
  readonly force: boolean;
}

const EDGE_BYTES = 256;

/** How a file of each kind is known, by its first and last bytes, and what it is called. */
const KINDS = {
  model: { name: "compiled model", is: (head: Uint8Array) => looksLikeNeff(head) },
  plan: { name: "plan", is: (_: Uint8Array, tail: Uint8Array) => latin1(tail).endsWith(PLAN_MAGIC) },
  page: { name: "memory map", is: (head: Uint8Array) => /^<!doctype html>[^]*Content-Security-Policy/.test(latin1(head)) },
  requests: { name: "log of requests", is: (head: Uint8Array) => latin1(head).startsWith('{"format":"neuron-dmem request log') },
} as const;

/**
 * Refuses an output that would destroy something: an input of the same command whatever is
 * forced, and a file of another kind unless it is. An empty file, a pipe and a device destroy nothing.
 *
 * @throws {UsageError}
 */
export async function checkOutput(file: string, { kind, inputs = [], force }: OutputOptions): Promise<void> {
  const there = file === "-" ? null : await stat(file).catch(() => null);
  if (there === null) return;
  for (const input of inputs) {
    const other = input === "-" ? null : await stat(input).catch(() => null);
    if (other !== null && other.dev === there.dev && other.ino === there.ino) {
      throw new UsageError(`Cannot write ${file}: it is ${input}, which this command reads`, { hint: "Name another file." });
    }
  }
  if (force || !there.isFile() || there.size === 0) return;
  const { name, is } = KINDS[kind];
  const { head, tail } = await edgesOf(file, there.size);
  if (!is(head, tail)) throw new UsageError(`Cannot write ${file}: it is there already and no ${name}`, { hint: "Name another file, or give --force to replace it." });
}

async function edgesOf(file: string, size: number): Promise<{ readonly head: Uint8Array; readonly tail: Uint8Array }> {
  const [head, tail] = [new Uint8Array(Math.min(size, EDGE_BYTES)), new Uint8Array(Math.min(size, EDGE_BYTES))];
  const handle = await open(file).catch(() => null);
  if (handle === null) return { head: new Uint8Array(), tail: new Uint8Array() };
  try {
    await handle.read(head, 0, head.length, 0);
    await handle.read(tail, 0, tail.length, size - tail.length);
    return { head, tail };
  } finally {
    await handle.close();
  }
}

/**
 * Writes a file a command was asked for: beside its place first, so that a full disk leaves
 * what was there; `-` is standard output.
 *
 * @throws {UsageError} for an output that would destroy something
 * @throws {NeuronError} when it cannot be written
 */
export async function writeOutput(file: string, bytes: Uint8Array | string, options: OutputOptions): Promise<void> {
  if (file === "-") return writeWhole(1, typeof bytes === "string" ? Buffer.from(bytes) : bytes);
  await checkOutput(file, options);
  const before = await lstat(file).catch(() => undefined);
  // Links, pipes and devices are written where they are; a file keeps its permissions.
  const isPlace = before !== undefined && !before.isFile();
  const beside = isPlace ? file : `${file}.${randomUUID()}.part`;
  try {
    await writeFile(beside, bytes, isPlace ? {} : { flag: "wx", ...(before === undefined ? {} : { mode: before.mode }) });
    if (!isPlace) await rename(beside, file);
  } catch (error) {
    if (!isPlace) await rm(beside, { force: true }).catch(() => {});
    const { code, message } = error instanceof Error ? error as NodeJS.ErrnoException : { code: undefined, message: String(error) };
    throw new NeuronError(`Cannot write ${file}: ${message.replaceAll(beside, file)}`, { details: { errno: code }, cause: error });
  }
}

function writeWhole(descriptor: number, bytes: Uint8Array): void {
  try {
    for (let done = 0; done < bytes.length;) done += writeSync(descriptor, bytes, done);
  } catch (error) {
    throw new NeuronError(`Cannot write to standard output: ${error instanceof Error ? error.message : String(error)}`, { hint: "Write to a file instead.", cause: error });
  }
}

function latin1(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("latin1");
}
