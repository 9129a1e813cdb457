import { readlinkSync } from "node:fs";
import { pinned } from "../../ffi/memory.ts";
import { readProcess } from "../../ffi/process_memory.ts";

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
