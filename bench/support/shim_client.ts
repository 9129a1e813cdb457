/**
 * Runs under the shim and times requests as any program would issue them.
 * Prints, per operation, the median and the 99th percentile of each batch, in
 * nanoseconds.
 */
import { MapFlag, native, OpenFlag, pinned, Protection } from "../../ffi/mod.ts";
import { syscalls } from "../../ffi/syscalls.ts";
import { MemAllocV2MT64, MemBufCopy64, MemFree, MemGetPa, requests } from "../../lib/abi/mod.ts";

const BATCHES = 12;
const BATCH = 1000;
const system = native();

/** Sorted samples of one batch, in nanoseconds. */
function batch(action: () => unknown, count: number): number[] {
  const samples: number[] = [];
  for (let i = 0; i < count; i++) {
    const begun = process.hrtime.bigint();
    action();
    samples.push(Number(process.hrtime.bigint() - begun));
  }
  return samples.sort((a, b) => a - b);
}

function time(action: () => unknown, count = BATCH): { readonly p50: readonly number[]; readonly p99: readonly number[] } {
  batch(action, count);
  const batches = Array.from({ length: BATCHES }, () => batch(action, count));
  return { p50: batches.map((samples) => samples[count >> 1]!), p99: batches.map((samples) => samples[Math.floor(count * 0.99)]!) };
}

const fd = system.open("/dev/neuron0", OpenFlag.RDWR | OpenFlag.CLOEXEC, 0);
if (fd < 0) throw new Error(`open: ${fd}`);
const out = pinned(64);
const alloc = MemAllocV2MT64.alloc();
const free = MemFree.alloc();
const getPa = MemGetPa.alloc();
const copy = MemBufCopy64.alloc();
const data = pinned(65536);

function allocate(size: number): number {
  Object.assign(alloc, { size, memType: 9, memHandle: out.address });
  if (system.ioctl(fd, requests.MEM_ALLOC_V2MT64.request, alloc.$address) !== 0) throw new Error("the allocation failed");
  return out.view.getUint32(0, true);
}

function release(handle: number): void {
  free.memHandle = handle;
  if (system.ioctl(fd, requests.MEM_FREE.request, free.$address) !== 0) throw new Error("the free failed");
}

const kept = allocate(65536);
Object.assign(getPa, { memHandle: kept, pa: out.address });
Object.assign(copy, { memHandle: kept, buffer: data.address, copyToMemHandle: 1 });
const copyOf = (size: number) => () => {
  copy.size = size;
  return system.ioctl(fd, requests.MEM_BUF_COPY64.request, copy.$address);
};
system.ioctl(fd, requests.MEM_GET_PA.request, getPa.$address);
const pa = Number(out.view.getBigUint64(0, true));

console.log(JSON.stringify({
  "clock, nothing between": time(() => 0),
  "ioctl that passes the filter": time(() => system.ioctl(-1, 0x5413, out.address)),
  "close(-1), notified and continued": time(() => system.close(-1)),
  "open and close of /dev/null, notified and continued": time(() => system.close(system.open("/dev/null", 0, 0))),
  "COMPATIBLE_VERSION": time(() => system.ioctl(fd, requests.COMPATIBLE_VERSION.request, out.address)),
  "MEM_GET_PA": time(() => system.ioctl(fd, requests.MEM_GET_PA.request, getPa.$address)),
  "alloc and free": time(() => release(allocate(4096))),
  "MEM_BUF_COPY64 of 4 KiB": time(copyOf(4096)),
  "MEM_BUF_COPY64 of 64 KiB": time(copyOf(65536)),
  "mmap and munmap of 64 KiB": time(() => system.munmap(system.mmap(65536, Protection.READ | Protection.WRITE, MapFlag.SHARED, fd, pa), 65536), 200),
  "unnamed system call": time(() => system.syscall(syscalls.getuid)),
}));
