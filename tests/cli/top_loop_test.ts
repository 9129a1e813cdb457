import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import { stripVTControlCharacters } from "node:util";
import { test } from "node:test";
import fc from "fast-check";
import { createFake } from "../../lib/fake/machine.ts";
import { readSysfsMemory } from "../../lib/host/sysfs_memory.ts";
import type { TopSample } from "../../lib/host/top.ts";
import { processTopTerminal, type TerminalProcess, type TopClock, TopLoop, type TopTerminal } from "../../lib/cli/text/top_loop.ts";

/** A terminal that keeps the state the control sequences leave it in, and the frame last drawn. */
class FakeTerminal implements TopTerminal {
  isRaw = false;
  isAlternate = false;
  hasCursor = true;
  wraps = true;
  listeners = 0;
  frame = "";
  frames = 0;
  type: (text: string) => void = () => {};
  signal: (signal: "resize" | "interrupt") => void = () => {};
  columns = 100;

  size() {
    return { columns: this.columns, rows: 12, colour: true, unicode: true };
  }

  write(text: string): void {
    for (const [, mode, on] of text.matchAll(/\p{Cc}\[\?(\d+)([hl])/gu)) {
      if (mode === "1049") this.isAlternate = on === "h";
      if (mode === "25") this.hasCursor = on === "h";
      if (mode === "7") this.wraps = on === "h";
    }
    if (text.startsWith("\u001b[H")) {
      this.frame = stripVTControlCharacters(text);
      this.frames++;
    }
  }

  setRaw(on: boolean): void {
    this.isRaw = on;
  }

  listen(onInput: (text: string) => void, onSignal: (signal: "resize" | "interrupt") => void): () => void {
    this.listeners++;
    [this.type, this.signal] = [onInput, onSignal];
    return () => void this.listeners--;
  }

  /** What is left behind; empty when the terminal is as it was. */
  get dirt(): string {
    const left = { raw: this.isRaw, alternate: this.isAlternate, "no cursor": !this.hasCursor, "no wrap": !this.wraps, listening: this.listeners > 0 };
    return Object.entries(left).filter(([, is]) => is).map(([what]) => what).join(", ");
  }
}

/** A clock that stands still until the test moves it. */
class FakeClock implements TopClock {
  readonly waiting = new Set<{ readonly milliseconds: number; readonly action: () => void }>();

  after(milliseconds: number, action: () => void): () => void {
    const one = { milliseconds, action };
    this.waiting.add(one);
    return () => void this.waiting.delete(one);
  }

  async tick(): Promise<void> {
    for (const one of Array.from(this.waiting)) {
      this.waiting.delete(one);
      one.action();
    }
    await settle();
  }
}

/** Lets everything that waits for promises go on. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await Promise.resolve();
}

const kernel = createFake({ product: "trn1" }).process();
let time = 0;
const sample = (): TopSample => ({ time: time++, memory: readSysfsMemory(kernel), processes: [] });

function start(options: Partial<ConstructorParameters<typeof TopLoop>[0]> = {}) {
  const terminal = new FakeTerminal();
  const clock = new FakeClock();
  const loop = new TopLoop({ sample, terminal, clock, ...options });
  return { terminal, clock, loop, running: loop.run() };
}

for (const [how, end] of [
  ["q", (terminal: FakeTerminal) => terminal.type("q")], ["Ctrl-C", (terminal: FakeTerminal) => terminal.type("\u0003")],
  ["Ctrl-C while typing a filter", (terminal: FakeTerminal) => terminal.type("/co\u0003")], ["an interrupt", (terminal: FakeTerminal) => terminal.signal("interrupt")],
] as const) {
  test(`the view ends on ${how} and leaves the terminal as it was`, async () => {
    const { terminal, clock, running } = start();
    await settle();
    assert.equal(terminal.dirt, "raw, alternate, no cursor, no wrap, listening");
    end(terminal);
    await running;
    assert.deepEqual([terminal.dirt, clock.waiting.size], ["", 0]);
  });
}

test("an error of the sampler comes out after the terminal is restored, at once or later", async () => {
  for (const good of [0, 3]) {
    let taken = 0;
    const { terminal, clock, running } = start({
      sample() {
        if (taken++ === good) throw new Error("the device went away");
        return sample();
      },
    });
    const failed = assert.rejects(running, /the device went away/);
    for (let tick = 0; tick < good; tick++) {
      await settle();
      await clock.tick();
    }
    await failed;
    assert.deepEqual([terminal.dirt, clock.waiting.size, terminal.frames], ["", 0, good]);
  }
});

test("closing twice does nothing more", async () => {
  const { terminal, loop, running } = start();
  await settle();
  loop.close();
  loop[Symbol.dispose]();
  await running;
  assert.equal(terminal.dirt, "");
});

test("every interval a new frame is drawn, and a resize draws at once", async () => {
  const { terminal, clock, running } = start({ interval: 2 });
  await settle();
  assert.deepEqual([terminal.frames, [...clock.waiting][0]!.milliseconds], [1, 2000]);
  await clock.tick();
  await clock.tick();
  assert.equal(terminal.frames, 3);
  terminal.columns = 60;
  terminal.signal("resize");
  assert.equal(terminal.frames, 4);
  assert.ok(terminal.frame.split("\r\n").every((line) => line.length <= 60));
  terminal.type("q");
  await running;
});

test("keys sort, reverse, filter, expand, scroll, pause and change the interval", async () => {
  const { terminal, clock, running } = start();
  await settle();
  const head = () => terminal.frame.split("\r\n")[0]!;
  terminal.type("s");
  assert.match(head(), /sort used/);
  terminal.type("ssssr");
  assert.match(head(), /sort number reversed/);
  terminal.type("r/core 1");
  assert.match(terminal.frame, /filter: core 1▏/);
  assert.ok(terminal.frame.includes("core 1") && !terminal.frame.includes("core 0"));
  terminal.type("\u007f0\r");
  assert.match(head(), /filter "core 0"/);
  assert.ok(terminal.frame.includes("core 0"));
  terminal.type("\u001b");
  assert.ok(!head().includes("filter"));
  terminal.type("z");
  assert.ok(terminal.frame.includes("uncategorized") || terminal.frame.includes("model_code"), "categories with nothing in use");
  const before = terminal.frame;
  terminal.type("\u001b[B\u001b[B");
  assert.notEqual(terminal.frame, before);
  terminal.type("\u001b[A\u001b[A");
  assert.equal(terminal.frame, before);
  terminal.type("+");
  await clock.tick();
  assert.deepEqual([...clock.waiting].map(({ milliseconds }) => milliseconds), [2000]);
  terminal.type("p");
  assert.match(head(), /PAUSED/);
  const frozen = time;
  await settle();
  await clock.tick();
  assert.equal(time, frozen, "no samples while paused");
  terminal.type("q");
  await running;
});

test("whatever is typed, the view goes on or ends clean", async () => {
  await fc.assert(fc.asyncProperty(fc.array(fc.oneof(fc.string(), fc.constantFrom("q", "s", "r", "/", "z", "c", "p", "+", "-", "\u001b", "\u001b[A", "\u001b[6~", "\u0003", "\r", "\u007f")), { maxLength: 12 }), async (typed) => {
    const { terminal, clock, loop, running } = start();
    await settle();
    for (const text of typed) {
      terminal.type(text);
      await clock.tick();
    }
    loop.close();
    await running;
    assert.deepEqual([terminal.dirt, clock.waiting.size], ["", 0]);
  }), { numRuns: 40 });
});

test("the process's terminal listens and stops listening, to signals and to the end of the process too", () => {
  const stream = (parts: object) => Object.assign(new EventEmitter(), { isTTY: true, columns: 90, rows: 30, setEncoding() {}, resume() {}, pause() {}, write() {} }, parts);
  const raw: boolean[] = [];
  const owner = Object.assign(new EventEmitter(), { stdin: stream({ setRawMode: (on: boolean) => raw.push(on) }), stdout: stream({}), env: { LANG: "C.UTF-8", NO_COLOR: "1" } });
  const terminal = processTopTerminal(owner as unknown as TerminalProcess);
  assert.deepEqual(terminal.size(), { columns: 90, rows: 30, colour: false, unicode: true });
  const heard: string[] = [];
  const stop = terminal.listen((text) => heard.push(text), (signal) => heard.push(signal));
  owner.stdin.emit("data", "x");
  owner.stdout.emit("resize");
  for (const event of ["SIGINT", "SIGTERM", "SIGHUP", "exit"]) owner.emit(event);
  terminal.setRaw(true);
  assert.deepEqual([heard, raw], [["x", "resize", "interrupt", "interrupt", "interrupt", "interrupt"], [true]]);
  stop();
  assert.deepEqual([owner, owner.stdin, owner.stdout].map((one) => one.eventNames()), [[], [], []]);
});
