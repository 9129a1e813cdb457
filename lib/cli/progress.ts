import type { SingleBar } from "cli-progress";
import { humanSize } from "../text/size.ts";
import type { Terminal } from "./terminal.ts";

/** What a command tells about long work; silent where nobody looks. */
export interface Progress extends AsyncDisposable {
  /** How much is done; `total` when it is known or has changed. */
  update(done: number, total?: number): void;
  /** Begins another part of the work. */
  phase(title: string): void;
  /** Takes the progress off the screen. A second call does nothing. */
  stop(): void;
}

/** How progress is shown. */
export interface ProgressOptions {
  /** What is being done, for example `reading`. */
  readonly title: string;
  /** `bytes` are shown with rate and time left. */
  readonly unit: "bytes" | "files" | "lines" | "scenarios";
  /** Show nothing (with `--json`). */
  readonly quiet: boolean;
}

const SILENT: Progress = { update: () => {}, phase: () => {}, stop: () => {}, [Symbol.asyncDispose]: async () => {} };

/** A count that grows, without a known end. */
export async function startCounter(terminal: Terminal, options: ProgressOptions): Promise<Progress> {
  return await start(terminal, options, "{title} {doneText}");
}

/** A bar with rate and time left. */
export async function startBar(terminal: Terminal, options: ProgressOptions): Promise<Progress> {
  return await start(terminal, options, "{title} {bar} {percentage} %  {doneText} of {totalText}  {rateText}  {leftText}");
}

async function start(terminal: Terminal, options: ProgressOptions, format: string): Promise<Progress> {
  if (!terminal.canDraw || options.quiet) return SILENT;
  const { SingleBar } = (await import("cli-progress")).default;
  // Signals are ours: the bar's own handler would swallow them.
  const bar = new SingleBar({ format, stream: process.stderr, barsize: 24, hideCursor: true, clearOnComplete: true, gracefulExit: false, fps: 8 });
  return drawnProgress(bar, options);
}

function drawnProgress(bar: SingleBar, { title, unit }: ProgressOptions): Progress {
  let begun = Date.now();
  let payload = payloadOf(unit, title, { done: 0, total: 0, seconds: 0 });
  let running = true;
  const stop = (): void => {
    if (!running) return;
    running = false;
    for (const signal of ENDING) process.removeListener(signal, end);
    bar.stop();
  };
  const end = (signal: NodeJS.Signals): void => {
    stop();
    // Nobody listens any more, so the signal does to the process what it would have done at first.
    process.kill(process.pid, signal);
  };
  for (const signal of ENDING) process.on(signal, end);
  bar.start(1, 0, payload);
  return {
    update: (done, total) => {
      if (total !== undefined && total !== bar.getTotal()) bar.setTotal(Math.max(1, total));
      payload = payloadOf(unit, title, { done, total: bar.getTotal(), seconds: (Date.now() - begun) / 1000 });
      bar.update(done, payload);
    },
    phase: (next) => {
      title = next;
      begun = Date.now();
      payload = payloadOf(unit, title, { done: 0, total: bar.getTotal(), seconds: 0 });
      bar.update(0, payload);
      // At once: what comes may keep the timer from drawing for a while.
      bar.render();
    },
    stop,
    [Symbol.asyncDispose]: async () => stop(),
  };
}

const ENDING = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/** The texts of a bar. */
export function payloadOf(unit: ProgressOptions["unit"], title: string, { done, total, seconds }: { readonly done: number; readonly total: number; readonly seconds: number }): Readonly<Record<string, string>> {
  const text = (value: number) => unit === "bytes" ? humanSize(value) : `${value} ${unit}`;
  const rate = seconds > 0 ? done / seconds : 0;
  const left = rate > 0 ? Math.ceil((total - done) / rate) : null;
  return { title, doneText: text(done), totalText: text(total), rateText: unit === "bytes" ? `${humanSize(Math.round(rate))}/s` : "", leftText: left === null ? "" : `${left} s left` };
}
