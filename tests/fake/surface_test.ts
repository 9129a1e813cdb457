import assert from "node:assert/strict";
import { test } from "node:test";
import { Errno } from "../../ffi/errno.ts";
import { bytesAt } from "../../ffi/memory.ts";
import type { Request } from "../../lib/abi/request.ts";
import { requests } from "../../lib/abi/requests.ts";
import { compareVersionText } from "../../lib/abi/topology.ts";
import { carefulMemory } from "../../lib/fake/careful_memory.ts";
import { dispatchTable, findEntry, unhandledRequests } from "../../lib/fake/dispatch.ts";
import { createFake } from "../../lib/fake/machine.ts";
import { Client, openClient, READ_WRITE, WRITE_ONLY } from "./client.ts";

const all = Object.values(requests) as readonly Request[];
const VERSIONS = ["2.24.7.0", "2.25.4.0", "2.26.5.0", "2.27.4.0", "2.28.0.0", "2.29.0.0", "2.30.2.0"];
/** Forms that a later driver replaced. */
const REPLACED: Readonly<Record<string, string>> = { MEM_BUF_ZEROCOPY64: "2.25.4.0", MEM_BUF_ZEROCOPY64_2_25: "2.29.0.0" };
/** Every errno a handler may answer, and the bytes it may report as not copied. */
const LOWEST = -600;

function exists(request: Request, version: string): boolean {
  const gone = REPLACED[request.name];
  return (request.since === null || compareVersionText(request.since, version) <= 0) && (gone === undefined || compareVersionText(gone, version) > 0);
}

test("every request of the driver has a handler, in exactly the versions that have it", () => {
  assert.deepEqual(unhandledRequests, []);
  for (const version of VERSIONS) {
    const table = dispatchTable(version);
    for (const request of all) {
      const found = findEntry(table, request.request | 0);
      if (exists(request, version)) assert.equal(found?.name, request.name, `${request.name} in ${version}`);
      else assert.notEqual(found?.name, request.name, `${request.name} in ${version}`);
    }
  }
});

test("a process that is not attached gets EACCES for the 19 requests that need it, whatever the address", () => {
  using bench = openClient();
  const child = new Client(bench.client.process.fork(), bench.client.fd);
  const gated = all.filter(({ gated: is, since }) => is && since === null);
  assert.equal(gated.length, 19);
  for (const { request, name } of gated) assert.equal(child.process.ioctl(child.fd, request, 0), -Errno.EACCES, name);
});

test("a descriptor opened O_WRONLY knows 19 requests and answers EINVAL to the others, known or not", () => {
  using machine = createFake({ product: "trn2", driverVersion: "2.29", danger: "errno" });
  const client = new Client(machine.process({ memory: carefulMemory() }));
  client.process.close(client.fd);
  client.fd = client.process.open("/dev/neuron0", WRITE_ONLY);
  const answers = all.filter(({ freeAccess, since }) => freeAccess && since === null);
  assert.equal(answers.length, 19);
  for (const { request, freeAccess, name } of all) {
    if (!freeAccess) assert.equal(client.process.ioctl(client.fd, request, 0), -Errno.EINVAL, name);
  }
  assert.equal(client.send("DEVICE_BASIC_INFO"), 0);
  assert.equal(client.field("DEVICE_BASIC_INFO", "architecture"), 3);
});

test("numbers that no driver has are EINVAL, descriptors that are not open EBADF", () => {
  using bench = openClient();
  const { client } = bench;
  const table = dispatchTable("2.24.7.0");
  let tried = 0;
  for (let number = 0; number < 256; number++) {
    for (const direction of [0, 1, 2, 3]) {
      for (const size of [0, 8, 24, 33, 16383]) {
        for (const type of [0x4e, 0x4d]) {
          const request = ((direction << 30) | (size << 16) | (type << 8) | number) >>> 0;
          if (findEntry(table, request | 0) !== undefined) continue;
          assert.equal(client.process.ioctl(client.fd, request, 0), -Errno.EINVAL, request.toString(16));
          tried++;
        }
      }
    }
  }
  assert.ok(tried > 9000, `${tried}`);
  assert.equal(client.process.ioctl(client.fd + 1, requests.DEVICE_BASIC_INFO.request, client.dataAt), -Errno.EBADF);
  assert.equal(client.process.ioctl(-1, requests.DEVICE_BASIC_INFO.request, client.dataAt), -Errno.EBADF);
  assert.equal(client.process.open("/dev/neuron1", READ_WRITE), -Errno.ENOENT);
  assert.equal(client.process.open("/dev/neuron00", READ_WRITE), -Errno.ENOENT);
  assert.equal(client.process.open("/dev/null", READ_WRITE), -Errno.ENOENT);
});

/** Numbers from a seed. */
function generator(seed: number): () => number {
  let state = seed;
  return () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0);
}

test("random arguments to every request of every version get an answer and never break the machine", { timeout: 120_000 }, () => {
  let calls = 0;
  const answers = new Set<number>();
  for (const [version, product] of [["2.24.7", "trn1"], ["2.24.7", "trn2"], ["2.27", "trn2"], ["2.29", "trn3"]] as const) {
    using machine = createFake({ product, driverVersion: version, danger: "errno", devices: 2, moduleParameters: { no_reset: 1 } });
    const idle = machine.device().handles.count;
    const client = new Client(machine.process({ memory: carefulMemory() }));
    const next = generator(7);
    const handles = Array.from({ length: 4 }, (_, index) => client.alloc(8192, { host: index % 2 === 1 }));
    /** Values that mean something, so that checks behind the first ones are reached too. */
    const values = () => [0n, 1n, 2n, BigInt(handles[next() % 4]!), BigInt(client.dataAt), BigInt(client.resultAt), 4096n, 0xffffffffn, BigInt(next()), 2n ** 63n + BigInt(next()), 2n ** 64n - 1n];
    for (const { request, argumentBytes, name } of all) {
      for (let round = 0; round < 40; round++) {
        const size = Math.min(Math.max(argumentBytes, 8), 16 * 1024);
        const argument = bytesAt(client.memory.address, size);
        const view = new DataView(argument.buffer, argument.byteOffset, size);
        for (let at = 0; at + 4 <= Math.min(size, 96); at += at % 8 === 0 && round % 2 === 0 && at + 8 <= size ? 8 : 4) {
          const choices = values();
          const value = choices[next() % choices.length]!;
          if (round % 2 === 0 && at % 8 === 0 && at + 8 <= size) view.setBigUint64(at, value, true);
          else view.setUint32(at, Number(value & 0xffffffffn), true);
        }
        const address = round === 39 ? 0 : round === 38 ? 2 ** 48 : client.memory.address;
        const answer = client.process.ioctl(client.fd, request, address);
        assert.ok(Number.isInteger(answer) && answer >= LOWEST && answer < 2 ** 31, `${name} answered ${answer}`);
        answers.add(answer);
        calls++;
      }
    }
    client.process.kill();
    assert.equal(machine.device().handles.count >= idle, true);
    const again = new Client(machine.process());
    const handle = again.alloc(2 ** 20);
    assert.ok(handle > 0 && again.write(handle, 0, again.data.slice(0, 2 ** 20)) === 0, `${version} still works`);
  }
  console.log(`${calls} calls, ${answers.size} different answers`);
  assert.ok(calls > 15_000 && answers.size > 10);
});
