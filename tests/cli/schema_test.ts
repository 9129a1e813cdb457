import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { Ajv, type ValidateFunction } from "ajv";
import { explainText } from "../../lib/cli/explain.ts";
import { COMMAND_NAMES, COMMANDS } from "../../lib/cli/commands.ts";
import type { CommandSpec } from "../../lib/cli/options.ts";
import type { Terminal } from "../../lib/cli/terminal.ts";
import { createFake } from "../../lib/fake/machine.ts";
import { recordRequests } from "../../lib/fake/recorder.ts";
import { command } from "../support/cli.ts";
import { corpusModels, corpusPath, skipWithoutCorpus } from "../support/corpus.ts";

const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-schemas-"));
after(() => rmSync(folder, { recursive: true }));

/** The schema of a file, closed: what it does not name is refused. */
const validators = new Map<string, ValidateFunction>();
function validator(file: string): ValidateFunction {
  const known = validators.get(file);
  if (known !== undefined) return known;
  const close = (node: unknown): unknown => {
    if (Array.isArray(node)) return node.map(close);
    if (typeof node !== "object" || node === null) return node;
    const closed = Object.fromEntries(Object.entries(node).map(([key, value]) => [key, close(value)]));
    return "properties" in closed && !("additionalProperties" in closed) ? { ...closed, additionalProperties: false } : closed;
  };
  const made = new Ajv({ allErrors: true, allowUnionTypes: true }).compile(close(JSON.parse(readFileSync(`schemas/${file}`, "utf8"))) as object);
  validators.set(file, made);
  return made;
}

/** Validates a value. */
function check(file: string, value: unknown, about: string): void {
  const validate = validator(file);
  assert.ok(validate(value), `${about}: ${JSON.stringify(validate.errors?.slice(0, 3))}`);
}

/** Runs a command whatever its exit code and validates what it prints. */
async function checkCommand(file: string, ...argv: readonly string[]): Promise<void> {
  const { out, err } = await command(...argv, "--json");
  assert.notEqual(out, "", `${argv.join(" ")}: ${err}`);
  check(file, JSON.parse(out), argv.join(" "));
}

const SAMPLES = ["samples/mlp.neff", "samples/attention_lnc2.neff", "samples/every_type.neff"];

test("what every command prints is of the shape its schema says, and of no other", { timeout: 60_000 }, async () => {
  const covered = new Set<string>();
  const run = async (file: string, ...argv: readonly string[]): Promise<void> => {
    covered.add(file);
    await checkCommand(file, ...argv);
  };
  const [cache, log] = [join(folder, "cut.neff"), join(folder, "run.csv")];
  writeFileSync(cache, readFileSync(SAMPLES[0]!).subarray(0, 3000));
  writeFileSync(log, "seq,action,id,core,hbm,location,usage,size,alignment,contiguous,address,hint\n0,alloc,1,0,0,device,TENSOR,1048576,0,0,0x1000000,x\n1,alloc,2,0,0,device,TENSOR,99999999999,0,0,,y\n2,free,9,0,0,device,TENSOR,4096,0,0,,\n");
  for (const file of SAMPLES) {
    await run("inspect.json", "inspect", file);
    await run("plan.json", "plan", file);
    await run("load.json", "load", file);
    await run("map.json", "map", file);
    await run("fit.json", "fit", file, "--used", "1GiB", "--profile");
  }
  await run("inspect.json", "inspect", SAMPLES[0]!, "--supported-features", "0");
  await run("scan.json", "scan", "samples", cache, "no/such.neff", "--target", "trn1");
  await run("inspect-deployment.json", "inspect", "samples");
  const entry = join(folder, "entries", "neuronxcc-2.20", "MODULE_1+2");
  mkdirSync(entry, { recursive: true });
  for (const [name, bytes] of [["model.neff", readFileSync(SAMPLES[0]!)], ["model.done", ""]] as const) writeFileSync(join(entry, name), bytes);
  await run("cache.json", "cache", join(folder, "entries"));
  await run("diff.json", "diff", SAMPLES[0]!, SAMPLES[1]!);
  await run("unpack.json", "unpack", SAMPLES[0]!, join(folder, "files"));
  await run("pack.json", "pack", join(folder, "files"), join(folder, "packed.neff"));
  await run("fit.json", "fit", SAMPLES[0]!, "--instance", "trn1.2xlarge", "--used", "16GiB");
  await run("fit.json", "fit", "--need", "3GiB", "--instance", "inf1.xlarge");
  await run("fit-all-instances.json", "fit", SAMPLES[0]!, "--all-instances");
  await run("load.json", "load", SAMPLES[0]!, "--io", "plan");
  await run("resolve.json", "resolve", SAMPLES[0]!, "x+16");
  await run("map.json", "map", log);
  await run("devices.json", "devices", "--fake", "trn2", "--devices", "3,5");
  await run("devices.json", "devices", "--dev", folder, "--sysfs", folder);
  await run("mem.json", "mem", "--fake", "inf2", "--expect", "2");
  await run("mem.json", "mem", "--sysfs", folder);
  await run("top.json", "top", "--fake", "trn1", "--zeros");
  await run("copy.json", "copy", "--fake", "trn1", "--size", "4KiB", "--time", "1");
  await run("replay.json", "replay", log, "--hbm-size", "1GiB");
  await run("replay-requests.json", "replay", requestLog());
  for (const code of ["4", "ENOMEM"]) await run("explain.json", "explain", code);
  covered.add("explain-log.json");
  explainLog();
  assert.deepEqual([...covered].sort(), COMMAND_NAMES.flatMap((name) => schemasOf(COMMANDS[name])).map(({ file }) => file).sort());
});

function schemasOf({ schemas = [] }: CommandSpec): NonNullable<CommandSpec["schemas"]> {
  return schemas;
}

function explainLog(): void {
  const out: string[] = [];
  const same = (text: string) => text;
  const terminal: Terminal = { print: (text) => void out.push(text), note: () => {}, bold: same, dim: same, red: same, green: same, yellow: same, canDraw: false, columns: 80, width: 80 };
  explainText(terminal, "ERROR  TDRV:log_dev_mem  Failed to allocate 172.000MB (usage: tensors) on ND 0:NC 0, current utilization:\n\t* total: 15.855GB\n", true);
  check("explain-log.json", JSON.parse(out.join("")), "explain -");
}

/** A log of requests whose last result was changed. */
function requestLog(): string {
  const lines: string[] = [];
  using machine = createFake({ product: "trn1" });
  recordRequests(machine, { product: "trn1" }, (line) => lines.push(line));
  machine.process().open("/dev/neuron0", 2);
  const file = join(folder, "requests.jsonl");
  writeFileSync(file, lines.join("\n").replace(/"ret":\d+}$/, '"ret":-13}'));
  return file;
}

test("the facts, plans, loads and pictures of every real model are of the shape their schemas say", { skip: skipWithoutCorpus, timeout: 120_000 }, async () => {
  const commands = ["inspect", "plan", "load", "map", "fit"];
  for (const [index, name] of corpusModels().entries()) {
    // Two commands per model, in turn: all of them see models of every compiler.
    for (const one of [commands[index % 5]!, commands[(index + 2) % 5]!]) await checkCommand(`${one}.json`, one, corpusPath(`neff/${name}`));
  }
  await checkCommand("scan.json", "scan", corpusPath("neff"));
  console.log(`# schemas: outputs of ${2 * corpusModels().length} runs over real models validated`);
});
