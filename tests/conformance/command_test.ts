import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { gzipSync } from "node:zlib";
import type { Terminal } from "../../lib/cli/terminal.ts";
import { shimObstacle } from "../../lib/shim/seccomp.ts";
import { runConformance } from "../../tools/conformance/main.ts";
import type { ConformanceReport } from "../../tools/conformance/command.ts";
import { runFile } from "../support/run_code.ts";

const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-conformance-"));
after(() => rmSync(folder, { recursive: true }));
const obstacle = shimObstacle();
const skip = obstacle === undefined ? false : `programs cannot be run under a fake here: ${obstacle}`;
const hasClient = [process.env["CC"] ?? "cc", "python3"].some((program) => spawnSync(program, ["--version"]).status === 0);
const skipClient = hasClient ? false : "there is neither a C compiler nor Python 3";

async function command(...argv: readonly string[]): Promise<{ readonly code: number; readonly out: string; readonly err: string }> {
  const out: string[] = [];
  const err: string[] = [];
  const same = (text: string) => text;
  const terminal: Terminal = {
    print: (text) => void out.push(text), note: (text) => void err.push(text),
    bold: same, dim: same, red: same, green: same, yellow: same, canDraw: false, columns: 80, width: Infinity,
  };
  const code = await runConformance(argv, terminal);
  return { code, out: out.join("\n"), err: err.join("\n") };
}

async function commandJson(...argv: readonly string[]): Promise<ConformanceReport> {
  const { code, out, err } = await command(...argv, "--json");
  assert.equal(code, 0, err);
  return JSON.parse(out) as ConformanceReport;
}

function recording(result: number): string {
  const open = (fd: string, ret: number) => ({ op: "open", proc: "A", fd, in: { path: "/dev/neuron0", flags: "O_RDWR" }, ret, errno: ret < 0 ? "ENOENT" : null });
  return JSON.stringify({
    driver: { version: "2.24.7.0", device: "trn1", module_parameters: { no_reset: 1 } },
    scenarios: [{ name: "two-opens", category: "open", steps: [open("f", 0), open("g", result), { op: "note", text: "not counted" }] }],
  });
}

test("conformance counts steps, prints the summary last, and ends with 1 when a step differs", async () => {
  const [good, bad] = [join(folder, "good.json"), join(folder, "bad.json.gz")];
  writeFileSync(good, recording(0));
  writeFileSync(bad, gzipSync(recording(-1)));
  const report = await commandJson(good);
  assert.deepEqual(report.totals, { steps: 2, identical: 2, justified: 0, different: 0 });
  const { code, out } = await command(good, bad);
  assert.equal(code, 1);
  assert.equal(out.split("\n").at(-1), "3 of 4 steps identical, 0 justified");
  assert.match(out, /^differs +1 of +2 {2}open: two-opens\n {2}step 1: /m);
  assert.equal((await command(good, "--scenario", "nothing")).code, 2);
  const none = await command("README.md");
  assert.equal(none.code, 1);
  assert.match(none.err, /^error: Cannot read README\.md/);
});

test("conformance --out-of-process gets the same answers from real processes under the fake", { skip: skip || skipClient, timeout: 60_000 }, async () => {
  const { code, out, err } = await command("data/recordings/driver-2.24.7-trn1.json.gz", "--category", "free", "--out-of-process", "--json");
  const report = JSON.parse(out === "" ? "{}" : out) as ConformanceReport;
  assert.equal(code, 0, err);
  assert.equal(report.outOfProcess, true);
  const inside = await commandJson("data/recordings/driver-2.24.7-trn1.json.gz", "--category", "free");
  assert.deepEqual(report.totals, inside.totals);
  assert.ok(report.totals.steps > 20);
});

test("conformance replays a recording of the driver", () => {
  const ran = runFile("tools/conformance/main.ts", ["data/recordings/driver-2.24.7-trn1.json.gz", "--category", "alloc"]);
  assert.equal(ran.code, 0, ran.stdout.slice(-2000));
  const [, identical, steps] = /(\d+) of (\d+) steps identical, \d+ justified\n$/.exec(ran.stdout) ?? [];
  assert.ok(Number(steps) > 100 && identical === steps, ran.stdout.slice(-200));
  assert.ok(readFileSync("data/recordings/driver-2.24.7-trn1.json.gz").length > 0);
});
