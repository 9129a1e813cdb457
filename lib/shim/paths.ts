import { readlinkSync } from "node:fs";
import { Errno } from "../../ffi/errno.ts";
import { pinned, readProcess, writeProcess } from "../../ffi/memory.ts";
import { native } from "../../ffi/native.ts";
import { syscalls } from "../../ffi/syscalls.ts";
import type { Listener } from "./listener.ts";
import { cStrings } from "./process.ts";

/** Directory descriptor that stands for the working directory. */
export const AT_FDCWD = -100;
const PATH_BYTES = 4096;
/** Most paths are shorter; the rest is read when there is no end in the first piece. */
const FIRST_BYTES = 256;

/** What a path of the target means to the shim. */
export type Place =
  /** `/dev/neuronN`, whether or not the machine has it. */
  | { readonly kind: "device"; readonly index: number }
  /** Inside the driver's part of sysfs. `path` is relative to `/sys`. */
  | { readonly kind: "sysfs"; readonly path: string }
  /** A descriptor of a process, through `/proc` or `/dev/fd`. `owner` is undefined for the caller itself. */
  | { readonly kind: "descriptor"; readonly owner: number | undefined; readonly fd: number };

const DEVICE = /^\/dev\/neuron(0|[1-9][0-9]{0,3})$/;
const SYSFS = /^\/sys\/((?:devices\/virtual\/neuron_device|class\/neuron_device|module\/neuron)(?:\/.*)?)$/;
const DESCRIPTOR = /^(?:\/dev\/fd|\/proc\/(?:self|thread-self|([0-9]+)(?:\/task\/[0-9]+)?)\/fd)\/([0-9]+)$/;
const INTERESTING = /neuron|fd\//;

const buffer = pinned(PATH_BYTES);
const text = Buffer.from(buffer.bytes.buffer, buffer.bytes.byteOffset, PATH_BYTES);

/**
 * Reads the path at `address` in a target, as far as it can matter to the shim.
 *
 * @returns the path; `""` for an empty one; undefined when it cannot concern the
 * fake (no such words in it, not readable, or too long)
 */
export function readPath(tid: number, address: number): string | undefined {
  if (address === 0) return undefined;
  let have = readProcess(tid, address, buffer.address, FIRST_BYTES);
  if (have <= 0) return undefined;
  let end = text.subarray(0, have).indexOf(0);
  if (end < 0 && have === FIRST_BYTES) {
    const more = readProcess(tid, address + have, buffer.address + have, PATH_BYTES - have);
    have += Math.max(more, 0);
    end = text.subarray(0, have).indexOf(0);
  }
  if (end < 0) return undefined;
  if (end === 0) return "";
  return INTERESTING.test(text.toString("latin1", 0, end)) ? text.toString("utf8", 0, end) : undefined;
}

/**
 * What a path of a target means, or undefined when it is not ours.
 *
 * Relative paths are completed from the target's directories; `.` and `..` are
 * taken out by name. Symbolic links that lead to the node are not followed.
 */
export function placeOf(tid: number, directory: number, path: string): Place | undefined {
  const absolute = path.startsWith("/") ? path : complete(tid, directory, path);
  return absolute === undefined ? undefined : classify(normalize(absolute));
}

/** What an absolute path without `.` and `..` means. */
export function classify(path: string): Place | undefined {
  const device = DEVICE.exec(path);
  if (device !== null) return { kind: "device", index: Number(device[1]) };
  const sysfs = SYSFS.exec(path);
  if (sysfs !== null) return { kind: "sysfs", path: sysfs[1]! };
  const descriptor = DESCRIPTOR.exec(path);
  if (descriptor === null) return undefined;
  return { kind: "descriptor", owner: descriptor[1] === undefined ? undefined : Number(descriptor[1]), fd: Number(descriptor[2]) };
}

/** Takes `.`, `..` and double slashes out of an absolute path. */
export function normalize(path: string): string {
  const parts: string[] = [];
  for (const part of path.split("/")) {
    if (part === "..") parts.pop();
    else if (part !== "" && part !== ".") parts.push(part);
  }
  return `/${parts.join("/")}`;
}

function complete(tid: number, directory: number, path: string): string | undefined {
  try {
    const base = readlinkSync(directory === AT_FDCWD ? `/proc/${tid}/cwd` : `/proc/${tid}/fd/${directory}`);
    return base.startsWith("/") ? `${base}/${path}` : undefined;
  } catch {
    return undefined;
  }
}

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
