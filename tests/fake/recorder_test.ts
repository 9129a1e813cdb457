import assert from "node:assert/strict";
import { test } from "node:test";
import { Errno } from "../../ffi/errno.ts";
import { NeuronError } from "../../ffi/error.ts";
import type { Mapping } from "../../ffi/kernel.ts";
import { MapFlag, Protection } from "../../ffi/native.ts";
import { parseFault } from "../../lib/fake/faults.ts";
import { createFake, type FakeOptions } from "../../lib/fake/machine.ts";
import { type LoggedCall, recordRequests, replayRequests } from "../../lib/fake/recorder.ts";
import { Client, pattern, READ_WRITE } from "./client.ts";

const OPTIONS: FakeOptions = { product: "trn2", devices: 2, retainFreed: true, allow: ["foreignFree"] };

/** Two processes, a child, copies both ways, a mapping, refusals, a wait: everything that is written down. */
function record(options: FakeOptions = OPTIONS): string[] {
  const lines: string[] = [];
  using machine = createFake(options);
  const stop = recordRequests(machine, options, (line) => lines.push(line));
  const [first, second] = [new Client(machine.process({ root: true })), new Client(machine.process())];
  const handles = [first.alloc(65536), first.alloc(2 ** 20, { host: true }), second.alloc(8192, { align: 65536 })];
  first.write(handles[0]!, 100, pattern(5000));
  first.read(handles[0]!, 100, 5000);
  second.free(handles[0]!);
  first.free(handles[0]!);
  first.write(handles[1]!, 0, pattern(2 ** 19));
  first.send("MEM_COPY_ASYNC64", { srcMemHandle: handles[1]!, dstMemHandle: handles[2]!, size: 4096, pwaitHandle: -1 });
  first.send("CRWL_WRITER_ENTER", { ncId: 0 });
  second.send("CRWL_WRITER_ENTER", { ncId: 0 });
  const pa = second.pa(handles[2]!);
  const mapping = second.process.mmap(second.fd, 8192, Protection.READ, MapFlag.SHARED, pa) as Mapping;
  second.send("DMABUF_FD", { va: mapping.address, size: 8192, fd: second.resultAt });
  mapping.close();
  second.send("DMABUF_FD", { va: mapping.address, size: 8192, fd: second.resultAt });
  second.process.mmap(second.fd, 4096, Protection.READ, MapFlag.SHARED, pa);
  const child = new Client(second.process.fork(), second.fd);
  child.pa(handles[2]!);
  child.fd = child.process.open("/dev/neuron1", READ_WRITE);
  child.alloc(4096);
  child.process.kill();
  first.process.close(first.process.dup(first.fd));
  first.send("DEVICE_INFO");
  stop();
  first.send("DEVICE_INFO");
  return lines;
}

test("a log of all requests replays on a fresh machine without the programs that made them", () => {
  const lines = record();
  assert.deepEqual(JSON.parse(lines[0]!), { format: "neuron-dmem request log 1", machine: OPTIONS });
  const calls = lines.slice(1).map((line) => JSON.parse(line) as LoggedCall);
  assert.deepEqual([...new Set(calls.map(({ op }) => op))].sort(), ["close", "dup", "exit", "fork", "ioctl", "mapped", "mmap", "open", "unmapped"]);
  assert.equal(calls.filter(({ name }) => name === "DEVICE_INFO").length, 1, "recording stopped");
  assert.deepEqual(calls.filter(({ name }) => name === "DMABUF_FD").map(({ ret }) => ret), [0, -Errno.EINVAL], "a mapping, and one that is gone");
  assert.deepEqual(replayRequests(lines, createFake), { calls: calls.length, difference: undefined });
  assert.deepEqual(replayRequests(record(), createFake), { calls: calls.length, difference: undefined }, "and is the same every time");
  console.log(`${calls.length} calls replayed`);
});

test("a log in which a result, or a byte the driver wrote, is another one differs at that call", () => {
  const lines = record();
  const at = (name: string) => lines.findIndex((line) => line.includes(`"name":"${name}"`));
  const alter = (index: number, change: (call: Record<string, unknown>) => void) => {
    const altered = [...lines];
    const call = JSON.parse(altered[index]!) as Record<string, unknown>;
    change(call);
    altered[index] = JSON.stringify(call);
    return replayRequests(altered, createFake);
  };
  const result = alter(at("MEM_FREE"), (call) => (call["ret"] = -5));
  assert.deepEqual(result.difference, { call: at("MEM_FREE") - 1, name: "MEM_FREE", what: "result 0, recorded -5" });
  const alloc = at("MEM_ALLOC_V2MT64");
  const written = alter(alloc, (call) => ((call["writes"] as [number, string, number][])[0]![1] = "CQAAAAAAAAA="));
  assert.deepEqual(written.difference, { call: alloc - 1, name: "MEM_ALLOC_V2MT64", what: "write 0 is another one" });
});

test("a replay on another driver version ends at the first call that it answers otherwise", () => {
  const result = replayRequests(record(), (options) => createFake({ ...options, driverVersion: "2.29" }));
  assert.equal(result.difference?.name, "MEM_FREE");
});

test("what a planned fault kept from the driver is not in the log", () => {
  const options: FakeOptions = { ...OPTIONS, faults: [parseFault("DEVICE_INFO:1:EIO")] };
  const lines = record(options);
  assert.ok(!lines.some((line) => line.includes("DEVICE_INFO")));
  assert.equal(replayRequests(lines, createFake).difference, undefined);
});

test("something else than a log is refused", () => {
  for (const lines of [[], ["{}"], ["not JSON"], ['{"format":"neuron-dmem request log 9"}']]) assert.throws(() => replayRequests(lines, createFake), NeuronError);
});
