import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const skip = spawnSync("tmux", ["-V"]).status === 0 ? false : "tmux is not installed";
const root = fileURLToPath(new URL("../../", import.meta.url));
const command = `${process.execPath} ${"Deno" in globalThis ? "run -A --no-check " : ""}tests/cli/programs/top_live.ts`;

/** Runs a command in a shell in a tmux of its own, and ends it. */
async function inTmux(run: string, action: (tmux: (...args: string[]) => string) => Promise<void>): Promise<void> {
  const socket = `neuron-dmem-${process.pid}-${Math.random().toString(36).slice(2)}`;
  const tmux = (...args: string[]): string => {
    const { status, stdout, stderr } = spawnSync("tmux", ["-L", socket, ...args], { cwd: root, encoding: "utf8" });
    assert.equal(status, 0, `tmux ${args.join(" ")}: ${stderr}`);
    return stdout;
  };
  tmux("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", "env LANG=C.UTF-8 PS1=ready: sh");
  try {
    await until(tmux, "the prompt", (pane) => pane.startsWith("ready:"));
    tmux("send-keys", "-l", run);
    tmux("send-keys", "Enter");
    await action(tmux);
  } finally {
    spawnSync("tmux", ["-L", socket, "kill-server"]);
  }
}

/** What a pane shows once it satisfies a condition. */
async function until(tmux: (...args: string[]) => string, what: string, condition: (pane: string) => boolean): Promise<string> {
  for (let attempt = 0; attempt < 200; attempt++) {
    const pane = tmux("capture-pane", "-p");
    if (condition(pane)) return pane;
    await new Promise((done) => setTimeout(done, 50));
  }
  assert.fail(`${what} did not come; the screen shows:\n${tmux("capture-pane", "-p")}`);
}

const inUse = (pane: string): string | undefined => /core 0 +(\S+ \S+)/.exec(pane)?.[1];
const state = (tmux: (...args: string[]) => string): string => tmux("display-message", "-p", "alternate #{alternate_on} cursor #{cursor_flag}").trim();

test("in a real terminal values change, keys work, and Ctrl-C gives the terminal back", { skip, timeout: 30_000 }, async () => {
  await inTmux(command, async (tmux) => {
    const first = inUse(await until(tmux, "the first frame", (pane) => inUse(pane) !== undefined));
    await until(tmux, "a changed value", (pane) => inUse(pane) !== undefined && inUse(pane) !== first);
    assert.equal(state(tmux), "alternate 1 cursor 0");
    tmux("send-keys", "-l", "/tensors");
    const filtered = await until(tmux, "the filter", (pane) => pane.includes("filter: tensors"));
    assert.ok(!filtered.includes("core 1"));
    tmux("send-keys", "Enter");
    tmux("send-keys", "C-c");
    const after = await until(tmux, "the end", (pane) => /^ended well\nready:$/m.test(pane));
    assert.equal(state(tmux), "alternate 0 cursor 1");
    assert.ok(!after.includes("HBM"), "nothing of the view is left");
    tmux("send-keys", "-l", "echo typed $((6 * 7))");
    tmux("send-keys", "Enter");
    await until(tmux, "the shell", (pane) => /^ready:echo typed \$\(\(6 \* 7\)\)\ntyped 42$/m.test(pane));
  });
});

test("in a real terminal an error ends the view, gives the terminal back, and is told", { skip, timeout: 30_000 }, async () => {
  await inTmux(`${command} fail`, async (tmux) => {
    const after = await until(tmux, "the error", (pane) => pane.includes("ended with: the device went away"));
    assert.equal(state(tmux), "alternate 0 cursor 1");
    assert.ok(!after.includes("HBM"));
  });
});
