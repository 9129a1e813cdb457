// Which paths of a program are the fake's.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { pinned } from "../../ffi/memory.ts";
import { AT_FDCWD, classify, normalize, placeOf, readPath } from "../../lib/shim/paths.ts";
import { skipShim } from "./support.ts";

test("names of the node, of sysfs files and of descriptors are told apart from everything else", () => {
  assert.deepEqual(classify("/dev/neuron0"), { kind: "device", index: 0 });
  assert.deepEqual(classify("/dev/neuron63"), { kind: "device", index: 63 });
  assert.deepEqual(classify("/sys/class/neuron_device"), { kind: "sysfs", path: "class/neuron_device" });
  assert.deepEqual(classify("/sys/module/neuron/version"), { kind: "sysfs", path: "module/neuron/version" });
  assert.deepEqual(classify("/proc/self/fd/12"), { kind: "descriptor", owner: undefined, fd: 12 });
  assert.deepEqual(classify("/proc/77/fd/3"), { kind: "descriptor", owner: 77, fd: 3 });
  assert.deepEqual(classify("/proc/77/task/78/fd/3"), { kind: "descriptor", owner: 77, fd: 3 });
  for (const other of ["/dev/neuron", "/dev/neuron01", "/dev/neuron0/x", "/dev/neuron-1", "/dev/neuronx", "/dev/neuron0 ", "/sys/module/neurons",
    "/sys/class/neuron_devices", "/sys/devices/virtual", "/proc/self/fd", "/proc/self/fd/x", "/home/dev/neuron0", "/dev/neuron99999"]) {
    assert.equal(classify(other), undefined, other);
  }
});

test("paths are normalised by name as the kernel walks them without links", () => {
  for (const [path, normal] of [["/dev/./neuron0", "/dev/neuron0"], ["//dev//neuron0", "/dev/neuron0"], ["/a/../dev/neuron0", "/dev/neuron0"],
    ["/../../dev/neuron0/", "/dev/neuron0"], ["/", "/"], ["/dev/..", "/"]] as const) {
    assert.equal(normalize(path), normal);
  }
  fc.assert(fc.property(fc.array(fc.constantFrom("a", "b", ".", "..", "", "neuron0")), (parts) => {
    const normal = normalize(`/${parts.join("/")}`);
    assert.equal(normalize(normal), normal);
    assert.ok(!/\/(\.|\.\.|)\//.test(normal));
  }));
});

/** Reads a path that lies in this process. */
function read(bytes: Uint8Array): string | undefined {
  const memory = pinned(8192);
  memory.bytes.set(bytes);
  return readPath(process.pid, memory.address);
}

test("paths are read from the program up to their end, and only those that can matter", { skip: skipShim }, () => {
  const encode = (text: string) => new TextEncoder().encode(`${text}\0rest neuron`);
  assert.equal(read(encode("/dev/neuron0")), "/dev/neuron0");
  assert.equal(read(encode("/sys/module/neuron/ü")), "/sys/module/neuron/ü");
  assert.equal(read(encode("/etc/passwd")), undefined);
  assert.equal(read(encode("")), "");
  const long = `/${"x/".repeat(1500)}neuron0`;
  assert.equal(read(encode(long)), long);
  assert.equal(read(new Uint8Array(8192).fill(0x6e)), undefined, "longer than any path");
  assert.equal(readPath(process.pid, 0), undefined);
  assert.equal(readPath(process.pid, 8), undefined);
});

test("relative paths begin in the program's directory", { skip: skipShim }, () => {
  const before = process.cwd();
  process.chdir("/dev");
  try {
    assert.deepEqual(placeOf(process.pid, AT_FDCWD, "neuron3"), { kind: "device", index: 3 });
    assert.deepEqual(placeOf(process.pid, AT_FDCWD, "../dev/./neuron3"), { kind: "device", index: 3 });
  } finally {
    process.chdir(before);
  }
  assert.equal(placeOf(process.pid, AT_FDCWD, "neuron3"), undefined);
  assert.equal(placeOf(process.pid, 9999, "neuron3"), undefined);
});
