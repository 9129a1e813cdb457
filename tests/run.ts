/**
 * Runs every test under Bun and under Deno, side by side, and prints what
 * passed, failed and was skipped, and which claims of the specification the
 * passing tests name.
 *
 *     bun tests/run.ts [--bun | --deno] [folder or file …]
 */
import { spawn } from "node:child_process";
import { createWriteStream, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { claimCoverage } from "./support/claims.ts";

interface Case {
  readonly name: string;
  readonly outcome: "passed" | "failed" | "skipped";
}

interface Run {
  readonly runtime: "Bun" | "Deno";
  readonly code: number;
  readonly cases: readonly Case[];
  readonly log: string;
  readonly seconds: number;
}

/** Bun gives a test five seconds and takes another default for the first file only; a loaded machine needs more. */
const TEST_MS = 300_000;

const root = fileURLToPath(new URL("../", import.meta.url));
const bin = (name: string) => join(root, "node_modules", ".bin", name);
const args = process.argv.slice(2);
const targets = args.filter((arg) => !arg.startsWith("--"));
const scratch = mkdtempSync(join(tmpdir(), "neuron-dmem-tests-"));

const wanted = [
  ...(args.includes("--deno") ? [] : [runBun]),
  ...(args.includes("--bun") ? [] : [runDeno]),
];
const runs = await Promise.all(wanted.map((start) => start()));
for (const run of runs) report(run);
const all = runs.flatMap((run) => run.cases);
if (targets.length === 0) reportClaims(runs);
const count = (outcome: Case["outcome"]) => all.filter((one) => one.outcome === outcome).length;
// A runner that died without naming a failed case still counts as one failure.
const crashed = runs.filter((run) => run.code !== 0 && !run.cases.some((one) => one.outcome === "failed")).length;
rmSync(scratch, { recursive: true, force: true });
console.log(`${count("passed")} passed, ${count("failed") + crashed} failed, ${count("skipped")} skipped`);
process.exit(count("failed") + crashed === 0 && count("passed") > 0 ? 0 : 1);

function runBun(): Promise<Run> {
  const junit = join(scratch, "bun.xml");
  const paths = targets.length === 0 ? ["tests"] : targets;
  return run("Bun", bin("bun"), ["test", `--timeout=${TEST_MS}`, "--reporter=junit", `--reporter-outfile=${junit}`, ...paths.map((path) => `./${path}`)], junit);
}

function runDeno(): Promise<Run> {
  const junit = join(scratch, "deno.xml");
  const paths = targets.length === 0 ? ["tests"] : targets;
  return run("Deno", bin("deno"), ["test", "-A", "--no-check", `--junit-path=${junit}`, ...paths], junit);
}

function run(runtime: Run["runtime"], command: string, argv: readonly string[], junit: string): Promise<Run> {
  const started = Date.now();
  const logPath = join(scratch, `${runtime}.log`);
  const log = createWriteStream(logPath);
  const child = spawn(command, argv, { cwd: root, stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, NO_COLOR: "1" } });
  child.stdout.pipe(log, { end: false });
  child.stderr.pipe(log, { end: false });
  return new Promise((done) => {
    child.on("close", (code) => {
      log.end(() => {
        done({ runtime, code: code ?? 1, cases: readCases(junit), log: readFileSync(logPath, "utf8"), seconds: (Date.now() - started) / 1000 });
      });
    });
  });
}

function readCases(path: string): Case[] {
  let xml: string;
  try {
    xml = readFileSync(path, "utf8");
  } catch {
    return [];
  }
  return [...xml.matchAll(/<testcase\b([^>]*?)(\/>|>([\s\S]*?)<\/testcase>)/g)].map((match) => {
    const name = unescape(/\bname="([^"]*)"/.exec(match[1]!)?.[1] ?? "");
    const body = match[3] ?? "";
    return { name, outcome: /<(failure|error)\b/.test(body) ? "failed" : /<skipped\b/.test(body) ? "skipped" : "passed" };
  });
}

function unescape(text: string): string {
  const named: Readonly<Record<string, string>> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'" };
  return text.replace(/&(amp|lt|gt|quot|apos);/g, (_, name: string) => named[name]!);
}

/** What tests printed (counts, seeds) on success; everything on failure. */
function report(run: Run): void {
  const failed = run.cases.filter((one) => one.outcome === "failed");
  const skipped = run.cases.filter((one) => one.outcome === "skipped");
  if (run.code !== 0) {
    console.log(run.log);
  } else {
    const lines = run.log.split("\n").filter((line) => /^(DIAGNOSTIC: )?# /.test(line)).map((line) => line.replace("DIAGNOSTIC: ", ""));
    for (const line of lines) console.log(`${run.runtime}: ${line}`);
  }
  for (const one of skipped) console.log(`${run.runtime} skipped: ${one.name}`);
  for (const one of failed) console.log(`${run.runtime} FAILED: ${one.name}`);
  const passed = run.cases.length - failed.length - skipped.length;
  console.log(`${run.runtime}: ${passed} passed, ${failed.length} failed, ${skipped.length} skipped in ${run.seconds.toFixed(0)} s`);
}

function reportClaims(runs: readonly Run[]): void {
  for (const run of runs) {
    const { summary, missing } = claimCoverage(run.cases.filter((one) => one.outcome === "passed").map((one) => one.name));
    console.log(`${run.runtime}: claims shown by a passing test, covered / testable: ${summary}`);
    if (missing.length > 0) console.log(`${run.runtime}: not shown: ${missing.join(" ")}`);
  }
}
