import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { generateAbi, readAbiTable } from "../../scripts/generate_abi.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));
const shipped = (name: string) => readFileSync(join(root, "lib", "abi", name), "utf8");

test("the generated files are what the generator makes of the table, byte for byte", () => {
  const files = generateAbi(readAbiTable());
  for (const [name, code] of files) assert.equal(shipped(name), code, `${name} differs: run scripts/generate_abi.ts`);
  assert.deepEqual([...files.keys()].sort(), readdirSync(join(root, "lib", "abi")).filter((name) => shipped(name).startsWith("// Generated")).sort());
  assert.ok(files.size >= 8);
});

test("the generator makes the same of the same table again, and other code of another table", () => {
  const table = readAbiTable();
  assert.deepEqual(generateAbi(table), generateAbi(readAbiTable()));
  const changed = structuredClone(table) as { structs: Record<string, { size: number }> } & typeof table;
  changed.structs["struct neuron_ioctl_mem_free"]!.size = 16;
  const code = generateAbi(changed);
  assert.notEqual(code.get("driver_memory.ts"), shipped("driver_memory.ts"));
  assert.equal(code.get("driver_copy.ts"), shipped("driver_copy.ts"));
});

test("run as a program it writes the same files into a folder", () => {
  const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-abi-"));
  try {
    const { status, stderr } = spawnSync(join(root, "node_modules", ".bin", "bun"), ["scripts/generate_abi.ts", folder], { cwd: root, encoding: "utf8" });
    assert.equal(status, 0, stderr);
    const names = readdirSync(folder).sort();
    assert.deepEqual(names, [...generateAbi(readAbiTable()).keys()].sort());
    for (const name of names) assert.equal(readFileSync(join(folder, name), "utf8"), shipped(name), name);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
