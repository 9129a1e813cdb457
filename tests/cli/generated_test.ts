import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { describeProgram } from "../../lib/cli/describe.ts";
import { COMMAND_NAMES, COMMANDS } from "../../lib/cli/commands.ts";
import { HELP_TEXT } from "../../lib/cli/help_text.ts";
import type { CommandSpec } from "../../lib/cli/options.ts";
import { VERSION } from "../../lib/cli/version.ts";
import { shimObstacle } from "../../lib/shim/seccomp.ts";
import { generateCli } from "../../scripts/generate_cli.ts";
import { command } from "../support/cli.ts";
import { runCommand } from "../support/run_code.ts";

const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-examples-"));
after(() => rmSync(folder, { recursive: true }));
const SPECS: readonly (readonly [string, CommandSpec])[] = COMMAND_NAMES.map((name) => [name, COMMANDS[name]]);
const onDeno = "Deno" in globalThis;

test("the manual and the ready help are what the definitions give", () => {
  for (const [path, text] of Object.entries(generateCli())) assert.equal(readFileSync(path, "utf8"), text, `${path}: run bun scripts/generate_cli.ts`);
});

test("the schemas are what the types give", { skip: onDeno ? "made once, under Bun" : false, timeout: 120_000 }, async () => {
  const { generateSchemas } = await import("../../scripts/generate_schemas.ts");
  const made = generateSchemas();
  for (const [path, text] of Object.entries(made)) assert.equal(readFileSync(path, "utf8"), text, `${path}: run bun scripts/generate_schemas.ts`);
  assert.deepEqual(readdirSync("schemas").map((name) => `schemas/${name}`).sort(), Object.keys(made).sort());
});

test("every command has a summary, a description, a group and an option for help; every command with --json has a schema", () => {
  const { commands } = describeProgram();
  const spec = new Map(SPECS);
  for (const { name, summary, description, group, options } of commands) {
    assert.ok(summary.length > 10 && summary.length <= 56, name);
    assert.ok(description.length > 10 && group.length > 3, name);
    assert.ok(options.some(({ long }) => long === "--help"), name);
    assert.equal(options.some(({ long }) => long === "--json"), spec.get(name)!.schemas !== undefined, name);
    assert.ok(spec.get(name)!.examples !== undefined || ["unpack", "pack"].includes(name), name);
  }
});

test("every example of the manual runs", { timeout: 60_000 }, async () => {
  const shim = shimObstacle();
  let count = 0;
  for (const [line] of SPECS.flatMap(([, { examples = [] }]) => examples)) {
    // What an example writes goes to a folder of its own; programs under the fake come from the path.
    const argv = line.replace(/(?<= )(map\.html|plan\.kbin)/, join(folder, "$1")).split(" ");
    if (argv[0] === "fake") {
      if (shim !== undefined) continue;
      const self = onDeno ? [process.execPath, "run", "-A", "--no-check", "lib/cli/main.ts"] : [process.execPath, "lib/cli/main.ts"];
      const ran = runCommand(argv.flatMap((word) => word === "neuron-dmem" ? self : [word]));
      assert.equal(ran.code, 0, `${line}: ${ran.stderr}`);
    } else {
      const { code, err } = await command(...argv);
      assert.equal(code, line.startsWith("scan") ? 1 : 0, `${line}: ${err}`);
    }
    count++;
  }
  console.log(`# manual: ${count} examples run`);
});

test("help is the same ready-made and from the definitions; without arguments it goes to standard error with 2", async () => {
  const help = await command("--help");
  assert.deepEqual([help.code, help.out, help.err], [0, HELP_TEXT, ""]);
  const nothing = await command();
  assert.deepEqual([nothing.code, nothing.out, nothing.err], [2, "", HELP_TEXT]);
  const ran = runCommand(["--help"]);
  assert.deepEqual([ran.code, ran.stdout, ran.stderr], [0, `${HELP_TEXT}\n`, ""]);
  const bare = runCommand([]);
  assert.deepEqual([bare.code, bare.stdout, bare.stderr], [2, "", `${HELP_TEXT}\n`]);
  assert.ok(HELP_TEXT.split("\n").every((line) => line.length <= 80));
});

test("--version is the package's", async () => {
  const { version } = JSON.parse(readFileSync("package.json", "utf8")) as { version: string };
  assert.equal(VERSION, version);
  assert.equal(runCommand(["--version"]).stdout, `${version}\n`);
  assert.equal((await command("--version")).out, version);
});

test("an unknown command and an unknown option are refused with what was meant", async () => {
  const lod = await command("lod", "x.neff");
  assert.equal(lod.code, 2);
  assert.match(lod.err, /unknown command 'lod'\n\(Did you mean load\?\)/);
  const option = await command("load", "samples/mlp.neff", "--fkae", "trn1");
  assert.equal(option.code, 2);
  assert.match(option.err, /Did you mean --fake\?/);
  for (const { name } of describeProgram().commands) {
    const { code, out } = await command(name, "--help");
    assert.equal(code, 0, name);
    assert.match(out, new RegExp(`^Usage: neuron-dmem ${name} `), name);
  }
});
