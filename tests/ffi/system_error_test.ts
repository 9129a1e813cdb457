import assert from "node:assert/strict";
import { test } from "node:test";
import { checkResult, Errno, errnoName, errnoText, linuxKernel, Mapping, native, NeuronError, Protection, SystemError } from "../../ffi/mod.ts";
import { runFile } from "../support/run_code.ts";

test("a SystemError names the call, the errno and its meaning", () => {
  const error = new SystemError("open", Errno.EACCES, { subject: "/dev/neuron0", hint: "Join the group.", details: { flags: 2 } });
  assert.equal(error.message, "Cannot open /dev/neuron0: EACCES (13), permission denied");
  assert.equal(error.code, "EACCES");
  assert.equal(error.hint, "Join the group.");
  assert.deepEqual(error.details, { flags: 2 });
  assert.ok(error instanceof NeuronError);
});

test("checkResult passes results through and turns −errno into a SystemError", () => {
  assert.equal(checkResult(0, "close"), 0);
  assert.equal(checkResult(22, "ioctl"), 22);
  assert.throws(() => checkResult(-Errno.ENOMEM, "mmap"), { name: "SystemError", errno: 12, call: "mmap" });
});

test("unknown errno numbers keep their number, kernel-internal ones have a name", () => {
  assert.equal(errnoName(9999), "errno 9999");
  assert.equal(errnoText(9999), "unknown error");
  assert.equal(errnoName(524), "ENOTSUPP");
});

test("the Linux kernel answers through the seam with −errno", () => {
  const kernel = linuxKernel();
  assert.equal(kernel.open("/nonexistent/path", 0), -Errno.ENOENT);
  assert.equal(kernel.close(-1), -Errno.EBADF);
  assert.equal(kernel.mmap(-1, 4096, Protection.READ, 1, 0), -Errno.EBADF);
  assert.equal(kernel.readText("/nonexistent"), -Errno.ENOENT);
  assert.equal(kernel.list("/proc/self/status"), -Errno.ENOTDIR);
  const fd = kernel.open("/proc/self/status", 0);
  assert.ok(fd >= 0);
  assert.equal(kernel.ioctl(fd, 0x80044e06, 0), -Errno.ENOTTY);
  assert.equal(kernel.close(fd), 0);
  assert.match(kernel.readText("/proc/self/status") as string, /^Name:/);
});

test("closing a mapping whose unmap fails reports the failure, once", () => {
  const mapping = new Mapping(4096, 4096, () => -Errno.EINVAL);
  assert.throws(() => mapping.close(), { name: "SystemError", call: "munmap" });
  mapping.close();
});

test("another operating system is refused with a reason", () => {
  const { stdout, code } = runFile("tests/ffi/programs/other_platform.ts");
  assert.equal(code, 0);
  const error = JSON.parse(stdout) as { name: string; message: string; hint: string };
  assert.equal(error.name, "UnsupportedRuntimeError");
  assert.match(error.message, /only on Linux, this is darwin/);
  assert.match(error.hint, /need Linux/);
});

test("each worker thread reads its own errno, while the main thread fails differently", async () => {
  const system = native();
  const workers = Array.from({ length: 8 }, () => {
    const worker = new Worker(new URL("./programs/errno_worker.ts", import.meta.url), { type: "module" });
    return new Promise<number[]>((done, fail) => {
      worker.onmessage = (event) => {
        worker.terminate();
        done(event.data as number[]);
      };
      worker.onerror = (event) => fail(new Error(event.message));
    });
  });
  const fd = system.open("/dev/null", 0, 0);
  for (let i = 0; i < 2000; i++) assert.equal(system.ioctl(fd, 0x80044e06, 0), -Errno.ENOTTY);
  for (const seen of await Promise.all(workers)) assert.deepEqual(seen, [-Errno.EBADF]);
  system.close(fd);
});
