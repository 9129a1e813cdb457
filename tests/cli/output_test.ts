import assert from "node:assert/strict";
import { copyFileSync, linkSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { parseNeff } from "../../lib/neff/mod.ts";
import { decodePlanFile } from "../../lib/plan/plan_file.ts";
import { command } from "../support/cli.ts";
import { runCommand, runFile } from "../support/run_code.ts";

const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-output-"));
after(() => rmSync(folder, { recursive: true }));

/** Commands that write, by what they read; `OUT` is the output. */
const WRITERS: Readonly<Record<string, readonly string[]>> = {
  plan: ["plan", "model.neff", "-o", "OUT"],
  map: ["map", "model.neff", "-o", "OUT"],
};

test("no output replaces an input of the command, by whatever name and whatever is forced", async () => {
  const model = join(folder, "model.neff");
  copyFileSync("samples/mlp.neff", model);
  symlinkSync(model, join(folder, "link.neff"));
  linkSync(model, join(folder, "second.neff"));
  const before = readFileSync(model);
  for (const argv of Object.values(WRITERS)) {
    for (const out of ["model.neff", "link.neff", "second.neff"]) {
      const words = argv.map((word) => word === "model.neff" ? model : word === "OUT" ? join(folder, out) : word);
      for (const forced of [[], ["--force"]]) {
        const { code, err } = await command(...words, ...forced);
        assert.equal(code, 2, words.join(" "));
        assert.match(err, /^error: Cannot write .*: it is .*model\.neff, which this command reads/);
      }
    }
  }
  assert.deepEqual(readFileSync(model), before);
});

test("no output replaces a file of another kind unless forced; one of its own kind, and an empty file, it does", async () => {
  for (const [name, argv] of Object.entries(WRITERS)) {
    const out = join(folder, `${name}.out`);
    const words = argv.map((word) => word === "model.neff" ? "samples/mlp.neff" : word === "OUT" ? out : word);
    writeFileSync(out, "what somebody wrote\n");
    const { code, err } = await command(...words);
    assert.equal(code, 2, name);
    assert.match(err, /^error: Cannot write .*: it is there already and no .*\nhint: .*--force/);
    assert.equal(readFileSync(out, "utf8"), "what somebody wrote\n");
    assert.equal((await command(...words, "--force")).code, 0, name);
    const written = readFileSync(out);
    assert.equal((await command(...words)).code, 0, `${name}: its own kind`);
    assert.deepEqual(readFileSync(out).length, written.length);
    writeFileSync(out, "");
    assert.equal((await command(...words)).code, 0, `${name}: empty`);
  }
  assert.deepEqual(readdirSync(folder).filter((file) => file.endsWith(".part")), []);
});

test("the log of requests replaces no other file", async () => {
  const log = join(folder, "log");
  writeFileSync(log, "notes\n");
  const { code, err } = await command("fake", "--record", log, "--", "true");
  assert.equal(code, 2);
  assert.match(err, /it is there already and no log of requests/);
  assert.equal(readFileSync(log, "utf8"), "notes\n");
});

test("- is standard output: of a plan, a packed model, and a page", async () => {
  const plan = runFile("lib/cli/main.ts", ["plan", "samples/mlp.neff", "-o", "-"]);
  assert.equal(plan.code, 0, plan.stderr);
  assert.ok(plan.stdout.endsWith("KBINPLAN"));
  const file = join(folder, "piped.plan");
  const { code } = await command("plan", "samples/mlp.neff", "-o", file);
  assert.equal(code, 0);
  assert.equal(decodePlanFile(readFileSync(file)).plans.length, 1);
  const page = runCommand(["map", "samples/mlp.neff", "-o", "-"]);
  assert.match(page.stdout, /^<!doctype html>/);
  const parts = join(folder, "parts");
  assert.equal((await command("unpack", "samples/mlp.neff", parts)).code, 0);
  const packed = join(folder, "packed.neff");
  assert.equal((await command("pack", parts, packed)).code, 0);
  assert.equal(parseNeff(readFileSync(packed)).header.uuid, parseNeff(readFileSync("samples/mlp.neff")).header.uuid);
});
