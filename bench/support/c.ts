import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { addressOf } from "../../ffi/mod.ts";

/** A C function of up to six arguments: pointers (views) and 32-bit numbers, an `int` back. */
export type CFunction = (...args: (ArrayBufferView | number)[]) => number;

/** Whether an argument is a pointer or a number. */
export type CArgument = "ptr" | "u32";

/**
 * Compiles C with `gcc -O2` (or another compiler of the machine) and loads it.
 * Undefined when there is no compiler.
 */
export function compileC(source: string, functions: Readonly<Record<string, readonly CArgument[]>>): Readonly<Record<string, CFunction>> | undefined {
  const compiler = ["gcc", "cc", "clang"].find((name) => spawnSync(name, ["--version"]).status === 0);
  if (compiler === undefined) return undefined;
  const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-bench-"));
  try {
    const library = join(folder, "bench.so");
    writeFileSync(join(folder, "bench.c"), source);
    const built = spawnSync(compiler, ["-O2", "-shared", "-fPIC", "-o", library, join(folder, "bench.c")], { encoding: "utf8" });
    if (built.status !== 0) throw new Error(`the reference does not compile: ${built.stderr}`);
    return load(library, functions);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

interface DenoFfi {
  dlopen(path: string, symbols: object): { symbols: Record<string, (...args: unknown[]) => number> };
  UnsafePointer: { of(view: ArrayBufferView): unknown };
}

function load(library: string, functions: Readonly<Record<string, readonly CArgument[]>>): Record<string, CFunction> {
  const deno = (globalThis as { Deno?: DenoFfi }).Deno;
  if (deno !== undefined) {
    const symbols = Object.fromEntries(Object.entries(functions).map(([name, args]) =>
      [name, { parameters: args.map((kind) => kind === "ptr" ? "pointer" : "u32"), result: "i32" }]));
    const loaded = deno.dlopen(library, symbols).symbols;
    return adapted(functions, loaded, (view) => deno.UnsafePointer.of(view));
  }
  const { dlopen } = process.getBuiltinModule("bun:ffi" as "node:fs") as unknown as typeof import("bun:ffi");
  const symbols = Object.fromEntries(Object.entries(functions).map(([name, args]) => [name, { args: [...args], returns: "i32" as const }]));
  const loaded = dlopen(library, symbols as never).symbols as Record<string, (...args: unknown[]) => number>;
  return adapted(functions, loaded, (view) => addressOf(view));
}

function adapted(
  functions: Readonly<Record<string, readonly CArgument[]>>,
  loaded: Readonly<Record<string, (...args: unknown[]) => number>>,
  pointer: (view: ArrayBufferView) => unknown,
): Record<string, CFunction> {
  return Object.fromEntries(Object.keys(functions).map((name) => {
    const call = loaded[name] as (...args: unknown[]) => number;
    return [name, (...args: (ArrayBufferView | number)[]) => call(...args.map((arg) => typeof arg === "number" ? arg : pointer(arg)))];
  }));
}
