// Facts about the runtimes' foreign function interfaces that this package relies on.
// A runtime upgrade that changes one of them fails here first.
import assert from "node:assert/strict";
import { test } from "node:test";
import { bytesAt, Errno, MapFlag, Mapping, MemfdFlag, native, pinned, Protection } from "../../ffi/mod.ts";

const system = native();
const page = 4096;

test("addressOf keeps a small typed array's bytes where they are", () => {
  for (const size of [1, 16, 64, 512, 1000]) {
    const small = new Uint8Array(size).fill(7);
    const address = system.addressOf(small);
    const view = new DataView(small.buffer);
    view.setUint8(0, 99);
    assert.equal(bytesAt(address, 1)[0], 99, `size ${size}`);
  }
});

test("a mapping of length 0 is reported as EINVAL, not as an address", () => {
  assert.equal(system.mmap(0, Protection.READ, MapFlag.PRIVATE | MapFlag.ANONYMOUS, -1, 0), -Errno.EINVAL);
});

test("errno of a failed ioctl is right each time: EBADF for fd -1, ENOTTY for /dev/null", () => {
  const fd = system.open("/dev/null", 0, 0);
  assert.ok(fd >= 0);
  const garbage: unknown[] = [];
  for (let i = 0; i < 100_000; i++) {
    assert.equal(system.ioctl(-1, 0x80044e06, 0), -Errno.EBADF);
    assert.equal(system.ioctl(fd, 0x80044e06, 0), -Errno.ENOTTY);
    if (i % 100 === 0) garbage.push(new Uint8Array(4096));
  }
  assert.equal(system.close(fd), 0);
  assert.equal(garbage.length, 1000);
});

test("views of a mapping are detached by close and do not crash afterwards", () => {
  const fd = system.memfdCreate("facts", MemfdFlag.CLOEXEC);
  assert.equal(system.ftruncate(fd, page), 0);
  const address = system.mmap(page, Protection.READ | Protection.WRITE, MapFlag.SHARED, fd, 0);
  const mapping = new Mapping(address, page);
  const bytes = mapping.bytes();
  bytes[0] = 1;
  mapping.close();
  mapping.close();
  assert.equal(bytes[0], undefined);
  assert.equal(bytes.byteLength, 0);
  assert.throws(() => mapping.bytes(), { name: "ClosedError" });
  system.close(fd);
});

test("a sparse file of 2^48 bytes can be mapped at a device address", () => {
  const fd = system.memfdCreate("facts", MemfdFlag.CLOEXEC);
  assert.equal(system.ftruncate(fd, 2 ** 48), 0);
  const offset = 0x804000000000;
  const address = system.mmap(page, Protection.READ | Protection.WRITE, MapFlag.SHARED, fd, offset);
  assert.ok(address > 0);
  using mapping = new Mapping(address, page);
  mapping.bytes()[0] = 42;
  const into = pinned(16);
  assert.equal(system.pread(fd, into.address, 1, offset), 1);
  assert.equal(into.bytes[0], 42);
  system.close(fd);
});

test("a mapping above 4 GiB is viewed in windows", () => {
  const length = 5 * 2 ** 30;
  const address = system.mmap(length, Protection.READ | Protection.WRITE, MapFlag.PRIVATE | MapFlag.ANONYMOUS | MapFlag.NORESERVE, -1, 0);
  using mapping = new Mapping(address, length);
  mapping.bytes(length - 1, 1)[0] = 5;
  assert.equal(mapping.bytes(length - 4, 4)[3], 5);
  const across = mapping.bytes(2 ** 30 - 2, 4);
  across[3] = 9;
  assert.equal(mapping.bytes(2 ** 30 + 1, 1)[0], 9);
  assert.throws(() => mapping.bytes(0, length), { name: "ArgumentError" });
});

test("buffers that a call uses survive forced collections", async () => {
  const collect = (globalThis as { Bun?: { gc(force: boolean): void } }).Bun?.gc ?? (() => {});
  const addresses: number[] = [];
  const kept = Array.from({ length: 50 }, (_, i) => {
    const memory = pinned(64);
    memory.bytes.fill(i);
    addresses.push(memory.address);
    return memory;
  });
  for (let i = 0; i < 5; i++) {
    collect(true);
    await new Promise((resolve) => setTimeout(resolve, 0));
    Array.from({ length: 1000 }, () => new ArrayBuffer(2048));
  }
  kept.forEach((memory, i) => assert.equal(bytesAt(addresses[i]!, 64)[63], memory.bytes[63]));
});
