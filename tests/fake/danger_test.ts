import assert from "node:assert/strict";
import { test } from "node:test";
import { Errno } from "../../ffi/errno.ts";
import { MemCategory } from "../../lib/abi/driver_enums.ts";
import { type Danger, dangers, FakeAbort } from "../../lib/fake/faults.ts";
import { createFake, type FakeOptions } from "../../lib/fake/machine.ts";
import { Client, openClient, pattern, WRITE_ONLY } from "./client.ts";

const TOP = 2n ** 64n - 4096n;
const KIB = 1024;

/** Something that a real driver would not survive, with the danger it has to be refused as. */
interface Trap {
  readonly danger: Danger;
  readonly request: string;
  readonly options?: Partial<FakeOptions>;
  readonly spring: (client: Client, handle: number) => number;
}

/** Requests of a client that has a chunk of 1 MiB. */
const traps: readonly Trap[] = [
  { danger: "unattachedAlloc", request: "MEM_ALLOC_V2MT64", spring: (client) => new Client(client.process.fork(), client.fd).alloc(4096) },
  { danger: "unattachedAlloc", request: "MEM_ALLOC_V2", spring: (client) => new Client(client.process.fork(), client.fd).send("MEM_ALLOC_V2", { size: 4096, memHandle: client.resultAt }) },
  { danger: "hostScratchpad", request: "MEM_ALLOC_V2MT64", spring: (client) => client.alloc(4096, { host: true, category: MemCategory.CONTIGUOUS_SCRATCHPAD_DEVICE }) },
  { danger: "zeroSize", request: "MEMSET64", spring: (client, memHandle) => client.send("MEMSET64", { memHandle, offset: 0, size: 0 }) },
  { danger: "zeroSize", request: "MEMSET", spring: (client, memHandle) => client.send("MEMSET", { memHandle, offset: 0, size: 0 }) },
  { danger: "zeroSize", request: "MEM_COPY64", spring: (client, handle) => client.send("MEM_COPY64", { srcMemHandle: handle, dstMemHandle: handle }) },
  { danger: "zeroSize", request: "MEM_COPY_ASYNC", spring: (client, handle) => client.send("MEM_COPY_ASYNC", { srcMemHandle: handle, dstMemHandle: handle, pwaitHandle: -1 }) },
  { danger: "zeroCopyNothing", request: "MEM_BUF_ZEROCOPY64", spring: (client, memHandle) => client.send("MEM_BUF_ZEROCOPY64", { memHandle, buffer: client.dataAt }) },
  { danger: "zeroCopyUnaligned", request: "MEM_BUF_ZEROCOPY64", spring: (client, memHandle) =>
    client.send("MEM_BUF_ZEROCOPY64", { memHandle, buffer: Math.ceil(client.dataAt / 4096) * 4096 + 100, size: 256 * KIB, copyToMemHandle: 1 }) },
  { danger: "wrap", request: "MEM_BUF_COPY64", spring: (client, memHandle) => client.send("MEM_BUF_COPY64", { memHandle, buffer: client.dataAt, size: 8192, offset: TOP }) },
  { danger: "wrap", request: "MEMSET64", spring: (client, memHandle) => client.send("MEMSET64", { memHandle, offset: TOP, size: 8192 }) },
  { danger: "wrap", request: "MEM_COPY64", spring: (client, handle) => client.send("MEM_COPY64", { srcMemHandle: handle, dstMemHandle: handle, size: 8192, dstOffset: TOP }) },
  { danger: "wrap", request: "MEM_BUF_ZEROCOPY64", spring: (client, memHandle) => client.send("MEM_BUF_ZEROCOPY64", { memHandle, buffer: client.dataAt, size: 8192, offset: TOP }) },
  { danger: "bdfRange", request: "DEVICE_BDF_EXT", spring: (client) => client.send("DEVICE_BDF_EXT", { ndIndex: 200 }) },
  { danger: "printNothing", request: "PRINTK", spring: (client) => client.send("PRINTK", { buffer: client.dataAt, size: 0 }) },
  { danger: "foreignFree", request: "MEM_FREE", spring: (client, handle) => new Client(client.process.fork()).free(handle) },
  { danger: "shortCopy", request: "MEM_BUF_COPY64", spring: (client) => {
    const large = client.alloc(5 * 2 ** 30);
    return client.send("MEM_BUF_COPY64", { memHandle: large, buffer: client.dataAt, size: 2 ** 32 + 64, copyToMemHandle: 1 });
  } },
  { danger: "wildRegister", request: "BAR_READ", spring: (client) => {
    client.data.fill(0, 0, 8);
    return client.send("BAR_READ", { bar: 0, address: client.dataAt, data: client.resultAt, count: 1 });
  } },
  { danger: "notModelled", request: "READ_HW_COUNTERS", spring: (client) => client.send("READ_HW_COUNTERS", { count: 0 }) },
  { danger: "notModelled", request: "HBM_SCRUB_START", spring: (client) => client.send("HBM_SCRUB_START", { hbmIndex: 0 }) },
  { danger: "notModelled", request: "POWER_PROFILE", options: { driverVersion: "2.27" }, spring: (client) => client.send("POWER_PROFILE") },
];

function prepared(options: Partial<FakeOptions> = {}) {
  const bench = openClient(options);
  const handle = bench.client.alloc(2 ** 20);
  assert.equal(bench.client.write(handle, 0, pattern(2 ** 20)), 0);
  return { bench, handle };
}

test("what would stop or corrupt a real kernel is refused loudly, by name, and changes nothing", () => {
  for (const { danger, request, options, spring } of traps) {
    const { bench, handle } = prepared(options);
    const device = bench.machine.device();
    const before = [device.handles.count, device.counters.device[0]!.total, device.counters.host[0]!.total];
    assert.throws(() => spring(bench.client, handle), (error) => {
      assert.ok(error instanceof FakeAbort, `${request}: ${String(error)}`);
      assert.equal(error.details["danger"], danger, request);
      assert.equal(error.details["request"], request);
      assert.match(error.message, new RegExp(`^Cannot carry out ${request}: `));
      assert.ok(error.message.includes(dangers[danger]), error.message);
      return true;
    }, `${request} as ${danger}`);
    if (danger !== "shortCopy") assert.deepEqual([device.handles.count, device.counters.device[0]!.total, device.counters.host[0]!.total], before, request);
    assert.deepEqual(bench.client.read(handle, 0, 2 ** 20), pattern(2 ** 20), request);
    bench[Symbol.dispose]();
  }
});

test("every danger of the list is sprung by a test", () => {
  const elsewhere: readonly Danger[] = ["counterWrite"];
  assert.deepEqual([...new Set([...traps.map(({ danger }) => danger), ...elsewhere])].sort(), Object.keys(dangers).sort());
});

test("for programs of others the same requests can fail with EIO instead", () => {
  for (const { request, options, spring } of traps) {
    const { bench, handle } = prepared({ ...options, danger: "errno" });
    assert.equal(spring(bench.client, handle), -Errno.EIO, request);
    bench[Symbol.dispose]();
  }
});

test("a foreign free can be allowed alone: it works as in the driver, with the owner's figures staying up", () => {
  using machine = createFake({ product: "trn2", allow: ["foreignFree"] });
  const [owner, other] = [new Client(machine.process()), new Client(machine.process())];
  const handle = owner.alloc(2 ** 20);
  assert.equal(other.free(handle), 0);
  assert.equal(owner.pa(handle), -Errno.EINVAL);
  assert.deepEqual(machine.device().processes.attached().map(({ deviceBytes }) => deviceBytes), [2 ** 20, 0]);
  assert.equal(machine.device().counters.device[0]!.total, 0);
  assert.throws(() => owner.send("MEMSET64", { memHandle: owner.alloc(4096), size: 0 }), FakeAbort);
});

test("a buffer copy of 4 GiB and more is cut to 32 bits where that is allowed", () => {
  using bench = openClient({ allow: ["shortCopy"] });
  const { client } = bench;
  const memHandle = client.alloc(5 * 2 ** 30);
  client.data.set(pattern(128));
  assert.equal(client.send("MEM_BUF_COPY64", { memHandle, buffer: client.dataAt, size: 2 ** 32 + 64, copyToMemHandle: 1 }), 0);
  assert.deepEqual(client.read(memHandle, 0, 128), new Uint8Array([...pattern(64), ...new Uint8Array(64)]));
});

test("a write to a memory counter is refused, and destroys it where that is allowed", () => {
  const path = "/sys/devices/virtual/neuron_device/neuron0/neuron_core0/stats/memory_usage/device_mem/total";
  for (const allowed of [false, true]) {
    using bench = openClient(allowed ? { allow: ["counterWrite"] } : {});
    const { client, machine } = bench;
    client.alloc(2 ** 20);
    if (allowed) assert.equal(machine.writeText(path, "77\n"), 3);
    else assert.throws(() => machine.writeText(path, "77\n"), FakeAbort);
    assert.equal(machine.readText(path), allowed ? "0\n" : `${2 ** 20}\n`);
  }
});

test("sizes, offsets and handles beyond 2^53 get the driver's errno", () => {
  using bench = openClient({ driverVersion: "2.29" });
  const { client } = bench;
  const memHandle = client.alloc(2 ** 20);
  const huge = 2n ** 63n + 12345n;
  assert.equal(client.free(Number.MAX_SAFE_INTEGER), -Errno.ENOENT);
  assert.equal(client.send("MEM_FREE", { memHandle: huge }), -Errno.ENOENT);
  assert.equal(client.send("MEM_GET_PA", { memHandle: huge, pa: client.resultAt }), -Errno.EINVAL);
  assert.equal(client.send("MEM_BUF_COPY64", { memHandle, buffer: client.dataAt, size: 2n ** 62n, copyToMemHandle: 1 }), -Errno.E2BIG);
  assert.equal(client.send("MEMSET64", { memHandle, offset: huge, size: 4096 }), -Errno.E2BIG);
  assert.equal(client.send("MEM_ALLOC_V2MT64", { size: huge, memType: 9, memHandle: client.resultAt }), -Errno.EINVAL);
  assert.equal(client.send("MEM_ALLOC_V2MT64", { size: 2n ** 61n, memType: 9, memHandle: client.resultAt }), -Errno.ENOMEM);
  assert.equal(client.send("MEM_ALLOC_V2MT64", { size: 4096, align: huge, memType: 9, memHandle: client.resultAt }), -Errno.EINVAL);
  const free = client.process.open("/dev/neuron0", WRITE_ONLY);
  assert.ok(free >= 0);
  assert.equal(client.send("MEM_FREE", { memHandle: huge }, free), -Errno.EINVAL, "not one of the requests of an O_WRONLY descriptor");
});
