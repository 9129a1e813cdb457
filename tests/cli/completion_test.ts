import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { describeProgram } from "../../lib/cli/describe.ts";
import { SHELLS } from "../../lib/cli/commands.ts";
import { command } from "../support/cli.ts";
import { inTerminal, skipWithoutTmux } from "../support/tmux.ts";

const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-completion-"));
after(() => rmSync(folder, { recursive: true }));
const program = describeProgram();
const without = (shell: string): string | false => spawnSync(shell, ["--version"]).status === 0 ? false : `${shell} is not installed`;

/** A file with the script for a shell. */
async function script(shell: (typeof SHELLS)[number]): Promise<string> {
  const { code, out } = await command("completion", shell);
  assert.equal(code, 0);
  const file = join(folder, `completion.${shell}`);
  writeFileSync(file, out);
  return file;
}

/** What bash offers for many command lines, each given as words. */
async function offersOfBash(lines: readonly (readonly string[])[]): Promise<string[][]> {
  const calls = lines.map((words) => `COMP_WORDS=(${words.map((word) => `'${word}'`).join(" ")}); COMP_CWORD=${words.length - 1}; _neuron_dmem; printf '%s\\n' "\${COMPREPLY[*]}"`);
  const { status, stdout, stderr } = spawnSync("bash", ["--norc", "-c", [`source '${await script("bash")}'`, ...calls].join("\n")], { encoding: "utf8", maxBuffer: 2 ** 26 });
  assert.equal(stderr, "");
  assert.equal(status, 0);
  return stdout.split("\n").slice(0, lines.length).map((line) => line.split(" ").filter((word) => word !== ""));
}

test("bash completes every command, every option and every choice", { skip: without("bash") }, async () => {
  const cases: { readonly words: readonly string[]; readonly expected: readonly string[] }[] = [
    { words: ["neuron-dmem", ""], expected: [...program.commands.map(({ name }) => name), "--version", "--help"] },
    { words: ["neuron-dmem", "--he"], expected: ["--help"] },
    ...program.commands.flatMap(({ name, options }) => [
      { words: ["neuron-dmem", name.slice(0, -1)], expected: program.commands.map((one) => one.name).filter((one) => one.startsWith(name.slice(0, -1))) },
      { words: ["neuron-dmem", name, "--"], expected: options.map(({ long }) => long) },
      ...options.filter(({ choices }) => choices.length > 0).flatMap(({ long, choices }) => [
        { words: ["neuron-dmem", name, long, ""], expected: choices },
        { words: ["neuron-dmem", name, long, "=", choices[0]!.slice(0, 2)], expected: choices.filter((one) => one.startsWith(choices[0]!.slice(0, 2))) },
      ]),
    ]),
  ];
  const offers = await offersOfBash(cases.map(({ words }) => words));
  cases.forEach(({ words, expected }, index) => assert.deepEqual(offers[index], expected, words.join(" ")));
  console.log(`# completion: ${cases.length} command lines completed by bash`);
});

test("bash leaves files to itself, offers folders where folders are meant, and instance types", { skip: without("bash") }, async () => {
  const [file, inside, dir, instance, number, past, unknown] = await offersOfBash([
    ["neuron-dmem", "load", "samp"], ["neuron-dmem", "fake", "--", "bas"], ["neuron-dmem", "mem", "--sysfs", "/pro"], ["neuron-dmem", "fit", "--instance", "trn1n"],
    ["neuron-dmem", "load", "--core", ""], ["neuron-dmem", "resolve", "m.neff", "--", "--s"], ["neuron-dmem", "nonsense", "--"],
  ]);
  assert.deepEqual([file, dir, instance, number, past, unknown], [[], ["/proc"], ["trn1n.32xlarge"], [], [], []]);
  assert.ok(inside?.includes("bash"));
});

test("fish completes every command, every option and every choice", { skip: without("fish") }, async () => {
  const file = await script("fish");
  const lines = program.commands.flatMap(({ name, options }) => [`neuron-dmem ${name} --`, ...options.filter(({ choices }) => choices.length > 0).map(({ long }) => `neuron-dmem ${name} ${long} `)]);
  const calls = ["neuron-dmem ", ...lines].map((line) => `complete -C '${line}'; echo ---`);
  const { stdout, stderr } = spawnSync("fish", ["--no-config", "-c", [`source '${file}'`, ...calls].join("\n")], { encoding: "utf8", cwd: folder });
  assert.equal(stderr, "");
  const offers = stdout.split("---\n").map((block) => block.split("\n").map((line) => line.split("\t")[0]!).filter((word) => word !== ""));
  assert.deepEqual(offers[0]?.toSorted(), program.commands.map(({ name }) => name).toSorted());
  let index = 1;
  for (const { name, options } of program.commands) {
    assert.deepEqual(offers[index++]?.filter((word) => word.startsWith("--")).toSorted(), options.map(({ long }) => long).toSorted(), name);
    for (const { long, choices } of options.filter((option) => option.choices.length > 0)) assert.deepEqual(offers[index++]?.toSorted(), choices.toSorted(), `${name} ${long}`);
  }
});

test("zsh completes a command, an option, a choice and a file in a real terminal", { skip: without("zsh") || skipWithoutTmux, timeout: 60_000 }, async () => {
  const file = await script("zsh");
  assert.equal(spawnSync("zsh", ["-n", file]).status, 0);
  await inTerminal("zsh -f", async ({ type, press, until }) => {
    type(`autoload -Uz compinit; compinit -u -D; source ${file}; PS1=ready:; clear`);
    press("Enter");
    await until("the prompt", (screen) => /^ready:$/m.test(screen.trimEnd()));
    type("neuron-dmem loa");
    press("Tab");
    await until("the command", (screen) => /neuron-dmem load$/m.test(screen));
    type("--fak");
    press("Tab");
    await until("the option", (screen) => screen.includes("load --fake="));
    type("in");
    press("Tab");
    await until("the choice", (screen) => /--fake=inf2$/m.test(screen));
    type("samples/ml");
    press("Tab");
    await until("the file", (screen) => screen.includes("--fake=inf2 samples/mlp.neff"));
  });
});

test("completion of another shell is a wrong usage", async () => {
  assert.equal((await command("completion", "csh")).code, 2);
  assert.equal((await command("completion")).code, 2);
});
