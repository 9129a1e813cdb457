import assert from "node:assert/strict";
import { test } from "node:test";
import { Errno } from "../../ffi/errno.ts";
import { ArgumentError } from "../../ffi/error.ts";
import { createFake, type FakeOptions } from "../../lib/fake/machine.ts";
import { Client, openClient, pattern } from "./client.ts";

const MIB = 2 ** 20;

test("drivers from 2.29 on say ENOENT for a bad handle and E2BIG for a range out of bounds; older ones EINVAL for both", () => {
  for (const [driverVersion, handleErrno, rangeErrno] of [["2.24.7", "EINVAL", "EINVAL"], ["2.27", "EINVAL", "EINVAL"], ["2.29", "ENOENT", "E2BIG"]] as const) {
    using bench = openClient({ driverVersion });
    const { client } = bench;
    const memHandle = client.alloc(MIB);
    const badHandle = -Errno[handleErrno];
    const outOfBounds = -Errno[rangeErrno];
    const buffer = client.dataAt;
    assert.equal(client.free(999), badHandle, driverVersion);
    assert.equal(client.send("MEMSET64", { memHandle: 999, size: 1 }), badHandle);
    assert.equal(client.send("MEM_COPY64", { srcMemHandle: memHandle, dstMemHandle: 999, size: 1 }), badHandle);
    assert.equal(client.send("MEM_BUF_COPY64", { memHandle: 999, buffer, size: 1 }), badHandle);
    assert.equal(client.send("MEM_COPY_ASYNC_WAIT", { srcMemHandle: memHandle, dstMemHandle: 999, pwaitHandle: 1 }), badHandle);
    // Those two never changed.
    assert.equal(client.send("MEM_GET_PA", { memHandle: 999, pa: client.resultAt }), -Errno.EINVAL);
    assert.equal(client.send("MEM_GET_EXTENDED_INFO", { memHandle: 999, version: 1 }), Errno.EINVAL);
    assert.equal(client.send("MEMSET64", { memHandle, offset: 4096, size: MIB }), outOfBounds);
    assert.equal(client.send("MEM_BUF_COPY64", { memHandle, buffer, size: 2, offset: MIB - 1 }), outOfBounds);
    assert.equal(client.send("MEM_COPY64", { srcMemHandle: memHandle, dstMemHandle: memHandle, size: MIB, dstOffset: 1 }), outOfBounds);
  }
});

test("a sum past 2^64 slips through the bounds check of drivers before 2.26 only", () => {
  const offset = 2n ** 64n - 4096n;
  for (const [driverVersion, result] of [["2.24.7", -Errno.EIO], ["2.25", -Errno.EIO], ["2.26", -Errno.EINVAL], ["2.29", -Errno.E2BIG]] as const) {
    using bench = openClient({ driverVersion, danger: "errno" });
    const memHandle = bench.client.alloc(MIB);
    assert.equal(bench.client.send("MEMSET64", { memHandle, offset, size: 8192 }), result, driverVersion);
  }
});

test("without a copy engine a transfer ends with EPERM, from 2.27 on with ETIMEDOUT", () => {
  for (const [driverVersion, errno] of [["2.24.7", "EPERM"], ["2.26", "EPERM"], ["2.27", "ETIMEDOUT"], ["2.29", "ETIMEDOUT"]] as const) {
    using bench = openClient({ driverVersion, engine: false });
    const memHandle = bench.client.alloc(MIB);
    assert.equal(bench.client.send("MEMSET64", { memHandle, size: 4096 }), -Errno[errno], driverVersion);
  }
});

test("feature flags and the version file tell what a driver has, and leaving a request out takes its flag away", () => {
  const flags = (options: Partial<FakeOptions>) => {
    using bench = openClient(options);
    assert.equal(bench.client.send("DRIVER_INFO_GET"), 0);
    return [bench.client.field("DRIVER_INFO_GET", "featureFlags1"), bench.machine.readText("/sys/module/neuron/version")];
  };
  assert.deepEqual(flags({}), [0xff, "2.24.7.0\n"]);
  assert.deepEqual(flags({ driverVersion: "2.27" }), [0x1ff, "2.27.4.0\n"]);
  assert.deepEqual(flags({ driverVersion: "2.29.0.0" }), [0x1ff, "2.29.0.0\n"]);
  assert.deepEqual(flags({ without: ["MEM_ALLOC_V2MT64", "MEM_ALLOC_V2MT"] }), [0xff & ~64 & ~16, "2.24.7.0\n"]);
  using bench = openClient({ without: ["MEM_ALLOC_V2MT64"] });
  const { client } = bench;
  assert.equal(client.alloc(MIB), -Errno.EINVAL);
  assert.equal(client.send("MEM_ALLOC_V2MT", { size: MIB, memType: 9, memHandle: client.resultAt }), 0);
});

/** Round trip by one form of zero-copy. */
function roundTrip(driverVersion: string, form: "MEM_BUF_ZEROCOPY64" | "MEM_BUF_ZEROCOPY64_2_25" | "MEM_BUF_ZEROCOPY64_2_29"): Uint8Array | number {
  using bench = openClient({ driverVersion });
  const { client } = bench;
  const direction = form === "MEM_BUF_ZEROCOPY64" ? "copyToMemHandle" : "isCopyToDevice";
  const queue = form === "MEM_BUF_ZEROCOPY64" ? {} : { h2tQid: -1 };
  const memHandle = client.alloc(MIB);
  client.data.set(pattern(100_000));
  const written = client.send(form, { memHandle, buffer: client.dataAt, size: 100_000, offset: 4096, [direction]: 1, ...queue });
  if (written !== 0) return written;
  assert.deepEqual(client.read(memHandle, 4096, 100_000), pattern(100_000));
  client.data.fill(0);
  const read = client.send(form, { memHandle, buffer: client.dataAt, size: 100_000, offset: 4096, [direction]: 0, ...queue });
  return read === 0 ? client.data.slice(0, 100_000) : read;
}

test("flag 1 of a zero-copy writes the device, in the 40-, 48- and 64-byte forms of 2.24.7, 2.27 and 2.29 (D-103)", () => {
  for (const [driverVersion, form] of [["2.24.7", "MEM_BUF_ZEROCOPY64"], ["2.27", "MEM_BUF_ZEROCOPY64_2_25"], ["2.29", "MEM_BUF_ZEROCOPY64_2_29"]] as const) {
    assert.deepEqual(roundTrip(driverVersion, form), pattern(100_000), driverVersion);
  }
});

test("a zero-copy form of another size is refused by drivers from 2.25 on", () => {
  for (const [driverVersion, form] of [["2.27", "MEM_BUF_ZEROCOPY64"], ["2.27", "MEM_BUF_ZEROCOPY64_2_29"], ["2.29", "MEM_BUF_ZEROCOPY64_2_25"]] as const) {
    assert.equal(roundTrip(driverVersion, form), -Errno.EINVAL, `${form} on ${driverVersion}`);
  }
});

test("zero-copy of trn1 needs a driver that was told to allow it", () => {
  const send = (options: Partial<FakeOptions>) => {
    using bench = openClient({ product: "trn1", driverVersion: "2.27", ...options });
    const memHandle = bench.client.alloc(MIB);
    return bench.client.send("MEM_BUF_ZEROCOPY64_2_25", { memHandle, buffer: bench.client.dataAt, size: 65536, isCopyToDevice: 1, h2tQid: -1 });
  };
  assert.equal(send({}), -Errno.EINVAL);
  assert.equal(send({ moduleParameters: { zerocopy_trn1_override: 1 } }), 0);
});

test("batches move all their pieces or are refused before the first, and 2.24.7 does not have them", () => {
  for (const driverVersion of ["2.24.7", "2.27"]) {
    using bench = openClient({ driverVersion });
    const { client } = bench;
    const handles = [client.alloc(MIB), client.alloc(MIB)];
    const { view } = client.memory;
    const base = client.dataAt - client.memory.address;
    const write = (at: number, value: number) => view.setBigUint64(base + at, BigInt(value), true);
    const prepare = (lastSize: number) => {
      handles.forEach((handle, batch) => {
        write(batch * 40, handle);
        write(batch * 40 + 8, 4096);
        write(batch * 40 + 16, client.dataAt + 256 + batch * 64);
        write(batch * 40 + 24, 2);
        for (const op of [0, 1]) {
          write(256 + batch * 64 + op * 24, op * 8192);
          write(256 + batch * 64 + op * 24 + 8, op === 1 && batch === 1 ? lastSize : 5000);
          write(256 + batch * 64 + op * 24 + 16, client.dataAt + 4096 + (batch * 2 + op) * 8192);
        }
      });
    };
    client.data.set(pattern(5 * 8192), 4096);
    prepare(5000);
    const send = () => client.send("MEM_BUF_ZEROCOPY64_BATCHES", { batchesPtr: client.dataAt, numBatches: 2, isCopyToDevice: 1, h2tQid: -1 });
    if (driverVersion === "2.24.7") {
      assert.equal(send(), -Errno.EINVAL);
      continue;
    }
    assert.equal(send(), 0);
    handles.forEach((handle, batch) => {
      for (const op of [0, 1]) {
        const from = (batch * 2 + op) * 8192;
        assert.deepEqual(client.read(handle, 4096 + op * 8192, 5000), pattern(5 * 8192).subarray(from, from + 5000));
      }
    });
    client.data.fill(9, 4096, 4096 + 5 * 8192);
    prepare(2 * MIB);
    assert.equal(send(), -Errno.EINVAL);
    assert.deepEqual(client.read(handles[1]!, 4096, 5000), pattern(5 * 8192).subarray(16384, 21384), "the second batch did not start");
  }
});

test("the allocation of 2.28 returns the address with the handle", () => {
  using bench = openClient({ driverVersion: "2.29" });
  const { client } = bench;
  assert.equal(client.send("MEM_ALLOC_V2MT64_PA", { size: 8192, memType: 9, memHandle: client.resultAt }), 0);
  const handle = client.result;
  const pa = client.field("MEM_ALLOC_V2MT64_PA", "pa");
  assert.equal(client.pa(handle), pa);
  using old = openClient({ driverVersion: "2.27" });
  assert.equal(old.client.send("MEM_ALLOC_V2MT64_PA", { size: 8192, memType: 9, memHandle: old.client.resultAt }), -Errno.EINVAL);
});

test("the driver maps host ids to routing ids, the identity for one device; a driver without that request says EINVAL", () => {
  for (const [product, devices] of [["trn1", 1], ["trn1", 16], ["trn2", 16]] as const) {
    using bench = openClient({ product, devices });
    const { client } = bench;
    assert.equal(client.send("HOST_DEVICE_ID_TO_RID_MAP"), 0);
    assert.equal(client.memory.view.getUint32(0, true), devices);
    const ids = Array.from({ length: devices }, (_, index) => client.memory.view.getUint32(4 + index * 4, true));
    assert.deepEqual([...ids].sort((a, b) => a - b), Array.from({ length: devices }, (_, index) => index));
    if (devices === 1) assert.deepEqual(ids, [0]);
  }
  using without = openClient({ without: ["HOST_DEVICE_ID_TO_RID_MAP"] });
  assert.equal(without.client.send("HOST_DEVICE_ID_TO_RID_MAP"), -Errno.EINVAL);
});

test("trn3 needs a driver that knows it, and every product has its own geometry", () => {
  assert.throws(() => createFake({ product: "trn3", driverVersion: "2.24.7" }), ArgumentError);
  for (const [product, hbms, architecture] of [["trn1", 2, 2], ["inf2", 2, 2], ["trn2", 4, 3], ["trn3", 4, 4]] as const) {
    using machine = createFake({ product });
    const client = new Client(machine.process());
    assert.equal(client.send("DEVICE_BASIC_INFO"), 0);
    assert.equal(client.field("DEVICE_BASIC_INFO", "architecture"), architecture, product);
    assert.equal(machine.device().hbms.length, hbms, product);
    assert.ok(client.alloc(MIB, { hbm: hbms - 1 }) > 0);
    assert.equal(client.alloc(MIB, { hbm: hbms }), -Errno.EINVAL);
  }
});

test("settings no machine can have are refused with what was wrong", () => {
  const bad: readonly Partial<FakeOptions>[] = [{ devices: 0 }, { devices: [70] }, { devices: [1.5] }, { hbmSize: 1000 }, { hbmSize: 2 ** 30 + 1 }, { hbmSize: 2 ** 40 }];
  for (const options of bad) assert.throws(() => createFake({ product: "trn2", ...options }), ArgumentError, JSON.stringify(options));
});

test("devices may have gaps: the others are not there", () => {
  using machine = createFake({ product: "trn2", devices: [1, 5] });
  const process = machine.process();
  assert.equal(process.open("/dev/neuron0", 2), -Errno.ENOENT);
  assert.ok(process.open("/dev/neuron5", 2) >= 0);
  assert.deepEqual(machine.list("/dev"), ["neuron1", "neuron5"]);
  assert.throws(() => machine.device(0), ArgumentError);
});
