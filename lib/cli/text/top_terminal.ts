/** The process's terminal for the live view. */
import { allowsColour, allowsUnicode } from "../../map/bars.ts";
import type { TopTerminal } from "./top_loop.ts";

/** The part of a process that is used. */
export interface TerminalProcess {
  readonly stdin: { readonly isTTY?: boolean; setRawMode?(on: boolean): unknown; setEncoding(encoding: "utf8"): unknown; on(event: "data", listener: (text: string) => void): unknown; off(event: "data", listener: (text: string) => void): unknown; resume(): unknown; pause(): unknown };
  readonly stdout: { readonly isTTY?: boolean; readonly columns?: number; readonly rows?: number; write(text: string): unknown; on(event: "resize", listener: () => void): unknown; off(event: "resize", listener: () => void): unknown };
  readonly env: Readonly<Record<string, string | undefined>>;
  on(event: string, listener: () => void): unknown;
  off(event: string, listener: () => void): unknown;
}

/** What ends the view from outside; `exit` also comes when something else ends the process. */
const ENDS = ["SIGINT", "SIGTERM", "SIGHUP", "exit"] as const;

/** The terminal of a process, default this one. */
export function processTopTerminal(owner: TerminalProcess = process as unknown as TerminalProcess): TopTerminal {
  const { stdin, stdout, env } = owner;
  return {
    size: () => ({
      columns: stdout.columns ?? 80, rows: stdout.rows ?? 24, colour: allowsColour(env, stdout.isTTY === true), unicode: allowsUnicode(env),
    }),
    write: (text) => void stdout.write(text),
    setRaw(on) {
      if (stdin.isTTY === true) stdin.setRawMode?.(on);
    },
    listen(onInput, onSignal) {
      const onResize = () => onSignal("resize");
      const onInterrupt = () => onSignal("interrupt");
      stdin.setEncoding("utf8");
      stdin.on("data", onInput);
      stdin.resume();
      stdout.on("resize", onResize);
      for (const signal of ENDS) owner.on(signal, onInterrupt);
      return () => {
        stdin.off("data", onInput);
        stdin.pause();
        stdout.off("resize", onResize);
        for (const signal of ENDS) owner.off(signal, onInterrupt);
      };
    },
  };
}
