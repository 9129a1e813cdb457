import assert from "node:assert/strict";
import { test } from "node:test";
import { Errno } from "../../ffi/errno.ts";
import { CoreInitState } from "../../lib/abi/driver_enums.ts";
import { requests } from "../../lib/abi/requests.ts";
import { type Clock, realClock, virtualClock, type Wait } from "../../lib/fake/options.ts";
import { createFake, type FakeMachine, type FakeOptions } from "../../lib/fake/machine.ts";
import { Client, openClient, pattern, READ_WRITE } from "./client.ts";

/** Two processes on one machine whose time the test moves. */
function twoClients(options: Partial<FakeOptions> = {}): { machine: FakeMachine; clock: Clock; first: Client; second: Client; [Symbol.dispose](): void } {
  const clock = virtualClock();
  const machine = createFake({ product: "trn2", clock, ...options });
  return { machine, clock, first: new Client(machine.process()), second: new Client(machine.process()), [Symbol.dispose]: () => machine.close() };
}

/** Issues a request that may have to wait, as a supervisor of several processes does. */
function start(client: Client, name: keyof typeof requests, fields: Readonly<Record<string, number>>): number | Wait {
  const { request, argument } = requests[name];
  client.memory.bytes.fill(0, 0, 64);
  for (const [field, value] of Object.entries(fields)) {
    client.memory.view.setUint32((argument!.offsets as unknown as Record<string, number>)[field]!, value, true);
  }
  return client.process.ioctlOrWait(client.fd, request, client.memory.address);
}

test("readers of one model share it, a writer waits three seconds for them and then is told EBUSY", () => {
  using bench = twoClients();
  const { clock, first } = bench;
  assert.equal(first.send("CRWL_WRITER_ENTER", { ncId: 1 }), 0);
  assert.equal(first.send("CRWL_WRITER_DOWNGRADE", { ncId: 1 }), 0);
  assert.equal(first.send("CRWL_READER_ENTER", { ncId: 1 }), 0);
  const before = clock.now();
  assert.equal(bench.second.send("CRWL_WRITER_ENTER", { ncId: 1 }), -Errno.EBUSY);
  assert.equal(clock.now() - before, 3000);
  assert.equal(first.send("CRWL_READER_EXIT", { ncId: 1 }), 0);
  assert.equal(first.send("CRWL_READER_EXIT", { ncId: 1 }), 0);
  assert.equal(first.send("CRWL_READER_EXIT", { ncId: 1 }), -Errno.EINVAL);
  assert.equal(bench.second.send("CRWL_WRITER_ENTER", { ncId: 1 }), 0);
});

test("a reader waits 750 ms for a writer; when the writer steps down in time, it is in", () => {
  using bench = twoClients();
  const { clock, first } = bench;
  assert.equal(first.send("CRWL_WRITER_ENTER", { ncId: 0 }), 0);
  const before = clock.now();
  assert.equal(first.send("CRWL_READER_ENTER", { ncId: 0 }), -Errno.EBUSY);
  assert.equal(clock.now() - before, 750);
  const wait = start(first, "CRWL_READER_ENTER", { ncId: 0 });
  assert.ok(typeof wait === "object");
  assert.equal(wait.poll(), undefined);
  assert.equal(first.send("CRWL_WRITER_DOWNGRADE", { ncId: 0 }), 0);
  assert.equal(wait.poll(), 0);
});

test("the end of the process that holds a lock lets the next one in", () => {
  using bench = twoClients();
  assert.equal(bench.first.send("CRWL_WRITER_ENTER", { ncId: 3 }), 0);
  const wait = start(bench.second, "CRWL_WRITER_ENTER", { ncId: 3 });
  assert.ok(typeof wait === "object");
  assert.equal(wait.poll(), undefined);
  bench.first.process.kill();
  assert.equal(wait.poll(), 0);
});

test("of two processes that start a core the second waits until the first is done, or five seconds", () => {
  using bench = twoClients();
  const { clock, first, second } = bench;
  const state = () => second.field("CINIT_SET_STATE", "newState");
  assert.equal(first.send("CINIT_SET_STATE", { ncId: 2, state: CoreInitState.STARTED }), 0);
  const wait = start(second, "CINIT_SET_STATE", { ncId: 2, state: CoreInitState.STARTED });
  assert.ok(typeof wait === "object");
  assert.equal(wait.poll(), undefined);
  assert.equal(wait.deadline - clock.now(), 5000);
  assert.equal(first.send("CINIT_SET_STATE", { ncId: 2, state: CoreInitState.COMPLETED }), 0);
  assert.equal(wait.poll(), 0);
  assert.equal(state(), CoreInitState.COMPLETED);
  assert.equal(first.send("CINIT_SET_STATE", { ncId: 4, state: CoreInitState.STARTED }), 0);
  const before = clock.now();
  assert.equal(second.send("CINIT_SET_STATE", { ncId: 4, state: CoreInitState.STARTED }), 0);
  assert.equal(state(), CoreInitState.STARTED, "whoever waited in vain may start it again");
  assert.equal(clock.now() - before, 5000);
});

test("a reset takes its time: the process that asked waits for it, and another cannot have two", () => {
  using bench = twoClients();
  const { clock, first } = bench;
  assert.equal(first.send("NC_RESET", { ncMap: 0xffffffff }), 0);
  const requestId = first.field("NC_RESET", "requestId");
  assert.equal(requestId, first.process.pid);
  assert.equal(first.send("NC_RESET", { ncMap: 0xffffffff }), 1);
  const before = clock.now();
  assert.equal(first.send("NC_RESET_READY", { requestId }), 0);
  assert.ok(clock.now() > before);
  assert.equal(first.field("NC_RESET_READY", "result"), 0);
  assert.equal(first.send("NC_RESET_READY", { requestId }), 0);
  assert.equal(first.field("NC_RESET_READY", "result"), 1, "it was collected");
});

test("open waits while sysfs resets a device that nobody has open", () => {
  const clock = virtualClock();
  using machine = createFake({ product: "trn2", clock });
  const process = machine.process();
  assert.equal(machine.writeText("/sys/devices/virtual/neuron_device/neuron0/reset", "1"), 1);
  const wait = process.openOrWait("/dev/neuron0", READ_WRITE);
  assert.ok(typeof wait === "object");
  assert.equal(wait.poll(), undefined);
  assert.equal(machine.device().processes.attached().length, 0);
  clock.advance(wait.deadline - clock.now());
  assert.ok(wait.poll()! >= 0);
  assert.equal(machine.device().processes.attached().length, 1);
});

test("late copies move their bytes only at the wait: whoever reads earlier sees the old ones", () => {
  for (const lateCopies of [false, true]) {
    using bench = openClient({ lateCopies });
    const { client } = bench;
    const [source, target] = [client.alloc(65536), client.alloc(65536)];
    client.write(source, 0, pattern(65536));
    assert.equal(client.send("MEM_COPY_ASYNC64", { srcMemHandle: source, dstMemHandle: target, size: 65536, pwaitHandle: -1 }), 0);
    const pwaitHandle = client.field("MEM_COPY_ASYNC64", "waitHandle");
    assert.deepEqual(client.read(target, 0, 65536), lateCopies ? new Uint8Array(65536) : pattern(65536));
    assert.equal(client.send("MEM_COPY_ASYNC_WAIT", { srcMemHandle: source, dstMemHandle: target, pwaitHandle }), 0);
    assert.deepEqual(client.read(target, 0, 65536), pattern(65536));
    assert.equal(client.send("MEM_COPY_ASYNC_WAIT", { srcMemHandle: source, dstMemHandle: target, pwaitHandle }), -Errno.EINVAL);
  }
});

test("latency and delays pass on the clock of the machine: at once on a virtual one, in real time on a real one", () => {
  const clock = virtualClock();
  using bench = openClient({ latency: 25, clock });
  const began = clock.now();
  bench.client.alloc(4096);
  bench.client.alloc(4096);
  assert.equal(clock.now() - began, 50);
  using real = openClient({ latency: 20, clock: realClock() });
  const start = performance.now();
  real.client.alloc(4096);
  assert.ok(performance.now() - start >= 19);
});
