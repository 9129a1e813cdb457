import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../../", import.meta.url));

/** Why tests in a real terminal are skipped, or `false`: the value of node:test's `skip`. */
export const skipWithoutTmux: string | false = spawnSync("tmux", ["-V"]).status === 0 ? false : "tmux is not installed";

/** A terminal of its own with a program in it. */
export interface Pane {
  /** Types text as it is. */
  type(text: string): void;
  /** Presses keys by their names (`Enter`, `Tab`, `C-c`). */
  press(...keys: readonly string[]): void;
  /** What the screen shows once it satisfies a condition. */
  until(what: string, condition: (screen: string) => boolean): Promise<string>;
  /** `alternate 0 cursor 1` in an ordinary state. */
  state(): string;
}

/** Runs `action` with a program in a terminal of 100 columns and 30 rows, and ends both. */
export async function inTerminal(program: string, action: (pane: Pane) => Promise<void>): Promise<void> {
  const socket = `neuron-dmem-${process.pid}-${Math.random().toString(36).slice(2)}`;
  const tmux = (...args: readonly string[]): string => {
    const { status, stdout, stderr } = spawnSync("tmux", ["-L", socket, ...args], { cwd: root, encoding: "utf8" });
    assert.equal(status, 0, `tmux ${args.join(" ")}: ${stderr}`);
    return stdout;
  };
  const screen = () => tmux("capture-pane", "-p");
  tmux("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", program);
  try {
    await action({
      type: (text) => void tmux("send-keys", "-l", "--", text),
      press: (...keys) => void tmux("send-keys", ...keys),
      state: () => tmux("display-message", "-p", "alternate #{alternate_on} cursor #{cursor_flag}").trim(),
      until: async (what, condition) => {
        for (let attempt = 0; attempt < 400; attempt++) {
          const shown = screen();
          if (condition(shown)) return shown;
          await new Promise((done) => setTimeout(done, 50));
        }
        assert.fail(`${what} did not come; the screen shows:\n${screen()}`);
      },
    });
  } finally {
    spawnSync("tmux", ["-L", socket, "kill-server"]);
  }
}
