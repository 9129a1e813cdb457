import assert from "node:assert/strict";
import { test } from "node:test";
import { Errno } from "../../ffi/errno.ts";
import { type CallRecord, openDevice, requestByNumber, withRequestFaults, withRequestLog } from "../../lib/driver/mod.ts";
import { requests } from "../../lib/abi/requests.ts";
import { createFake } from "../../lib/fake/machine.ts";
import { chunk } from "./harness.ts";

test("a request log sees every call in order, with the fields before and after", () => {
  const fake = createFake({ product: "trn2" });
  const records: CallRecord[] = [];
  const device = openDevice({ kernel: withRequestLog(fake.kernel(), (record) => records.push(record)) });
  assert.equal(records[0]?.call, "open");
  const handle = device.alloc(chunk(8192));
  device.map(handle, 8192).close();
  device.extendedInfo(handle);
  device.close();
  assert.deepEqual(records.map(({ index }) => index), records.map((_, index) => index));
  const info = records.find(({ name }) => name === "MEM_GET_EXTENDED_INFO")!;
  assert.equal(info.input["memHandle"], handle);
  assert.equal(info.output["size"], 8192);
  assert.deepEqual(records.slice(-4).map(({ call, name }) => `${call} ${name}`), ["ioctl MEM_GET_INFO", "mmap mmap", "ioctl MEM_GET_EXTENDED_INFO", "close close"]);
  assert.equal(records.at(-3)?.input["length"], 8192);
  fake.close();
});

test("a log that uses its own device is refused instead of mixing two requests' arguments", () => {
  const fake = createFake({ product: "trn2" });
  let again = false;
  const kernel = withRequestLog(fake.kernel(), ({ name }) => {
    if (again && name === "MEM_GET_PA") device.getPa(1);
  });
  const device = openDevice({ kernel });
  const handle = device.alloc(chunk(4096));
  again = true;
  assert.throws(() => device.getPa(handle), { name: "ArgumentError", message: /another request/ });
  again = false;
  assert.ok(device.getPa(handle) > 0, "and works again afterwards");
  fake.close();
});

test("unknown requests are logged by number", () => {
  const fake = createFake({ product: "trn2" });
  const names: string[] = [];
  const kernel = withRequestLog(fake.kernel(), ({ name }) => names.push(name));
  const fd = kernel.open("/dev/neuron0", 2);
  assert.equal(kernel.ioctl(fd, 0x5401, 0), -Errno.EINVAL);
  assert.equal(names.at(-1), "request 0x5401");
  fake.close();
});

test("faults hit the n-th matching call, once, several times or always, and count what they saw", () => {
  const fake = createFake({ product: "trn2" });
  const kernel = withRequestFaults(fake.kernel(), [{ request: "MEM_ALLOC_V2MT64", nth: 3, times: 2, errno: "ENOMEM" }]);
  const device = openDevice({ kernel }); // the probe is the first
  const outcomes = Array.from({ length: 5 }, () => {
    try {
      return device.alloc(chunk(4096));
    } catch (error) {
      return (error as { code: string }).code;
    }
  });
  assert.deepEqual(outcomes, [1, "ENOMEM", "ENOMEM", 2, 3]);
  assert.deepEqual([kernel.fired, kernel.matched], [2, 6]);
  fake.close();
});

test("a fault can be carried out all the same, answer with a positive number, and hit open and mmap", () => {
  const fake = createFake({ product: "trn2" });
  const kernel = withRequestFaults(fake.kernel(), [
    { call: "open", nth: 1, errno: Errno.EBUSY },
    { call: "mmap", nth: 1, errno: "ENOMEM" },
    { request: "MEM_FREE", errno: "EIO", carriedOut: true },
    { request: "MEM_GET_PA", result: 8 },
  ]);
  assert.throws(() => openDevice({ kernel }), { reason: "busy" });
  const device = openDevice({ kernel });
  const handle = device.alloc(chunk(4096));
  assert.throws(() => device.map(handle, 4096), { call: "mmap", errno: Errno.ENOMEM });
  assert.throws(() => device.getPa(handle), { errno: Errno.EFAULT });
  assert.throws(() => device.free(handle), { errno: Errno.EIO });
  assert.equal(device.dumpChunks(0).length, 1, "it was freed although EIO came back");
  fake.close();
});

test("a fault without an answer, or with an unknown errno, is refused", () => {
  const fake = createFake({ product: "trn2" });
  assert.throws(() => withRequestFaults(fake.kernel(), [{}]), { name: "ArgumentError" });
  assert.throws(() => withRequestFaults(fake.kernel(), [{ errno: "EWHATEVER" }]), { name: "ArgumentError", message: /EWHATEVER/ });
  fake.close();
});

test("every request of the table is found by its number", () => {
  for (const request of Object.values(requests)) assert.equal(requestByNumber(request.request)?.name, request.name);
  assert.equal(requestByNumber(1), undefined);
});
