import { Errno } from "../../ffi/errno.ts";
import { pinned } from "../../ffi/memory.ts";
import { native } from "../../ffi/native.ts";
import { cStrings } from "./process.ts";
import { writeProcess } from "../../ffi/process_memory.ts";
import { syscalls } from "../../ffi/syscalls.ts";
import type { Listener } from "./listener.ts";
import { AT_FDCWD } from "./paths.ts";

/** The two structs in which the kernel describes a file. */
export const StatForm = { stat: "stat", statx: "statx" } as const;
/** One of {@linkcode StatForm}. */
export type StatForm = keyof typeof StatForm;

/** Major number of the node: dynamic on a real system; this is what was recorded. */
export const NODE_MAJOR = 246;
/** A character device that everybody may read and write. */
export const NODE_MODE = 0o020666;
/** Added to the device index: an inode number for the node. */
const NODE_INODE = 0x4e00;
const STATX_BASIC = 0x7ff;

/** Offsets in `struct stat` by architecture, and in `struct statx`. */
const STAT = process.arch === "arm64"
  ? { size: 128, ino: 8, mode: 16, rdev: 32 } as const
  : { size: 144, ino: 8, mode: 24, rdev: 40 } as const;
const STATX = { size: 256, ino: 32, mode: 28, rdevMajor: 128, rdevMinor: 132 } as const;

const result = pinned(256);

/**
 * Stores the description of `/dev/neuronN` into the caller: that of `/dev/null`
 * with the node's own numbers.
 *
 * @param address of the struct in the caller
 * @returns 0 or −errno
 */
export function copyNodeStat(form: StatForm, device: number, call: Listener, address: number): number {
  const { array, keep } = cStrings([new TextEncoder().encode("/dev/null")]);
  const path = array + 16;
  result.bytes.fill(0);
  const done = form === "stat"
    ? native().syscall(syscalls.newfstatat, AT_FDCWD, path, result.address, 0)
    : native().syscall(syscalls.statx, AT_FDCWD, path, 0, STATX_BASIC, result.address);
  void keep;
  if (done < 0) return done;
  if (form === "stat") describeStat(device);
  else describeStatx(device);
  return copyOut(call, address, form === "stat" ? STAT.size : STATX.size);
}

function describeStat(device: number): void {
  result.view.setUint32(STAT.ino, NODE_INODE + device, true);
  result.view.setUint32(STAT.ino + 4, 0, true);
  result.view.setUint32(STAT.mode, NODE_MODE, true);
  result.view.setUint32(STAT.rdev, NODE_MAJOR * 256 + device, true);
  result.view.setUint32(STAT.rdev + 4, 0, true);
}

function describeStatx(device: number): void {
  result.view.setUint32(STATX.ino, NODE_INODE + device, true);
  result.view.setUint32(STATX.ino + 4, 0, true);
  result.view.setUint16(STATX.mode, NODE_MODE, true);
  result.view.setUint32(STATX.rdevMajor, NODE_MAJOR, true);
  result.view.setUint32(STATX.rdevMinor, device, true);
}

/** Describes the file behind a descriptor of ours to the caller. @returns 0 or −errno */
export function copyFileStat(form: StatForm, fd: number, call: Listener, address: number): number {
  const { array, keep } = cStrings([new Uint8Array(0)]);
  const path = array + 16;
  const EMPTY_PATH = 0x1000;
  result.bytes.fill(0);
  const done = form === "stat"
    ? native().syscall(syscalls.newfstatat, fd, path, result.address, EMPTY_PATH)
    : native().syscall(syscalls.statx, fd, path, EMPTY_PATH, STATX_BASIC, result.address);
  void keep;
  return done < 0 ? done : copyOut(call, address, form === "stat" ? STAT.size : STATX.size);
}

/** Stores `length` bytes of the result into the caller. */
function copyOut(call: Listener, address: number, length: number): number {
  if (!call.valid()) return -Errno.ESRCH;
  return writeProcess(call.tid, address, result.address, length) === length ? 0 : -Errno.EFAULT;
}
