// Every operation × every errno its handler can return: the caller sees the class, the request, the number, and nothing has changed.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Errno, errnoName } from "../../ffi/errno.ts";
import type { Kernel } from "../../ffi/kernel.ts";
import { type NeuronDevice, RequestError, requestByNumber } from "../../lib/driver/mod.ts";
import { chunk, openBench } from "./harness.ts";

const ERRNOS = [1, 2, 4, 5, 7, 9, 11, 12, 13, 14, 16, 19, 22, 25, 28, 110, 524];

interface Setting {
  readonly device: NeuronDevice;
  readonly a: number;
  readonly b: number;
}

interface Operation {
  /** Name of the request that fails. */
  readonly request: string;
  readonly run: (setting: Setting) => unknown;
  /** Whether EINTR is repeated, because the request only reads. */
  readonly repeats?: boolean;
  /** Errnos that are an answer rather than an error, and what the call gives then. */
  readonly answers?: Readonly<Record<number, unknown>>;
  readonly driverVersion?: string;
}

const uuid = new Uint8Array(32);
const bytes = new Uint8Array(4096);
const operations: Readonly<Record<string, Operation>> = {
  compatibleVersion: { request: "COMPATIBLE_VERSION", run: ({ device }) => device.compatibleVersion(), repeats: true },
  connectedDevices: { request: "DEVICE_INFO", run: ({ device }) => device.connectedDevices(), repeats: true },
  pciAddress: { request: "DEVICE_BDF_EXT", run: ({ device }) => device.pciAddress(), repeats: true },
  hostDeviceId: { request: "HOST_DEVICE_ID", run: ({ device }) => device.hostDeviceId(), repeats: true },
  routingMap: { request: "HOST_DEVICE_ID_TO_RID_MAP", run: ({ device }) => device.routingMap(), repeats: true },
  coreMap: { request: "GET_LOGICAL_TO_PHYSICAL_NC_MAP", run: ({ device }) => device.coreMap(), repeats: true },
  apps: { request: "DEVICE_GET_ALL_APPS_INFO", run: ({ device }) => device.apps(), repeats: true },
  alloc: { request: "MEM_ALLOC_V2MT64", run: ({ device }) => device.alloc(chunk(4096)) },
  allocPa: { request: "MEM_ALLOC_V2MT64_PA", run: ({ device }) => device.alloc(chunk(4096)), driverVersion: "2.28" },
  scratchpad: { request: "MEM_ALLOC_V2MT64", run: ({ device }) => device.allocContiguousScratchpad({ size: 4096, hbm: 0, core: 0 }) },
  getPa: { request: "MEM_GET_PA", run: ({ device, a }) => device.getPa(a), repeats: true },
  free: { request: "MEM_FREE", run: ({ device, a }) => device.free(a) },
  memoryInfo: { request: "MEM_GET_INFO", run: ({ device, a }) => device.memoryInfo(a), repeats: true },
  map: { request: "MEM_GET_INFO", run: ({ device, a }) => device.map(a, 65536).close(), repeats: true },
  extendedInfo: { request: "MEM_GET_EXTENDED_INFO", run: ({ device, a }) => device.extendedInfo(a), repeats: true },
  findChunk: { request: "MEM_MC_GET_INFO_V2", run: ({ device }) => device.findChunk(0), answers: { [Errno.ENOMEM]: undefined } },
  dumpChunks: { request: "DUMP_MEM_CHUNKS", run: ({ device }) => device.dumpChunks(0).length, repeats: true, answers: { [Errno.EAGAIN]: 3 } },
  copy: { request: "MEM_COPY64", run: ({ device, a, b }) => device.copy(a, b, 4096) },
  copyAsync: { request: "MEM_COPY_ASYNC64", run: ({ device, a, b }) => device.copyAsync(a, b, 4096, 0) },
  copyWait: { request: "MEM_COPY_ASYNC_WAIT", run: ({ device, a, b }) => device.copyWait(a, b, 1) },
  bufCopyIn: { request: "MEM_BUF_COPY64", run: ({ device, a }) => device.bufCopyIn(a, 0, bytes) },
  bufCopyOut: { request: "MEM_BUF_COPY64", run: ({ device, a }) => device.bufCopyOut(a, 0, new Uint8Array(4096)) },
  zeroCopyIn: { request: "MEM_BUF_ZEROCOPY64", run: ({ device, a }) => device.zeroCopyIn(a, 0, bytes), answers: { [Errno.EINVAL]: { way: "buffer", requests: 2 } } },
  zeroCopyOut: {
    request: "MEM_BUF_ZEROCOPY64_2_25", run: ({ device, a }) => device.zeroCopyOut(a, 0, new Uint8Array(4096)).way, driverVersion: "2.27",
    answers: { [Errno.EINVAL]: "buffer" },
  },
  batch: {
    request: "MEM_BUF_ZEROCOPY64_BATCHES", run: ({ device, a }) => device.batchCopy("toDevice", [{ handle: a, operations: [{ offset: 0, buffer: bytes }] }]).way,
    driverVersion: "2.27", answers: { [Errno.EINVAL]: "buffer" },
  },
  memset: { request: "MEMSET64", run: ({ device, a }) => device.memset(a, 0, 4096, 1) },
  markCores: { request: "CRWL_NC_RANGE_MARK_EXT0", run: ({ device }) => device.markCores(1) },
  unmarkCores: { request: "CRWL_NC_RANGE_UNMARK_EXT0", run: ({ device }) => device.unmarkCores([]) },
  readerEnter: { request: "CRWL_READER_ENTER", run: ({ device }) => device.readerEnter(0, uuid) },
  readerExit: { request: "CRWL_READER_EXIT", run: ({ device }) => device.readerExit(0, uuid) },
  writerEnter: { request: "CRWL_WRITER_ENTER", run: ({ device }) => device.writerEnter(0, uuid) },
  writerDowngrade: { request: "CRWL_WRITER_DOWNGRADE", run: ({ device }) => device.writerDowngrade(0, uuid) },
  setCoreInit: { request: "CINIT_SET_STATE", run: ({ device }) => device.setCoreInit(0, 1) },
  modelStartedCount: { request: "NC_MODEL_STARTED_COUNT", run: ({ device }) => device.modelStartedCount(0), repeats: true },
  reset: { request: "NC_RESET", run: ({ device }) => device.reset() },
  resetReady: { request: "NC_RESET_READY", run: ({ device }) => device.resetReady(1) },
  acquireDatastore: { request: "ACQUIRE_NEURON_DS", run: ({ device }) => device.acquireDatastore() },
  releaseDatastore: { request: "RELEASE_NEURON_DS", run: ({ device }) => device.releaseDatastore() },
  resourceRange: { request: "RESOURCE_MMAP_INFO", run: ({ device }) => device.resourceRange(0, 0, 0), repeats: true },
  dmaBuf: { request: "DMABUF_FD", run: ({ device }) => device.dmaBuf(65536, 4096) },
};

/** Answers the next `name` with an errno, once. */
function armable(armed: { name: string; errno: number; fired: number }) {
  return (kernel: Kernel): Kernel => ({
    kind: kernel.kind, open: (path, flags) => kernel.open(path, flags), close: (fd) => kernel.close(fd),
    mmap: (fd, length, protection, flags, offset) => kernel.mmap(fd, length, protection, flags, offset),
    readText: (path) => kernel.readText(path), list: (path) => kernel.list(path),
    ioctl(fd, request, address) {
      if (requestByNumber(request)?.name !== armed.name) return kernel.ioctl(fd, request, address);
      armed.name = "";
      armed.fired++;
      return -armed.errno;
    },
  });
}

let cells = 0;
for (const [title, operation] of Object.entries(operations)) {
  test(`${title}: every errno of ${operation.request} reaches the caller as a typed error`, { timeout: 60_000 }, () => {
    const answers = Object.keys(operation.answers ?? {}).map(Number);
    // An errno that is an answer may change how the device is used from then on: those come last.
    const order = [...ERRNOS.filter((errno) => !answers.includes(errno)), ...answers];
    const armed = { name: "", errno: 0, fired: 0 };
    using bench = openBench(operation.driverVersion === undefined ? {} : { driverVersion: operation.driverVersion }, armable(armed));
    const { device } = bench;
    for (const errno of order) {
      Object.assign(armed, { errno, fired: 0 });
      const [a, b] = [device.alloc(chunk(65536)), device.alloc(chunk(65536))];
      const before = device.dumpChunks(0);
      armed.name = operation.request;
      cells++;
      const where = `${title}, ${errnoName(errno)}`;
      if (operation.answers !== undefined && errno in operation.answers) {
        assert.deepEqual(operation.run({ device, a, b }), operation.answers[errno], where);
      } else if (errno === Errno.EINTR && operation.repeats === true) {
        assert.doesNotThrow(() => operation.run({ device, a, b }), where);
      } else {
        assert.throws(() => operation.run({ device, a, b }), (error: unknown) => {
          assert.ok(error instanceof RequestError, `${where}: ${String(error)}`);
          assert.equal(error.errno, errno, where);
          assert.equal(error.request, operation.request, where);
          assert.ok(error.message.includes(errnoName(errno)) && error.message.includes(operation.request), error.message);
          return true;
        });
      }
      assert.equal(armed.fired, 1, where);
      armed.name = "";
      assert.deepEqual(device.dumpChunks(0), before, `${where}: nothing may stay allocated or be freed`);
      device.free(a);
      device.free(b);
    }
  });
}

test("the sweep covered every cell of operations × errnos", () => {
  console.log(`# errno sweep: ${cells} cells (${Object.keys(operations).length} operations × ${ERRNOS.length} errnos)`);
  assert.equal(cells, Object.keys(operations).length * ERRNOS.length);
});
