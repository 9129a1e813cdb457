// Random operations against a plain model; after every step records, lists, ledger and driver must agree with it.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Errno } from "../../ffi/errno.ts";
import type { Kernel } from "../../ffi/kernel.ts";
import { native } from "../../ffi/native.ts";
import { requests } from "../../lib/abi/requests.ts";
import { DmemAllocatorRecord, DmemRecord, UsageType, usageNames } from "../../lib/abi/runtime_dmem.ts";
import { type Allocator, type DeviceMemory, type Dmem, type DmemList, MemoryError, openDeviceMemory } from "../../lib/dmem/mod.ts";
import { resetAlignmentSupport } from "../../lib/dmem/allocation.ts";
import { type NeuronDevice, openDevice } from "../../lib/driver/mod.ts";
import { createFake } from "../../lib/fake/machine.ts";
import { pattern, same } from "./harness.ts";

/** Steps over all cases; both runtimes together make twice as many. */
const STEPS = Number(process.env["NEURON_DMEM_MODEL_STEPS"] ?? 110_000);
const SEED = Number(process.env["NEURON_DMEM_SEED"] ?? Date.now() % 2 ** 31);
const STEPS_PER_CASE = 200;

const MIB = 2 ** 20;
const HBM = 192 * MIB;
const TRACKED = 32 * 1024;
const { dummyHead: HEAD, dummyTail: TAIL } = DmemAllocatorRecord.offsets;
const { next: NEXT, prev: PREV, allocator: OWNER, refCount: REFS } = DmemRecord.offsets;

type Step = readonly [kind: number, a: number, b: number, c: number];

interface Entry {
  readonly memory: Dmem;
  readonly record: number;
  readonly hbm: number;
  readonly core: number;
  readonly host: boolean;
  readonly charged: number;
  readonly start: number;
  readonly content: Uint8Array | undefined;
  refs: number;
  owner: Owner | undefined;
}

interface Owner {
  readonly allocator: Allocator;
  readonly entries: Entry[];
}

interface Listed {
  readonly list: DmemList;
  entries: Entry[];
}

class Model {
  readonly memory: DeviceMemory;
  readonly device: NeuronDevice;
  readonly owners: Owner[];
  readonly lists: Listed[];
  live: Entry[] = [];
  refused = 0;
  steps = 0;

  constructor(device: NeuronDevice) {
    this.device = device;
    this.memory = openDeviceMemory(device, { ledgerEntries: 64 });
    this.owners = [0, 1].flatMap((core) => [
      { allocator: this.memory.core(core).global, entries: [] }, { allocator: this.memory.createAllocator(core, "MODEL"), entries: [] },
    ]);
    this.lists = [0, 1].map(() => ({ list: this.memory.createList(), entries: [] }));
  }

  run([kind, a, b, c]: Step): void {
    this.steps++;
    const entry = this.live[a % Math.max(1, this.live.length)];
    if (kind < 5 || entry === undefined) return this.alloc(a, b, c);
    if (kind < 8) return this.free(entry);
    if (kind === 8) return this.acquire(entry);
    if (kind === 9) return this.list(entry, this.lists[b % 2]!, c % 2 === 0);
    if (kind === 10) return c % 4 === 0 ? this.freeList(this.lists[b % 2]!) : this.map(entry);
    if (kind === 11) return c % 8 === 0 ? this.destroy(this.owners[b % 2 * 2 + 1]!) : this.map(entry);
    if (kind === 12) return this.copyTo(entry, this.live[b % this.live.length]!, c);
    return this.content(entry, b, c, kind);
  }

  alloc(a: number, b: number, c: number): void {
    const owner = this.owners[a % 4]!;
    const host = b % 8 === 0;
    const usage = c % 22;
    const large = b % 16 === 1;
    const size = large ? 1 + c * 1021 % (60 * MIB) : 1 + (b * 31 + c) % TRACKED;
    const alignment = b % 4 === 3 ? 2 ** (c % 18) : undefined;
    const hbm = c % 3 === 0 ? c % 2 : undefined;
    let memory: Dmem;
    try {
      memory = owner.allocator.alloc({ size, usage: usageNames[usage]!, location: host ? "host" : "device", hbm, alignment, hint: c % 5 === 0 ? `step ${c % 7}` : undefined });
    } catch (error) {
      assert.ok(error instanceof MemoryError, String(error));
      const invalid = host && [UsageType.SCRATCHPAD, UsageType.CC, UsageType.SCRATCHPAD_NOT_SHARED].includes(usage as 11);
      assert.equal(error.status, invalid ? 2 : host ? 11 : 4);
      this.refused++;
      return;
    }
    if (alignment !== undefined) assert.equal(memory.address % alignment, 0);
    const content = size <= TRACKED ? new Uint8Array(size) : undefined;
    if (content !== undefined) memory.fill(0);
    const entry: Entry = {
      memory, record: memory.record, hbm: memory.hbm, core: memory.core, host, charged: memory.allocatedSize, start: memory.pa, content, refs: 1, owner,
    };
    for (const other of this.live) {
      assert.ok(other.start + other.charged <= entry.start || entry.start + entry.charged <= other.start, "allocations overlap");
    }
    this.live.push(entry);
    owner.entries.push(entry);
  }

  free(entry: Entry): void {
    // References that lists will drop are not ours to drop.
    if (this.listed(entry) >= entry.refs) return;
    entry.memory.release();
    this.dropped(entry);
  }

  dropped(entry: Entry): void {
    if (--entry.refs > 0) return;
    assert.equal(entry.memory.closed, true);
    this.live = this.live.filter((one) => one !== entry);
    entry.owner?.entries.splice(entry.owner.entries.indexOf(entry), 1);
  }

  acquire(entry: Entry): void {
    entry.memory.retain();
    entry.refs++;
  }

  /** Lists with a reference of its own, or with one that is not listed yet. */
  list(entry: Entry, { list, entries }: Listed, acquire: boolean): void {
    if (acquire || this.listed(entry) >= entry.refs) this.acquire(entry);
    list.add(entry.memory);
    entries.push(entry);
  }

  listed(entry: Entry): number {
    return this.lists.reduce((sum, { entries }) => sum + entries.filter((other) => other === entry).length, 0);
  }

  freeList(listed: Listed): void {
    listed.list.free();
    const { entries } = listed;
    listed.entries = [];
    for (const entry of entries) this.dropped(entry);
  }

  map(entry: Entry): void {
    const bytes = entry.memory.map();
    if (entry.content !== undefined) same(bytes, entry.content, "mapping");
  }

  destroy(owner: Owner): void {
    const { core } = owner.allocator;
    const report = owner.allocator.destroy();
    assert.deepEqual(report, { liveCount: owner.entries.length, liveBytes: owner.entries.reduce((sum, { charged }) => sum + charged, 0) });
    for (const entry of owner.entries) entry.owner = undefined;
    this.owners[this.owners.indexOf(owner)] = { allocator: this.memory.createAllocator(core, "MODEL"), entries: [] };
  }

  copyTo(from: Entry, to: Entry, c: number): void {
    if (from.content === undefined || to.content === undefined || from === to) return;
    const size = c % (Math.min(from.content.length, to.content.length) + 1);
    from.memory.copyTo(to.memory, { size, at: from.content.length - size });
    to.content.set(from.content.subarray(from.content.length - size));
  }

  content(entry: Entry, b: number, c: number, kind: number): void {
    if (entry.content === undefined) return;
    const offset = b % entry.content.length;
    const size = c % (entry.content.length - offset + 1);
    if (kind === 13) {
      const bytes = pattern(size, c);
      entry.memory.write(bytes, { at: offset });
      entry.content.set(bytes, offset);
    } else if (kind === 14) {
      entry.memory.fill(c & 255, { at: offset, size });
      entry.content.fill(c & 255, offset, offset + size);
    } else same(entry.memory.read(size, { at: offset }), entry.content.subarray(offset, offset + size), "read");
  }

  check(): void {
    for (const { allocator, entries } of this.owners) checkList(allocator.record, entries);
    for (const entry of this.live) {
      assert.equal(pointer(entry.record + REFS), entry.refs, "reference count");
      assert.equal(pointer(entry.record + OWNER), entry.owner?.allocator.record ?? 0, "owner");
    }
    const { ledger } = this.memory;
    for (const hbm of [0, 1]) {
      const mine = this.live.filter((entry) => !entry.host && entry.hbm === hbm);
      const charged = mine.reduce((sum, entry) => sum + entry.charged, 0);
      assert.equal(ledger.hbmUsed(hbm), charged, "ledger by HBM");
      // The driver's list costs most: one HBM after each step.
      if (hbm !== this.steps % 2) continue;
      const chunks = this.device.dumpChunks(hbm);
      assert.equal(chunks.length - 1, mine.length, "the driver's chunks");
      const rounded = mine.reduce((sum, entry) => sum + Math.ceil(entry.charged / 4096) * 4096, 0);
      assert.equal(chunks.reduce((sum, chunk) => sum + chunk.size, 0) - 2 ** 24, rounded, "the driver's bytes");
    }
    for (const core of [0, 1]) {
      const charged = this.live.reduce((sum, entry) => entry.core === core && !entry.host ? sum + entry.charged : sum, 0);
      assert.equal(ledger.coreUsed(core), charged, "ledger by core");
    }
    assert.deepEqual(this.lists.map(({ list }) => list.length), this.lists.map(({ entries }) => entries.length));
  }

  close(): void {
    for (const { list } of this.lists) list.free();
    for (const listed of this.lists) {
      const { entries } = listed;
      listed.entries = [];
      for (const entry of entries) this.dropped(entry);
    }
    while (this.live[0] !== undefined) this.free(this.live[0]);
    this.check();
    assert.deepEqual(this.memory.close(), { liveCount: 0, liveBytes: 0 });
  }
}

function checkList(allocator: number, entries: readonly Entry[]): void {
  let at = pointer(allocator + HEAD + NEXT);
  for (const { record } of entries) {
    assert.equal(at, record, "list, head to tail");
    at = pointer(at + NEXT);
  }
  assert.equal(at, allocator + TAIL, "list ends at the tail");
  at = pointer(allocator + TAIL + PREV);
  for (let i = entries.length - 1; i >= 0; i--) {
    assert.equal(at, entries[i]!.record, "list, tail to head");
    at = pointer(at + PREV);
  }
  assert.equal(at, allocator + HEAD, "list ends at the head");
}

function pointer(address: number): number {
  const memory = native();
  return memory.readU32(address + 4) * 2 ** 32 + memory.readU32(address);
}

const step: fc.Arbitrary<Step> = fc.tuple(fc.nat(15), fc.nat(0xffff), fc.nat(0xffff), fc.nat(0xfffff));

function runCases(steps: number, seed: number, open: () => { readonly device: NeuronDevice; close(): void }): { readonly done: number; readonly refused: number } {
  let done = 0;
  let refused = 0;
  fc.assert(
    fc.property(fc.array(step, { minLength: 1, maxLength: 2 * STEPS_PER_CASE, size: "max" }), (list) => {
      const { device, close } = open();
      try {
        const model = new Model(device);
        for (const one of list) {
          model.run(one);
          model.check();
          done++;
        }
        refused += model.refused;
        model.close();
      } finally {
        close();
      }
    }),
    { numRuns: Math.ceil(steps * 1.15 / STEPS_PER_CASE), seed },
  );
  return { done, refused };
}

test("any sequence of operations leaves records, lists, ledger, driver and contents as a plain model has them", { timeout: 300_000 }, () => {
  resetAlignmentSupport();
  // One machine for all cases: the last close of a process frees everything, so each case starts anew.
  const fake = createFake({ product: "trn1", hbmSize: HBM });
  const kernel = fake.kernel();
  const { done, refused } = runCases(STEPS, SEED, () => {
    const device = openDevice({ kernel, hbmSize: HBM });
    return { device, close: () => device.close() };
  });
  fake.close();
  console.log(`# memory model: ${done} steps, ${refused} refused, seed ${SEED}`);
  assert.ok(done >= STEPS);
});

test("the same holds when the driver cannot align and copies finish only at the wait", { timeout: 300_000 }, () => {
  const fake = createFake({ product: "trn1", hbmSize: HBM, lateCopies: true });
  const kernel = withoutAlignment(fake.kernel());
  const { done, refused } = runCases(Math.ceil(STEPS / 10), SEED + 1, () => {
    resetAlignmentSupport();
    const device = openDevice({ kernel, hbmSize: HBM });
    return { device, close: () => device.close() };
  });
  resetAlignmentSupport();
  fake.close();
  console.log(`# memory model, late copies and no alignment: ${done} steps, ${refused} refused, seed ${SEED + 1}`);
});

/** A driver that refuses every alignment. */
function withoutAlignment(kernel: Kernel): Kernel {
  return {
    kind: kernel.kind, open: (path, flags) => kernel.open(path, flags), close: (fd) => kernel.close(fd),
    mmap: (fd, length, protection, flags, offset) => kernel.mmap(fd, length, protection, flags, offset),
    readText: (path) => kernel.readText(path), list: (path) => kernel.list(path),
    ioctl: (fd, request, address) => request === requests.MEM_ALLOC_V2MT64.request && pointer(address + 8) !== 0 ? -Errno.EINVAL : kernel.ioctl(fd, request, address),
  };
}
