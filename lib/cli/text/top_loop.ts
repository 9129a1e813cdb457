/** The live view: samples, draws, obeys keys, and leaves the terminal as it was. */
import { type TopSample, topSorts } from "../../host/top.ts";
import { allowsColour, allowsUnicode } from "../../map/bars.ts";
import { type ScreenSize, type ScreenState, topFrame } from "./top_screen.ts";

/** The terminal a live view runs in. */
export interface TopTerminal {
  /** Its size and abilities now. */
  size(): ScreenSize;
  /** Writes control sequences and text. */
  write(text: string): void;
  /** Key by key input without echo, or back to lines. */
  setRaw(on: boolean): void;
  /** Told what is typed, and `"resize"`, `"interrupt"` when that happens. Returns how to stop listening. */
  listen(onInput: (text: string) => void, onSignal: (signal: "resize" | "interrupt") => void): () => void;
}

/** Time, so that tests need none. */
export interface TopClock {
  /** Calls back once after some milliseconds. Returns how to cancel it. */
  after(milliseconds: number, action: () => void): () => void;
}

/** Options of {@linkcode TopLoop}. */
export interface TopLoopOptions {
  /** Takes a sample. What it throws ends the view. */
  readonly sample: () => TopSample | Promise<TopSample>;
  /** Where to draw. */
  readonly terminal: TopTerminal;
  /** Default the system's. */
  readonly clock?: TopClock | undefined;
  /** Seconds between samples, default 1. */
  readonly interval?: number | undefined;
  /** What to show at first. */
  readonly state?: ScreenState | undefined;
}

const ENTER = "\u001b[?1049h\u001b[?25l\u001b[?7l";
const LEAVE = "\u001b[0m\u001b[?7h\u001b[?25h\u001b[?1049l";
const SYSTEM_CLOCK: TopClock = {
  after(milliseconds, action) {
    const timer = setTimeout(action, milliseconds);
    return () => clearTimeout(timer);
  },
};

/**
 * A live view. `run` ends on `q`, Ctrl-C, an interrupt or an error of the
 * sampler; however it ends, the terminal is back on its first screen with cursor
 * and echo, and nothing listens or waits any more.
 */
export class TopLoop {
  readonly #options: TopLoopOptions;
  readonly #clock: TopClock;
  #state: ScreenState;
  #interval: number;
  #now: TopSample | null = null;
  #before: TopSample | null = null;
  #rowCount = 0;
  #wake: (() => void) | undefined;
  #isDone = false;
  #restore: (() => void) | undefined;

  constructor(options: TopLoopOptions) {
    this.#options = options;
    this.#clock = options.clock ?? SYSTEM_CLOCK;
    this.#interval = options.interval ?? 1;
    this.#state = options.state ?? {};
  }

  /** Runs until the user or an error ends it. @throws what the sampler throws, after the terminal is restored */
  async run(): Promise<void> {
    this.#enter();
    try {
      while (!this.#isDone) {
        if (this.#state.paused !== true || this.#now === null) {
          const sample = await this.#options.sample();
          [this.#before, this.#now] = [this.#now, sample];
        }
        this.#draw();
        if (!this.#isDone) await this.#pause();
      }
    } finally {
      this.close();
    }
  }

  /** Ends the view and restores the terminal; a second call does nothing. */
  close(): void {
    this.#isDone = true;
    this.#wake?.();
    this.#restore?.();
    this.#restore = undefined;
  }

  /** Same as `close()`. */
  [Symbol.dispose](): void {
    this.close();
  }

  #enter(): void {
    const { terminal } = this.#options;
    const stop = terminal.listen((text) => this.#type(text), (signal) => (signal === "interrupt" ? this.close() : this.#draw()));
    this.#restore = () => {
      stop();
      terminal.setRaw(false);
      terminal.write(LEAVE);
    };
    terminal.setRaw(true);
    terminal.write(ENTER);
  }

  #pause(): Promise<void> {
    return new Promise((done) => {
      const cancel = this.#clock.after(this.#interval * 1000, () => this.#wake?.());
      this.#wake = () => {
        this.#wake = undefined;
        cancel();
        done();
      };
    });
  }

  #draw(): void {
    if (this.#now === null || this.#isDone) return;
    const size = this.#options.terminal.size();
    const state = { ...this.#state, interval: this.#interval };
    const { lines, rowCount } = topFrame(this.#now, this.#before, state, size);
    this.#rowCount = rowCount;
    // Line by line over the old frame, then the rest cleared: no flicker.
    this.#options.terminal.write(`\u001b[H${lines.map((line) => `${line}\u001b[K`).join("\r\n")}\u001b[J`);
  }

  /** One chunk of input: a key, a key's sequence, or pasted text. */
  #type(text: string): void {
    for (const key of text.match(/\p{Cc}\[[0-9;]*[A-Za-z~]|[\s\S]/gu) ?? []) {
      if (this.#isDone) return;
      if (typeof this.#state.typing === "string") this.#typeFilter(key);
      else this.#press(key);
    }
    this.#draw();
  }

  #typeFilter(key: string): void {
    const typing = this.#state.typing!;
    if (key === "\u0003") return this.close();
    if (key === "\r" || key === "\n") this.#set({ typing: null });
    else if (key === "\u001b") this.#set({ typing: null, filter: "" });
    else {
      const next = key === "\u007f" || key === "\b" ? [...typing].slice(0, -1).join("") : key >= " " && !key.startsWith("\u001b") ? typing + key : typing;
      this.#set({ typing: next, filter: next, scroll: 0 });
    }
  }

  #press(key: string): void {
    const state = this.#state;
    const page = Math.max(1, this.#options.terminal.size().rows - 4);
    const scroll = (by: number) => this.#set({ scroll: Math.max(0, Math.min(this.#rowCount - 1, (state.scroll ?? 0) + by)) });
    const actions: Readonly<Record<string, () => void>> = {
      "q": () => this.close(),
      "\u0003": () => this.close(),
      "s": () => this.#set({ sort: topSorts[(topSorts.indexOf(state.sort ?? "number") + 1) % topSorts.length] }),
      "r": () => this.#set({ reverse: state.reverse !== true }),
      "/": () => this.#set({ typing: "", filter: "", scroll: 0 }),
      "c": () => this.#set({ details: state.details === false }),
      "z": () => this.#set({ zeros: state.zeros === true ? false : state.zeros === false ? undefined : true }),
      "p": () => {
        this.#set({ paused: state.paused !== true });
        this.#wake?.();
      },
      "+": () => void (this.#interval = Math.min(60, this.#interval * 2)),
      "-": () => void (this.#interval = Math.max(0.25, this.#interval / 2)),
      "\u001b[A": () => scroll(-1),
      "\u001b[B": () => scroll(1),
      "\u001b[5~": () => scroll(-page),
      "\u001b[6~": () => scroll(page),
      " ": () => this.#wake?.(),
      "\u001b": () => this.#set({ filter: "", scroll: 0 }),
    };
    actions[key]?.();
  }

  #set(change: ScreenState): void {
    this.#state = { ...this.#state, ...change };
  }
}

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
