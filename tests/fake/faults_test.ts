import assert from "node:assert/strict";
import { test } from "node:test";
import { Errno } from "../../ffi/errno.ts";
import { ArgumentError } from "../../ffi/error.ts";
import { MapFlag, Protection } from "../../ffi/native.ts";
import { virtualClock } from "../../lib/fake/options.ts";
import { parseFault, ProcessDied } from "../../lib/fake/faults.ts";
import { Client, openClient, pattern } from "./client.ts";

const MIB = 2 ** 20;

function planned(...texts: readonly string[]) {
  return openClient({ faults: texts.map(parseFault) });
}

test("the n-th request fails with the planned errno and has no effect; the others go through", () => {
  using bench = planned("MEM_ALLOC_V2MT64:3:ENOMEM", "MEM_FREE:2+:EIO");
  const { client, machine } = bench;
  const results = Array.from({ length: 5 }, () => client.alloc(4096));
  assert.deepEqual(results, [1, 2, -Errno.ENOMEM, 3, 4]);
  assert.deepEqual(results.map((handle) => (handle > 0 ? client.free(handle) : 0)), [0, -Errno.EIO, 0, -Errno.EIO, -Errno.EIO]);
  assert.equal(machine.device().handles.count, 3);
});

test("open and mmap can fail too, and * means every request", () => {
  using bench = planned("open:2:EMFILE", "mmap:1:ENOMEM", "*:4:EINTR");
  const { client } = bench;
  assert.equal(client.process.open("/dev/neuron0", 2), -Errno.EMFILE);
  assert.ok(client.process.open("/dev/neuron0", 2) >= 0);
  const handle = client.alloc(MIB);
  const pa = client.pa(handle);
  const map = () => client.process.mmap(client.fd, MIB, Protection.READ, MapFlag.SHARED, pa);
  assert.equal(map(), -Errno.ENOMEM);
  const mapping = map();
  assert.ok(typeof mapping === "object");
  mapping.close();
  assert.equal(client.pa(handle), pa);
  assert.equal(client.pa(handle), -Errno.EINTR);
  assert.equal(client.pa(handle), pa);
});

test("short stops the data half-way as a bad address does, and says how many bytes are missing", () => {
  using bench = planned("MEM_BUF_COPY64:2:short");
  const { client } = bench;
  const handle = client.alloc(MIB, { host: true });
  assert.equal(client.write(handle, 0, pattern(4096)), 0);
  const left = client.write(handle, 0, pattern(4096, 9));
  assert.equal(left, 2048);
  const bytes = client.read(handle, 0, 4096) as Uint8Array;
  assert.deepEqual(bytes.subarray(0, 2048), pattern(4096, 9).subarray(0, 2048));
});

test("a delay passes on the machine's clock, and the request then does its work", () => {
  const clock = virtualClock();
  using bench = openClient({ clock, faults: [parseFault("MEM_ALLOC_V2MT64:1:250ms"), parseFault("MEM_FREE:*:delay")] });
  const began = clock.now();
  const handle = bench.client.alloc(4096);
  assert.ok(handle > 0);
  assert.equal(clock.now() - began, 250);
  assert.equal(bench.client.free(handle), 0);
  assert.equal(clock.now() - began, 350);
});

test("die ends the process at that request with the driver's cleanup", () => {
  using bench = planned("MEMSET64:2:die");
  const { client, machine } = bench;
  const memHandle = client.alloc(MIB);
  assert.equal(client.send("MEMSET64", { memHandle, size: 4096 }), 0);
  assert.throws(() => client.send("MEMSET64", { memHandle, size: 4096 }), ProcessDied);
  assert.equal(client.process.alive, false);
  assert.equal(machine.device().handles.count, 0);
  assert.equal(machine.device().processes.attached().length, 0);
  assert.ok(new Client(machine.process()).alloc(MIB) > 0);
});

test("faults by chance come at the same calls for the same seed, at others for another, and about as often as planned", () => {
  const failures = (seed: number) => {
    using bench = openClient({ seed, faults: [parseFault("MEM_GET_PA:10%:EIO")] });
    const handle = bench.client.alloc(4096);
    return Array.from({ length: 1000 }, () => Number(bench.client.pa(handle) === -Errno.EIO));
  };
  const [first, again, other] = [failures(5), failures(5), failures(6)];
  assert.deepEqual(again, first);
  assert.notDeepEqual(other, first);
  const count = first.reduce((sum, failed) => sum + failed, 0);
  assert.ok(count > 60 && count < 140, `${count} of 1000`);
});

test("a plan that cannot be read is refused with an example", () => {
  for (const text of ["", "MEM_FREE", "MEM_FREE:1", "MEM_FREEE:1:EIO", "MEM_FREE:0:EIO", "MEM_FREE:x:EIO", "MEM_FREE:1:EWHAT", "MEM_FREE:200%:EIO", "MEM_FREE:1:EIO:2", "MEM_FREE:1.5:EIO"]) {
    assert.throws(() => parseFault(text), (error) => error instanceof ArgumentError && error.message.includes(`"${text}"`) && /For example/.test(String(error.hint)), text);
  }
  assert.deepEqual(parseFault("*:5%:EIO"), { request: "*", when: { chance: 0.05 }, action: { kind: "errno", errno: Errno.EIO } });
});
