import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { payloadOf } from "../../lib/cli/progress.ts";
import { buildNeff } from "../../lib/neff_write/mod.ts";
import { commandOn } from "../support/cli.ts";
import { runCommand } from "../support/run_code.ts";
import { inTerminal, skipWithoutTmux } from "../support/tmux.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-terminal-"));
after(() => rmSync(folder, { recursive: true }));
const program = `${process.execPath} ${"Deno" in globalThis ? "run -A --no-check " : ""}lib/cli/main.ts`;
/** Taken out with env(1): Deno's children get the parent's variables besides those they are given. */
const without = ["NO_COLOR", "COLUMNS", "TERM"].flatMap((name) => ["-u", name]);

const withoutScript = spawnSync("script", ["--version"]).status === 0 ? false : "script is not installed";

/** Runs a shell command with the program as `$P`. */
function shell(line: string, env: Readonly<Record<string, string>> = {}): { readonly code: number | null; readonly out: string; readonly err: string } {
  const { status, stdout, stderr } = spawnSync("env", [...without, `P=${program}`, ...Object.entries(env).map(([name, value]) => `${name}=${value}`), "bash", "--norc", "-c", line], { cwd: root, encoding: "utf8" });
  return { code: status, out: stdout, err: stderr };
}

const GOLDEN: Readonly<Record<string, readonly string[]>> = {
  inspect: ["inspect", "samples/attention_lnc2.neff", "--supported-features", "0xff"],
  plan: ["plan", "samples/every_type.neff"],
  load: ["load", "samples/mlp.neff", "--fake", "trn1", "--map"],
  devices: ["devices", "--fake", "trn2", "--devices", "3,5"],
  explain: ["explain", "NRT_RESOURCE"],
};

test("what commands print at 80 and 200 columns is what was kept", async () => {
  const locale = process.env["LC_ALL"];
  process.env["LC_ALL"] = "C.UTF-8";
  try {
    for (const [name, argv] of Object.entries(GOLDEN)) {
      for (const columns of [80, 200]) {
        // The uuid follows from every byte of the sample, which is not what is looked at here.
        const out = (await commandOn({ columns }, ...argv)).out.replace(/uuid [0-9a-f]{32}/, "uuid …");
        const file = `tests/golden/cli/${name}-${columns}.txt`;
        if (process.env["UPDATE_GOLDEN"] !== undefined) writeFileSync(file, `${out}\n`);
        assert.equal(`${out}\n`, readFileSync(file, "utf8"), `${file}: UPDATE_GOLDEN=1 writes it anew`);
      }
    }
  } finally {
    if (locale === undefined) delete process.env["LC_ALL"];
    else process.env["LC_ALL"] = locale;
  }
});

test("a reader that goes away ends a command quietly, and so does a closed standard output", () => {
  const cut = shell("$P map samples/mlp.neff --json | head -1; echo ${PIPESTATUS[*]}");
  assert.deepEqual([cut.out, cut.err], ["{\n0 0\n", ""]);
  assert.deepEqual([shell("$P --help | true; echo ${PIPESTATUS[0]}").err, shell("$P fit --help | true").err], ["", ""]);
  assert.deepEqual([shell("$P inspect samples/mlp.neff >&-").code, shell("$P inspect samples/mlp.neff >&-").err], [0, ""]);
  const full = shell("$P inspect samples/mlp.neff >/dev/full");
  assert.equal(full.code, 1);
  assert.match(full.err, /^error: Cannot write to standard output: .*\nhint: /);
});

test("colours are for terminals: none in pipes, with NO_COLOR or on a dumb terminal", { skip: withoutScript }, () => {
  const inTty = (env: Readonly<Record<string, string>>) => shell(`script -qec "$P inspect samples/mlp.neff" /dev/null`, { TERM: "xterm", ...env }).out;
  const styled = (text: string) => text.includes("\u001b[1m");
  assert.ok(styled(inTty({})));
  assert.ok(styled(inTty({ NO_COLOR: "" })));
  assert.ok(!styled(inTty({ NO_COLOR: "1" })));
  assert.ok(!styled(inTty({ TERM: "dumb" })));
  assert.ok(!styled(shell("$P inspect samples/mlp.neff", { TERM: "xterm" }).out));
  // Errors to a file carry no codes even when standard output is a terminal.
  shell(`script -qec "$P inspect no/such.neff 2>${join(folder, "err")}" /dev/null`, { TERM: "xterm" });
  assert.match(readFileSync(join(folder, "err"), "utf8"), /^error: Cannot /);
});

test("names in a file cannot send codes to the terminal", () => {
  const file = join(folder, "evil.neff");
  const name = "w\u001b]0;owned\u0007\u001b[2J\u202e";
  writeFileSync(file, buildNeff({ target: "sunda", subgraphs: [{ variables: [
    { name: "SB", type: "state-buffer" }, { name: "in", type: "input", size: 64 }, { name: "out", type: "output", size: 64 }, { name, type: "tmp-buf", size: 64 },
  ] }] }));
  for (const argv of [["load", file], ["plan", file], ["resolve", file, "nothing"], ["inspect", file], ["map", file, "-o", "-"]]) {
    const { stdout, stderr } = runCommand(argv);
    // oxlint-disable-next-line no-control-regex -- control characters are what must not be there
    assert.doesNotMatch(stdout + stderr, /[\u0000-\u0008\u000b-\u001f\u007f\u202e]/, argv[0]!);
  }
  const { subgraphs } = JSON.parse(runCommand(["plan", file, "--json"]).stdout) as { subgraphs: { records: { name: string }[] }[] };
  assert.ok(subgraphs[0]?.records.some((record) => record.name === name), "JSON keeps the name");
});

test("the texts of a bar tell how much, how fast and how long", () => {
  assert.deepEqual(payloadOf("bytes", "reading x", { done: 2 ** 20, total: 4 * 2 ** 20, seconds: 0.5 }), {
    title: "reading x", doneText: "1.00 MiB", totalText: "4.00 MiB", rateText: "2.00 MiB/s", leftText: "2 s left",
  });
  assert.deepEqual(payloadOf("files", "scanning", { done: 3, total: 1, seconds: 1 }).doneText, "3 files");
  assert.equal(payloadOf("bytes", "x", { done: 0, total: 10, seconds: 0 }).leftText, "");
});

test("loading a large model draws reading and copying with rate and time left, and takes them off again", { skip: withoutScript, timeout: 60_000 }, () => {
  const file = join(folder, "large.neff");
  const data = new Uint8Array(40 * 2 ** 20);
  for (let index = 0; index < data.length; index += 512) data[index] = index >> 9;
  writeFileSync(file, buildNeff({ target: "sunda", compression: "stored", subgraphs: [{ variables: [
    { name: "SB", type: "state-buffer" }, { name: "in", type: "input", size: 64 }, { name: "out", type: "output", size: 64 },
    { name: "weights", type: "file", data },
  ] }] }));
  const { out } = shell(`script -qec "$P load ${file} >${join(folder, "load.txt")}" /dev/null`, { TERM: "xterm" });
  assert.match(out, /reading large\.neff [=-]+ \d+ %/);
  assert.match(out, /loading large\.neff .*B\/s/);
  assert.ok(out.lastIndexOf("\u001b[?25h") > out.lastIndexOf("\u001b[?25l"), "the cursor is back");
  assert.match(readFileSync(join(folder, "load.txt"), "utf8"), /unloaded; all .* freed/);
  assert.equal(shell(`$P load ${file}`).err, "");
});

test("Ctrl-C while progress is drawn ends the command and leaves the terminal clean", { skip: skipWithoutTmux, timeout: 60_000 }, async () => {
  await inTerminal("env PS1=ready: TERM=xterm bash --norc", async ({ type, press, until, state }) => {
    type(`${program} copy --fake trn1 --size 64KiB --time 3000`);
    press("Enter");
    await until("progress", (screen) => /measuring \d+ lines/.test(screen));
    assert.equal(state(), "alternate 0 cursor 0");
    press("C-c");
    const after = await until("the prompt", (screen) => /^(\^C)?ready:$/m.test(screen.trimEnd()));
    assert.doesNotMatch(after, /measuring/);
    assert.equal(state(), "alternate 0 cursor 1");
    type("echo $?");
    press("Enter");
    await until("the exit code", (screen) => /^130$/m.test(screen));
  });
});

test("progress is drawn on a terminal's standard error only, and never with --json", { skip: skipWithoutTmux, timeout: 60_000 }, async () => {
  const copy = `${program} copy --fake trn1 --size 64KiB --mode mmap --time 1`;
  assert.equal(shell(copy).err, "");
  await inTerminal("env PS1=ready: TERM=xterm bash --norc", async ({ type, press, until }) => {
    type(`${copy} --json 2>${join(folder, "json")} >/dev/null; ${copy} 2>${join(folder, "file")} >/dev/null; wc -c <${join(folder, "json")} <${join(folder, "file")}; echo done $((1+1))`);
    press("Enter");
    await until("the end", (screen) => /^done 2$/m.test(screen));
  });
  assert.deepEqual([readFileSync(join(folder, "json"), "utf8"), readFileSync(join(folder, "file"), "utf8")], ["", ""]);
});
