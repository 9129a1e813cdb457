// The memory of another process, with this process in its place.
import assert from "node:assert/strict";
import { test } from "node:test";
import { MapFlag, native, pinned, Protection, type Window } from "../../ffi/mod.ts";
import { PollSet } from "../../lib/shim/process.ts";
import { readProcess, writeProcess } from "../../ffi/memory.ts";
import { TargetMemory } from "../../lib/shim/target_memory.ts";
import { skipShim } from "./support.ts";

const PAGE = 4096;
const alive = { valid: () => true };

function memory(liveness = alive): TargetMemory {
  const target = new TargetMemory();
  target.begin(process.pid, liveness);
  return target;
}

/** Two pages of which only the first is accessible; `use` gets its address. */
function withCliff(use: (address: number, bytes: Uint8Array) => void, protection: number = Protection.READ | Protection.WRITE): void {
  const anonymous = MapFlag.PRIVATE | MapFlag.ANONYMOUS;
  const address = native().mmap(2 * PAGE, Protection.READ | Protection.WRITE, anonymous, -1, 0);
  const bytes = new Uint8Array(native().bufferAt(address, PAGE)).fill(7);
  native().munmap(address + PAGE, PAGE);
  if (protection !== (Protection.READ | Protection.WRITE)) native().syscall(process.arch === "arm64" ? 226 : 10, address, PAGE, protection);
  use(address, bytes);
  native().munmap(address, PAGE);
}

test("a transfer stops at memory that is not there and reports the rest", { skip: skipShim }, () => {
  withCliff((address, bytes) => {
    const into = new Uint8Array(100);
    assert.equal(memory().read(address + PAGE - 30, into), 70);
    assert.deepEqual([...into.subarray(0, 30)], Array(30).fill(7));
    assert.equal(memory().write(address + PAGE - 30, new Uint8Array(100).fill(9)), 70);
    assert.equal(bytes[PAGE - 1], 9);
    assert.equal(memory().read(address + PAGE, into), 100);
    assert.equal(memory().writeU64(address + PAGE - 4, 1), 4);
    assert.equal(memory().writeU64(address, 2 ** 40 + 3), 0);
    assert.deepEqual([...bytes.subarray(0, 8)], [3, 0, 0, 0, 0, 1, 0, 0]);
  });
});

test("addresses outside user space fault as a whole, and an empty transfer never does", { skip: skipShim }, () => {
  const into = new Uint8Array(8);
  for (const address of [0, 4096, 0x10000, 2 ** 47, 0xffff888000000000, 2 ** 64 - 8]) {
    assert.equal(memory().read(address, into), 8);
    assert.equal(memory().write(address, into), 8);
    assert.equal(memory().read(address, new Uint8Array(0)), 0);
  }
});

test("read-only memory is not written to", { skip: skipShim }, () => {
  withCliff((address) => {
    assert.equal(memory().read(address, new Uint8Array(16)), 0);
    assert.equal(memory().write(address, new Uint8Array(16)), 16);
  }, Protection.READ);
});

test("structs are staged side by side and stored where they came from", { skip: skipShim }, () => {
  const place = pinned(200_000);
  place.bytes.fill(5);
  const target = memory();
  const windows: Window[] = [];
  for (const [offset, length] of [[0, 56], [1000, 12296], [20_000, 100_000], [150_000, 24]] as const) {
    const window: Window = { view: new DataView(new ArrayBuffer(8)), offset: 0 };
    assert.equal(target.open(place.address + offset, length, window), 0);
    assert.equal(window.view.getUint8(window.offset + length - 1), 5);
    window.view.setUint32(window.offset + length - 4, 0x01020304, true);
    windows.push(window);
    assert.equal(place.bytes[offset + length - 1], 5, "not visible before it is committed");
    assert.equal(target.commit(place.address + offset, length, window), 0);
    assert.equal(place.bytes[offset + length - 1], 1);
  }
  assert.notEqual(windows[0]!.offset, windows[1]!.offset);
});

test("nothing is stored for a thread that does not wait any more", { skip: skipShim }, () => {
  const place = pinned(64);
  let asked = 0;
  const gone = memory({ valid: () => (asked++, false) });
  assert.equal(gone.write(place.address, new Uint8Array(8).fill(1)), 8);
  assert.equal(gone.read(place.address, new Uint8Array(8)), 0);
  assert.equal(place.bytes[0], 0);
  assert.equal(asked, 1);
  const living = memory({ valid: () => (asked++, true) });
  for (let i = 0; i < 5; i++) assert.equal(living.writeU64(place.address, i), 0);
  assert.equal(asked, 2, "once per request is enough");
});

test("a process that is gone has no memory", { skip: skipShim }, () => {
  const place = pinned(16);
  assert.equal(readProcess(2 ** 22, place.address, place.address, 8), -3);
  assert.equal(writeProcess(2 ** 22, place.address, place.address, 8), -3);
});

test("a poll set reports events by place and grows", { skip: skipShim }, () => {
  const set = new PollSet();
  const zero = native().open("/dev/zero", 0, 0);
  for (let i = 0; i < 100; i++) assert.equal(set.add(i === 70 ? zero : -1), i);
  assert.equal(set.wait(0), 1);
  assert.equal(set.events(70), 1);
  assert.equal(set.events(69), 0);
  set.clear();
  assert.equal(set.wait(1), 0);
  native().close(zero);
});
