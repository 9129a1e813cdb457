import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import type { Field } from "../../ffi/layout.ts";
import { readAbiTable } from "../../scripts/generate_abi.ts";
import { type CSource, cSource, fnv } from "./c_source.ts";
import { allStructs, type AnyStruct, type AnyView } from "./support.ts";

/** The program does not read structs above this size; they are asserted only. */
const MOST_BYTES = 1 << 16;

const compiler = ["gcc", "cc", "clang"].find((name) => spawnSync(name, ["--version"]).status === 0);
const skip = compiler === undefined ? "no C compiler" : false;
const source = cSource([...allStructs.values()], readAbiTable(), MOST_BYTES);

test("a C compiler lays every struct out with the sizes and offsets of the tables", { skip }, () => {
  withProgram(source, () => undefined);
  console.log(`C compiler: ${source.assertions} assertions over ${allStructs.size} structs hold`);
  assert.ok(source.assertions >= 1800, `only ${source.assertions} assertions`);
});

test("only structs of which parts are unknown, and views of a union, need gaps that C would not make", () => {
  const views = /^(kbin_mem_ref|mem_ref_t) \(/;
  assert.deepEqual(source.padded.filter((name) => !views.test(name)), ["kbin_engine", "mla_resources", "model_t"]);
});

test("a C program reads from every struct's bytes the values that were written through its view (P-046)", { skip }, () => {
  const parts: Uint8Array[] = [];
  const expected: string[] = [];
  let state = 12345;
  const random = (limit: number): number => (state = (state * 1103515245 + 12345) % 2147483648) % limit;
  for (const struct of source.order) {
    const view = struct.over(new DataView(new ArrayBuffer(struct.byteLength)));
    for (const [name, field] of Object.entries(struct.fields)) expected.push(fill(view, name, field, random));
    parts.push(view.$bytes);
  }
  const output = withProgram(source, (program) => spawnSync(program, { input: new Uint8Array(Buffer.concat(parts)), maxBuffer: 1 << 24 }).stdout.toString());
  const lines = output.trimEnd().split("\n");
  const names = source.order.flatMap((struct: AnyStruct) => Object.keys(struct.fields).map((name) => `${struct.cName}.${name}`));
  assert.equal(lines.length, expected.length);
  for (const [index, line] of lines.entries()) assert.equal(line, expected[index], names[index]!);
  console.log(`C program: ${lines.length} fields of ${source.order.length} structs read`);
});

test("a wrong offset does not compile", { skip }, () => {
  const wrong = { ...source, text: source.text.replace("offsetof(struct dmem_t, hint) == 136", "offsetof(struct dmem_t, hint) == 144") };
  assert.notEqual(wrong.text, source.text);
  assert.throws(() => withProgram(wrong, () => undefined), /offset of dmem_t.hint/);
});

/** Writes a value (the last element of an array) and returns how the program prints it. */
function fill(view: AnyView, name: string, field: Field, random: (limit: number) => number): string {
  const wide = () => random(2 ** 21) * 2 ** 31 + random(2 ** 31);
  const value = field.kind === "u8" ? random(256)
    : field.kind === "u16" ? random(65536)
    : field.kind === "u32" ? random(2 ** 31) * 2 + random(2)
    : field.kind === "i32" ? random(2 ** 31) - 2 ** 30
    : field.kind === "i8" ? random(256) - 128
    : field.kind === "i64" ? wide() - 2 ** 51
    : wide();
  if (field.kind === "bytes") {
    const bytes = view[name] as Uint8Array;
    for (let at = 0; at < bytes.length; at++) bytes[at] = random(256);
    return String(fnv(bytes));
  }
  if (field.kind === "chars") {
    const text = `text ${random(1000)}`;
    view[name] = text;
    const bytes = new Uint8Array(field.size);
    new TextEncoder().encodeInto(text, bytes);
    return String(fnv(bytes));
  }
  if (field.count === undefined) view[name] = value;
  else view.$set(name, field.count - 1, value);
  return String(value);
}

function withProgram<R>({ text }: CSource, use: (program: string) => R): R {
  const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-c-"));
  try {
    const [file, program] = [join(folder, "layout.c"), join(folder, "layout")];
    writeFileSync(file, text);
    const { status, stderr } = spawnSync(compiler!, ["-std=c11", "-Wall", "-O0", "-o", program, file], { encoding: "utf8" });
    if (status !== 0) throw new Error(stderr.split("\n").filter((line) => line.includes("error")).slice(0, 20).join("\n"));
    return use(program);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
