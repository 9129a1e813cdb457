import { Errno } from "../../ffi/errno.ts";
import { pinned, readProcess, writeProcess } from "../../ffi/memory.ts";
import { native, OpenFlag } from "../../ffi/native.ts";
import { cStrings } from "./process.ts";
import { type SyscallName, syscalls } from "../../ffi/syscalls.ts";
import type { Listener } from "./listener.ts";
import { AT_FDCWD, copyFileStat, copyNodeStat, type Place, placeOf, readPath, StatForm } from "./paths.ts";
import { ACCESS_MODE, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_PATH, O_TRUNC } from "./files.ts";
import type { CallHandler, Serving } from "./waits.ts";
import { actsAsRoot, type ShimTarget } from "./targets.ts";

const O_CREAT = OpenFlag.CREAT;
const EEXIST = 17;
const AT_SYMLINK_NOFOLLOW = 0x100;
const AT_EMPTY_PATH = 0x1000;
const X_OK = 1;
const W_OK = 2;

const scratch = pinned(4096);

/** Where a call's arguments are; −1: it has none such. */
interface PathForm {
  readonly directory: number;
  readonly path: number;
}

const bare: PathForm = { directory: -1, path: 0 };
const at: PathForm = { directory: 0, path: 1 };

/** What a call does at a place of ours. Ends the call; returns false to let the kernel do it. */
type AtPlace = (serving: Serving, call: Listener, place: Place) => boolean;

/**
 * A call with a path: let through unless the path is ours.
 *
 * @param onDescriptor for calls that take an empty path to mean the descriptor itself
 */
function withPath(form: PathForm, action: AtPlace, onDescriptor?: (serving: Serving, call: Listener, fd: number) => boolean): CallHandler {
  return (serving, call) => {
    const path = readPath(call.tid, call.argument(form.path));
    const directory = form.directory < 0 ? AT_FDCWD : call.int(form.directory);
    if (path === undefined || path === "") {
      if (directory >= 0 && serving.sysfs.active) serving.sysfs.refresh();
      if (onDescriptor !== undefined && directory >= 0 && onDescriptor(serving, call, directory)) return;
      return void call.proceed();
    }
    const place = placeOf(call.tid, directory, path);
    if (place === undefined || !call.valid() || !action(serving, call, place)) call.proceed();
  };
}

/** The descriptor's own device, for a path like `/proc/self/fd/5` that is a descriptor of the node. */
function deviceBehind({ files, targets }: Serving, call: Listener, place: Place): number | undefined {
  if (place.kind === "device") return place.index;
  if (place.kind !== "descriptor" || files.size === 0) return undefined;
  targets.settle(call.tid);
  return files.identify(place.owner ?? call.tid, place.fd)?.device;
}

/** Does `action` with a descriptor of the sysfs file at a place, and answers with its result. */
function onSysfs(serving: Serving, call: Listener, path: string, flags: number, action: (fd: number) => number): true {
  serving.targets.settle(call.tid);
  const fd = serving.sysfs.open(path, flags);
  if (fd < 0) return void call.answer(fd), true;
  const result = action(fd);
  native().close(fd);
  call.answer(result);
  return true;
}

const open = (flagsOf: (call: Listener) => number): AtPlace => (serving, call, place) => {
  const flags = flagsOf(call);
  if (place.kind === "sysfs") return openSysfs(serving, call, place.path, flags);
  const device = deviceBehind(serving, call, place);
  return device === undefined ? false : openNode(serving, call, device, flags);
};

function openNode(serving: Serving, call: Listener, device: number, flags: number): true {
  const { machine, targets } = serving;
  if (machine.devices[device] === undefined) return void call.answer(-Errno.ENOENT), true;
  if ((flags & O_DIRECTORY) !== 0) return void call.answer(-Errno.ENOTDIR), true;
  if ((flags & (O_CREAT | O_EXCL)) === (O_CREAT | O_EXCL)) return void call.answer(-EEXIST), true;
  if ((flags & O_PATH) !== 0) return givePlace(call, flags);
  targets.settle(call.tid);
  const target = targets.make(call.tid);
  if (target === undefined) return void call.answer(-Errno.ESRCH), true;
  const opened = target.process.openOrWait(`/dev/neuron${device}`, flags);
  const finish = (fake: number) => giveNode(serving, call, target, { fake, device, flags });
  if (typeof opened === "number") finish(opened);
  else serving.waits.defer(call, target, opened, finish);
  return true;
}

/** Gives the caller a descriptor that only names a character device: nothing is opened on the fake. */
function givePlace(call: Listener, flags: number): true {
  const fd = native().open("/dev/null", O_PATH | OpenFlag.CLOEXEC, 0);
  if (fd < 0) return void call.answer(fd), true;
  call.inject(fd, (flags & OpenFlag.CLOEXEC) !== 0);
  native().close(fd);
  return true;
}

/** Gives the caller a descriptor of the node that the fake has opened for it. */
function giveNode(
  { files, targets }: Serving, call: Listener, target: ShimTarget,
  { fake, device, flags }: { readonly fake: number; readonly device: number; readonly flags: number },
): void {
  if (fake < 0) return void call.answer(fake);
  const made = files.create(target.process, fake, device, flags);
  if (typeof made === "number") {
    target.process.close(fake);
    return void call.answer(made);
  }
  const fd = call.inject(made.source, (flags & OpenFlag.CLOEXEC) !== 0);
  native().close(made.source);
  if (fd >= 0) return targets.attach(target, fd, fake, made.record);
  target.process.close(fake);
  files.hold(made.record);
  files.drop(made.record);
}

function openSysfs(serving: Serving, call: Listener, path: string, flags: number): true {
  const writes = (flags & ACCESS_MODE) !== OpenFlag.RDONLY || (flags & O_TRUNC) !== 0;
  // The files are root's.
  if (writes && (flags & O_PATH) === 0) {
    if (actsAsRoot(call.tid)) serving.writes.open(call, path, (flags & OpenFlag.CLOEXEC) !== 0);
    else call.answer(-Errno.EACCES);
    return true;
  }
  serving.targets.settle(call.tid);
  const fd = serving.sysfs.open(path, flags & ~(O_CREAT | O_EXCL));
  if (fd < 0) return void call.answer(fd), true;
  call.inject(fd, (flags & OpenFlag.CLOEXEC) !== 0);
  native().close(fd);
  return true;
}

const stat = (form: StatForm, addressArgument: number, followOf: (call: Listener) => boolean): AtPlace => (serving, call, place) => {
  const address = call.argument(addressArgument);
  const follow = followOf(call);
  if (place.kind === "sysfs") {
    return onSysfs(serving, call, place.path, O_PATH | (follow ? 0 : O_NOFOLLOW), (fd) => copyFileStat(form, fd, call, address));
  }
  // Without following, a descriptor's entry in /proc is the link itself.
  if (place.kind === "descriptor" && !follow) return false;
  const device = deviceBehind(serving, call, place);
  if (device === undefined) return false;
  call.answer(serving.machine.devices[device] === undefined ? -Errno.ENOENT : copyNodeStat(form, device, call, address));
  return true;
};

const statDescriptor = (form: StatForm, addressArgument: number, flagsArgument: number) =>
  (serving: Serving, call: Listener, fd: number): boolean => {
    if (serving.files.size === 0 || (call.int(flagsArgument) & AT_EMPTY_PATH) === 0) return false;
    serving.targets.settle(call.tid);
    const target = serving.targets.find(call.tid);
    const descriptor = target?.descriptors.get(fd);
    if (descriptor === undefined) return false;
    call.answer(copyNodeStat(form, descriptor.record.device, call, call.argument(addressArgument)));
    return true;
  };

const access = (modeArgument: number): AtPlace => (serving, call, place) => {
  const mode = call.int(modeArgument);
  if (place.kind === "sysfs") {
    return onSysfs(serving, call, place.path, O_PATH, (fd) => (mode & W_OK) !== 0 && !actsAsRoot(call.tid) ? -Errno.EACCES : accessEmpty(fd, mode));
  }
  const device = deviceBehind(serving, call, place);
  if (device === undefined) return false;
  const exists = serving.machine.devices[device] !== undefined;
  call.answer(!exists ? -Errno.ENOENT : (mode & X_OK) !== 0 ? -Errno.EACCES : 0);
  return true;
};

function accessEmpty(fd: number, mode: number): number {
  const { array, keep } = cStrings([new Uint8Array(0)]);
  const result = native().syscall(syscalls.faccessat2, fd, array + 16, mode, AT_EMPTY_PATH);
  void keep;
  return result;
}

const readlink = (addressArgument: number): AtPlace => (serving, call, place) => {
  const address = call.argument(addressArgument);
  const size = Math.min(call.int(addressArgument + 1), scratch.byteLength);
  if (size <= 0) return false;
  if (place.kind === "sysfs") {
    return onSysfs(serving, call, place.path, O_PATH | O_NOFOLLOW, (fd) => {
      const { array, keep } = cStrings([new Uint8Array(0)]);
      const length = native().syscall(syscalls.readlinkat, fd, array + 16, scratch.address, size);
      void keep;
      // On a file that is no link, an empty path is ENOENT where a full one is EINVAL.
      return length < 0 ? -Errno.EINVAL : store(call, address, length);
    });
  }
  const device = deviceBehind(serving, call, place);
  if (device === undefined) return false;
  if (place.kind === "device") {
    call.answer(serving.machine.devices[device] === undefined ? -Errno.ENOENT : -Errno.EINVAL);
    return true;
  }
  const text = new TextEncoder().encode(`/dev/neuron${device}`).subarray(0, size);
  scratch.bytes.set(text);
  call.answer(store(call, address, text.length));
  return true;
};

function store(call: Listener, address: number, length: number): number {
  return call.valid() && writeProcess(call.tid, address, scratch.address, length) === length ? length : -Errno.EFAULT;
}

/** Extended attributes: nothing of ours has any. */
const noAttributes: AtPlace = (serving, call, place) => {
  if (place.kind !== "sysfs" && deviceBehind(serving, call, place) === undefined) return false;
  call.answer(-Errno.EOPNOTSUPP);
  return true;
};

/** Flags of `openat2`, which lie in a struct of the caller. */
function flagsOfHow(call: Listener): number {
  return readProcess(call.tid, call.argument(2), scratch.address, 8) === 8 ? scratch.view.getInt32(0, true) : 0;
}

const always = () => true;
const never = () => false;
const unless = (argument: number, flag: number) => (call: Listener) => (call.int(argument) & flag) === 0;

/** Handlers of calls with a path, by system call. */
export const pathCalls: Readonly<Partial<Record<SyscallName, CallHandler>>> = {
  open: withPath(bare, open((call) => call.int(1))),
  creat: withPath(bare, open(() => OpenFlag.WRONLY | O_CREAT | O_TRUNC)),
  openat: withPath(at, open((call) => call.int(2))),
  openat2: withPath(at, open(flagsOfHow)),
  stat: withPath(bare, stat("stat", 1, always)),
  lstat: withPath(bare, stat("stat", 1, never)),
  newfstatat: withPath(at, stat("stat", 2, unless(3, AT_SYMLINK_NOFOLLOW)), statDescriptor("stat", 2, 3)),
  statx: withPath(at, stat("statx", 4, unless(2, AT_SYMLINK_NOFOLLOW)), statDescriptor("statx", 4, 2)),
  access: withPath(bare, access(1)),
  faccessat: withPath(at, access(2)),
  faccessat2: withPath(at, access(2)),
  getxattr: withPath(bare, noAttributes),
  lgetxattr: withPath(bare, noAttributes),
  listxattr: withPath(bare, noAttributes),
  llistxattr: withPath(bare, noAttributes),
  readlink: withPath(bare, readlink(1)),
  readlinkat: withPath(at, readlink(2)),
};
