import assert from "node:assert/strict";
import { statSync } from "node:fs";
import { test } from "node:test";
import { Errno } from "../../ffi/errno.ts";
import type { Mapping } from "../../ffi/kernel.ts";
import { MapFlag, Protection } from "../../ffi/native.ts";
import { MemCategory } from "../../lib/abi/driver_enums.ts";
import { createFake, type FakeMachine } from "../../lib/fake/machine.ts";
import { Client, descriptorCount, fakeMappings, openClient, pattern, READ_WRITE } from "./client.ts";

const MIB = 2 ** 20;
const GIB = 2 ** 30;
const BOTH = Protection.READ | Protection.WRITE;

/** All counters of a device that say what is in use now: `total`; `present` is the last change. */
function inUse(machine: FakeMachine): Record<string, string> {
  return Object.fromEntries([...machine.sysfs.tree("/sys/devices/virtual/neuron_device/neuron0")]
    .filter(([path]) => path.endsWith("/total") && !path.includes("reset_req_count")).map(([path, file]) => [path, file.read()]));
}

/** Everything a process could leave behind on a device. */
function state(machine: FakeMachine) {
  const device = machine.device();
  return {
    inUse: inUse(machine),
    handles: device.handles.count,
    attached: device.processes.attached().length,
    open: device.openCount,
    free: device.hbms.flatMap(({ main, small }) => [[...main.free.runs()], [...small.free.runs()]]),
    scratchpad: device.hbms.map(({ scratchpadBytes }) => scratchpadBytes),
    locks: device.cores.map(({ lock }) => [lock.pid, lock.writing, lock.readers]),
    marks: Array.from({ length: 64 }, (_, core) => machine.marks.owner(core)),
    stores: device.stores.map(({ pid }) => pid),
    processes: machine.processes.length,
  };
}

/** Pieces of 512 bytes that the memory of device 0 takes up. */
function blocksOf(machine: FakeMachine): number {
  return statSync(`/proc/self/fd/${machine.device().backing.fd}`).blocks;
}

test("two processes on one device have chunks, figures and cores of their own, and neither's end touches the other (C-009)", () => {
  using machine = createFake({ product: "trn2" });
  const idle = inUse(machine);
  const [first, second] = [new Client(machine.process()), new Client(machine.process())];
  const mine = [first.alloc(MIB, { core: 0 }), first.alloc(2 * MIB, { core: 1 })];
  const theirs = [second.alloc(4 * MIB, { core: 2 }), second.alloc(MIB, { core: 3 })];
  for (const [client, handle, seed] of [[first, mine[0]!, 1], [second, theirs[0]!, 2]] as const) assert.equal(client.write(handle, 0, pattern(MIB, seed)), 0);
  assert.equal(first.send("CRWL_NC_RANGE_MARK", { ncCount: 4, startNcIndex: 0, endNcIndex: 7 }), 0);
  assert.equal(second.send("CRWL_NC_RANGE_MARK", { ncCount: 4, startNcIndex: 0, endNcIndex: 7 }), 0);
  const owners = Array.from({ length: 8 }, (_, core) => machine.marks.owner(core));
  assert.deepEqual(owners, [1000, 1000, 1000, 1000, 1001, 1001, 1001, 1001]);
  const slots = machine.device().processes.attached();
  assert.deepEqual(slots.map(({ pid, deviceBytes }) => [pid, deviceBytes]), [[1000, 3 * MIB], [1001, 5 * MIB]]);
  first.process.exit();
  assert.equal(second.pa(mine[0]!), -Errno.EINVAL);
  assert.deepEqual(second.read(theirs[0]!, 0, MIB), pattern(MIB, 2));
  assert.equal(machine.marks.owner(0), 1000, "marks outlive the descriptor of the process that marked");
  second.process.exit();
  assert.deepEqual(inUse(machine), idle);
});

test("cores 0 and 1 of trn2 allocate from one pool without overlap, and each is charged its own bytes (C-010)", () => {
  using bench = openClient({ product: "trn2" });
  const { client, machine } = bench;
  const device = machine.device();
  const charged = (core: number) => device.counters.device[core]!.total;
  const ranges: [number, number][] = [];
  for (let index = 0; index < 40; index++) {
    const size = (1 + (index % 5)) * 600 * 1024;
    const handle = client.alloc(size, { core: index % 2, hbm: 0 });
    const rounded = Math.ceil(size / 4096) * 4096;
    ranges.push([client.pa(handle), rounded]);
  }
  const { base } = device.hbms[0]!;
  const bytes = ranges.reduce((sum, [, size]) => sum + size, 0);
  // First fit without holes: one core's chunks lie between the other's, in the order of asking.
  let next = base + 16 * MIB;
  for (const [pa, size] of ranges) {
    assert.equal(pa, next);
    next += size;
  }
  const of = (core: number) => ranges.filter((_, index) => index % 2 === core).reduce((sum, [, size]) => sum + size, 0);
  assert.deepEqual([charged(0), charged(1), charged(2)], [of(0), of(1), 0]);
  assert.equal(charged(0) + charged(1), bytes);
});

test("two processes on one device meet ENOMEM only when together they hold all of the pool (C-153)", () => {
  using machine = createFake({ product: "trn1", hbmSize: GIB });
  const clients = [new Client(machine.process()), new Client(machine.process())] as const;
  let granted = 0;
  const size = 8 * MIB;
  for (let turn = 0; ; turn++) {
    // One of the two asks for three times as much: no share is set aside for the other.
    const client = clients[turn % 4 === 0 ? 0 : 1];
    const handle = client.alloc(size);
    if (handle < 0) {
      assert.equal(handle, -Errno.ENOMEM);
      break;
    }
    granted += size;
  }
  assert.equal(granted, GIB - 16 * MIB);
  for (const client of clients) assert.equal(client.alloc(size), -Errno.ENOMEM);
  clients[1].process.kill();
  while (clients[0].alloc(size) > 0) ;
  assert.equal(machine.device().processes.find(1000)!.deviceBytes, GIB - 16 * MIB);
});

test("the last close frees what its process allocated; a second descriptor of its own keeps it alive", () => {
  using bench = openClient();
  const { client, machine } = bench;
  const handle = client.alloc(MIB);
  const other = client.process.open("/dev/neuron0", READ_WRITE);
  assert.equal(client.process.close(client.fd), 0);
  assert.equal(client.process.close(client.fd), -Errno.EBADF);
  client.fd = other;
  assert.ok(client.pa(handle) > 0);
  assert.equal(client.process.close(other), 0);
  client.fd = client.process.open("/dev/neuron0", READ_WRITE);
  assert.equal(client.pa(handle), -Errno.EINVAL);
  assert.equal(machine.device().processes.attached().length, 1);
});

test("closing a duplicate detaches the process although the descriptor it came from stays open", () => {
  using bench = openClient();
  const { client } = bench;
  const handle = client.alloc(MIB);
  const duplicate = client.process.dup(client.fd);
  assert.ok(client.pa(handle) > 0);
  assert.equal(client.process.close(duplicate), 0);
  assert.equal(client.pa(handle), -Errno.EACCES);
  client.process.open("/dev/neuron0", READ_WRITE);
  assert.equal(client.pa(handle), -Errno.EINVAL, "its memory is gone");
});

test("a forked child inherits the descriptor without being attached, and its end leaves the parent's memory alone", () => {
  using bench = openClient();
  const { client } = bench;
  const handle = client.alloc(MIB);
  const child = new Client(client.process.fork(), client.fd);
  assert.equal(child.pa(handle), -Errno.EACCES);
  child.process.kill();
  assert.equal(child.process.alive, false);
  assert.ok(client.pa(handle) > 0);
  const other = new Client(client.process.fork(), client.fd);
  client.process.exit();
  assert.equal(other.pa(handle), -Errno.EACCES);
  other.fd = other.process.open("/dev/neuron0", READ_WRITE);
  assert.equal(other.pa(handle), -Errno.EINVAL);
  assert.ok(other.alloc(MIB) > 0);
});

test("sixteen processes can have a device open; the next gets EBUSY until one goes, and O_WRONLY is not counted", () => {
  using machine = createFake({ product: "trn2" });
  const clients = Array.from({ length: 16 }, () => new Client(machine.process()));
  assert.ok(clients.every(({ fd }) => fd >= 0));
  const late = machine.process();
  assert.equal(late.open("/dev/neuron0", READ_WRITE), -Errno.EBUSY);
  assert.ok(late.open("/dev/neuron0", 1) >= 0);
  clients[7]!.process.kill();
  assert.ok(late.open("/dev/neuron0", READ_WRITE) >= 0);
  assert.equal(machine.process().open("/dev/neuron0", READ_WRITE), -Errno.EBUSY);
});

/** A generator of numbers that a seed determines. */
function randomNumbers(seed: number): (below: number) => number {
  let value = seed >>> 0 || 1;
  return (below) => {
    value = Math.imul(value ^ (value >>> 15), value | 1) >>> 0;
    value = (value + 0x6d2b79f5) >>> 0;
    return Math.floor(((value ^ (value >>> 14)) >>> 0) / 2 ** 32 * below);
  };
}

/** One random step of a program. */
function step(client: Client, handles: number[], mappings: Mapping[], random: (below: number) => number): void {
  const handle = handles[random(handles.length)] ?? 0;
  const steps: readonly (() => void)[] = [
    () => void handles.push(client.alloc(1 + random(3 * MIB), { core: random(8), hbm: random(4), align: random(2) * 65536 })),
    () => void handles.push(client.alloc(1 + random(MIB), { host: true, category: 2 })),
    () => void handles.push(client.alloc(MIB, { category: MemCategory.CONTIGUOUS_SCRATCHPAD_DEVICE })),
    () => void client.free(handle),
    () => void client.write(handle, random(4096), pattern(random(9000))),
    () => void client.send("MEMSET64", { memHandle: handle, offset: 0, value: 7, size: 4096 }),
    () => void client.send("MEM_COPY_ASYNC64", { srcMemHandle: handle, dstMemHandle: handles[0] ?? 0, size: 4096, pwaitHandle: 0xffffffff }),
    () => void client.send("CRWL_WRITER_ENTER", { ncId: random(8) }),
    () => void client.send("ACQUIRE_NEURON_DS", { pid: 0 }),
    () => void client.process.dup(client.fd),
    () => void client.process.open("/dev/neuron0", random(4)),
    () => {
      const pa = client.pa(handle);
      const mapping = pa < 0 ? pa : client.process.mmap(client.fd, MIB, BOTH, MapFlag.SHARED, pa);
      if (typeof mapping !== "number") mappings.push(mapping);
    },
  ];
  steps[random(steps.length)]!();
}

test("a process killed at a random point leaves nothing behind, 200 times: memory, handles, slots, locks, stores", { timeout: 120_000 }, () => {
  const [mapsBefore, fdsBefore] = [fakeMappings().length, descriptorCount()];
  const machine = createFake({ product: "trn2", allow: ["zeroSize", "foreignFree"] });
  const before = state(machine);
  const mappings: Mapping[] = [];
  let steps = 0;
  for (let round = 0; round < 200; round++) {
    const random = randomNumbers(round + 1);
    const client = new Client(machine.process());
    const handles: number[] = [];
    for (let left = random(60); left > 0; left--) {
      step(client, handles, mappings, random);
      steps++;
    }
    if (random(3) === 0) client.process.fork().kill();
    client.process.kill();
    for (const mapping of mappings.splice(0)) mapping.close();
    assert.deepEqual(state(machine), before, `round ${round}`);
  }
  assert.equal(machine.device().backing.used, true);
  machine.close();
  machine.close();
  assert.deepEqual([fakeMappings().length, descriptorCount()], [mapsBefore, fdsBefore]);
  console.log(`200 kills after ${steps} calls`);
});

test("a machine that is closed takes its processes, descriptors and windows with it; a mapping stays its owner's", () => {
  const [maps, fds] = [fakeMappings().length, descriptorCount()];
  const machine = createFake({ product: "trn2", devices: 2 });
  const client = new Client(machine.process());
  assert.deepEqual([fakeMappings().length, descriptorCount()], [maps, fds], "a device nobody used costs nothing");
  const handle = client.alloc(MIB);
  client.write(handle, 0, pattern(MIB));
  client.write(handle, 0, pattern(100));
  assert.ok(fakeMappings().length > maps && descriptorCount() > fds);
  const mapping = client.process.mmap(client.fd, MIB, BOTH, MapFlag.SHARED, client.pa(handle)) as Mapping;
  assert.deepEqual(mapping.bytes().slice(0, 100), pattern(100));
  machine.close();
  assert.equal(client.process.alive, false);
  assert.equal(descriptorCount(), fds);
  assert.equal(fakeMappings().length, maps + 1);
  mapping.close();
  assert.equal(fakeMappings().length, maps);
});

test("allocating and freeing memory nobody touches asks nothing of the system", () => {
  using bench = openClient();
  const { client, machine } = bench;
  for (let index = 0; index < 5000; index++) client.free(client.alloc(1 + index * 700));
  assert.equal(machine.device().backing.used, false);
});

test("freed memory goes back to the system and reads as zero; with retainFreed it keeps what it held", () => {
  for (const retainFreed of [false, true]) {
    using bench = openClient({ retainFreed });
    const { client, machine } = bench;
    const blocks = () => blocksOf(machine);
    const handle = client.alloc(MIB);
    client.write(handle, 0, pattern(MIB));
    const used = blocks();
    assert.ok(used >= 2048, `${used} blocks`);
    client.free(handle);
    assert.equal(blocks(), retainFreed ? used : 0);
    const again = client.alloc(MIB);
    assert.deepEqual(client.read(again, 0, MIB), retainFreed ? pattern(MIB) : new Uint8Array(MIB));
  }
});

test("a store through a mapping is in the chunk, and memory touched only there is given back too", () => {
  using bench = openClient();
  const { client, machine } = bench;
  const handle = client.alloc(2 * MIB);
  const pa = client.pa(handle);
  assert.equal(client.process.mmap(client.fd, MIB, BOTH, MapFlag.SHARED, pa), -Errno.EPERM);
  const mapping = client.process.mmap(client.fd, 2 * MIB, BOTH, MapFlag.SHARED, pa) as Mapping;
  mapping.bytes().set(pattern(5000), 2 * MIB - 5000);
  assert.deepEqual(client.read(handle, 2 * MIB - 5000, 5000), pattern(5000));
  mapping.close();
  client.free(handle);
  assert.equal(blocksOf(machine), 0);
});
