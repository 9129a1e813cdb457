import { addressOf, hexAt } from "./arguments.ts";
import { describe, hexBytes, mapFlags, matchesDescription, openFlags, protection } from "./data.ts";
import type { Difference } from "./ioctl_step.ts";
import type { Step } from "./recording.ts";
import { integer, outcome, sameErrno, type Session } from "./session.ts";

type Replay = (session: Session, step: Step) => Difference;

const DEVICES = "/sys/devices/virtual/neuron_device";

/** Compares a system call's result; a recorded 0 stands for any success that yields a descriptor or address. */
function compareResult(step: Step, result: number, yields = false): Difference {
  const actual = outcome(yields && result >= 0 ? 0 : result);
  if (actual.ret === step.ret && sameErrno(step.errno, actual.errno)) return undefined;
  return `ret ${actual.ret} ${actual.errno ?? ""}, recorded ${step.ret} ${step.errno ?? ""}`.trim();
}

const open: Replay = (session, step) => {
  const fd = session.actor(step.proc).open(String(step.in?.["path"]), openFlags(step.in?.["flags"]));
  session.bindDescriptor(step.proc, step.fd, fd);
  return compareResult(step, fd, true);
};

const close: Replay = (session, step) => compareResult(step, session.actor(step.proc).close(session.descriptor(step.proc, step.fd)));

const dup: Replay = (session, step) => {
  const fd = session.actor(step.proc).dup(session.descriptor(step.proc, String(step.in?.["of"])));
  session.bindDescriptor(step.proc, step.fd, fd);
  return compareResult(step, fd, true);
};

const mmap: Replay = (session, step) => {
  const actor = session.actor(step.proc);
  const given = step.in ?? {};
  const length = Number(integer(given["length"]));
  const reference = step.refs?.["offset"];
  const offset = reference === undefined ? session.translate(Number(integer(given["offset"]))) : addressOf(session, reference, given["offset"]!);
  const address = actor.mmap(
    session.descriptor(step.proc, step.fd), length, protection(given["prot"]), mapFlags(given["flags"]), offset,
  );
  const difference = compareResult(step, address, true);
  if (difference !== undefined || address < 0) return difference;
  if (step.binds !== undefined) session.bindMapping(step.proc, step.binds, { address, length });
  const info = actor.mapping(address);
  const perms = step.out?.["perms"];
  if (perms !== undefined && info?.perms !== perms) return `perms ${info?.perms}, recorded ${String(perms)}`;
  const start = step.out?.["vm_pgoff_bytes"];
  if (start === undefined || step.volatile?.includes("out.vm_pgoff_bytes") === true || info?.offset === Number(start)) return undefined;
  return `mapped at 0x${info?.offset.toString(16)}, recorded ${String(start)}`;
};

/** The mapping a step names and the address in it. */
function place(session: Session, step: Step): { readonly address: number; readonly length: number } {
  const mapping = session.mapping(step.proc, String(step.in?.["map"])) ?? { address: 0, length: 0 };
  return { address: mapping.address + Number(integer(step.in?.["at"])), length: mapping.length };
}

const munmap: Replay = (session, step) =>
  compareResult(step, session.actor(step.proc).munmap(place(session, step).address, Number(integer(step.in?.["length"]))));

const mprotect: Replay = (session, step) => {
  const { address, length } = place(session, step);
  const given = step.in?.["length"];
  const bytes = given === undefined ? length : Number(integer(given));
  return compareResult(step, session.actor(step.proc).mprotect(address, bytes, protection(step.in?.["prot"])));
};

const mremap: Replay = (session, step) => {
  const { address, length } = place(session, step);
  return compareResult(step, session.actor(step.proc).mremap(address, length, Number(integer(step.in?.["new_length"]))), true);
};

function fault(step: Step, faulted: boolean): Difference {
  const recorded = step.out?.["signal"] !== undefined;
  return faulted === recorded ? undefined : `${faulted ? "a fault" : "no fault"}, recorded ${recorded ? "a fault" : "none"}`;
}

const load: Replay = (session, step) => {
  const hex = hexAt(session.actor(step.proc), place(session, step).address, Number(step.in?.["length"]));
  const difference = fault(step, hex === "fault");
  if (difference !== undefined || hex === "fault" || step.volatile?.includes("out.hex") === true) return difference;
  return hex === step.out?.["hex"] ? undefined : `${hex}, recorded ${String(step.out?.["hex"])}`;
};

const store: Replay = (session, step) =>
  fault(step, !session.actor(step.proc).store(place(session, step).address, hexBytes(String(step.in?.["hex"]))));

const fork: Replay = (session, step) => {
  const child = String(step.in?.["child"]);
  session.actors.set(child, session.actor(step.proc).fork());
  session.inherit(step.proc, child);
  return compareResult(step, 0);
};

const exit: Replay = (session, step) => {
  session.actor(step.proc).exit(Number(step.in?.["code"] ?? 0));
  return compareResult(step, 0);
};

const kill: Replay = (session, step) =>
  compareResult(step, session.actor(step.proc).kill(session.actor(String(step.in?.["child"])), String(step.in?.["signal"])));

const wait: Replay = (session, step) => {
  const ending = session.actor(step.proc).wait(session.actor(String(step.in?.["child"])));
  const wanted = step.out ?? {};
  const same = wanted["exit"] === ending.exit && wanted["signal"] === ending.signal;
  return same ? compareResult(step, 0) : `${JSON.stringify(ending)}, recorded ${JSON.stringify(wanted)}`;
};

const dropPrivileges: Replay = (session, step) => {
  session.actor(step.proc).dropPrivileges();
  return compareResult(step, 0);
};

const readWriteSeek: Replay = (session, step) =>
  compareResult(step, session.actor(step.proc).readWriteSeek(step.op as "read", session.descriptor(step.proc, step.fd)));

const sysfsRead: Replay = (session, step) => {
  const text = session.subject.readText(String(step.in?.["path"]));
  const difference = compareResult(step, typeof text === "number" ? text : new TextEncoder().encode(text).length);
  if (difference !== undefined || typeof text === "number" || step.volatile?.includes("out.value") === true) return difference;
  return text === step.out?.["value"] ? undefined : `${JSON.stringify(text)}, recorded ${JSON.stringify(step.out?.["value"])}`;
};

const sysfsWrite: Replay = (session, step) =>
  compareResult(step, session.subject.writeText(String(step.in?.["path"]), String(step.in?.["value"])));

/** The memory counters of a device. */
export function counters(session: Session, device: string): ReadonlyMap<string, string> {
  const files = session.subject.tree(`${DEVICES}/${device}`);
  return new Map([...files].filter(([path]) => path.includes("memory_usage")).map(([path, text]) => [path, text.trim()]));
}

/** What a `sysfs-diff` step says: path, value before, value after. */
type Changes = Readonly<Record<string, readonly [string, string]>>;

function changesOf(step: Step): Changes {
  return (step.out?.["changed"] ?? {}) as Changes;
}

/** Whether counters have the values that a recorded difference starts from. */
function fits(snapshot: ReadonlyMap<string, string>, changes: Changes): boolean {
  return Object.entries(changes).every(([path, [before]]) => snapshot.get(path) === before);
}

/**
 * Where the first difference of a scenario was not taken against the idle device
 * but against some moment in between, remembers the counters after each step, so
 * that the moment can be found. The newest comes first.
 */
export function watchCounters(session: Session): () => void {
  const first = session.scenario.steps.find((step) => step.op === "sysfs-diff");
  const device = String(first?.in?.["device"]);
  const start = session.snapshots.get(device);
  if (first === undefined || start === undefined || fits(start, changesOf(first))) return () => {};
  return () => {
    if (session.snapshots.get(device) === start) session.earlier.unshift(counters(session, device));
  };
}

const sysfsDiff: Replay = (session, step) => {
  const device = String(step.in?.["device"]);
  const recorded = changesOf(step);
  const before = session.earlier.find((each) => fits(each, recorded)) ?? session.snapshots.get(device)!;
  const now = counters(session, device);
  session.snapshots.set(device, now);
  session.earlier.length = 0;
  const paths = new Set([...Object.keys(recorded), ...[...now].filter(([path, text]) => before.get(path) !== text).map(([path]) => path)]);
  for (const path of [...paths].sort()) {
    const pair = before.get(path) === now.get(path) ? undefined : [before.get(path), now.get(path)];
    if (JSON.stringify(pair) !== JSON.stringify(recorded[path])) {
      return `${path}: ${JSON.stringify(pair ?? "unchanged")}, recorded ${JSON.stringify(recorded[path] ?? "unchanged")}`;
    }
  }
  return undefined;
};

/** Files whose text is the kernel's or the clock's. */
const KERNEL_FILES = /^(dev|uevent)$|^power\/|^stats\/power\/utilization$/;

function tree(directory: string): Replay {
  return (session, step) => {
    const files = session.subject.tree(directory);
    const recorded = (step.out?.["files"] ?? {}) as Readonly<Record<string, string>>;
    for (const [path, text] of Object.entries(recorded)) {
      if (!files.has(path)) return `${path}: missing`;
      if (!KERNEL_FILES.test(path) && files.get(path) !== text) return `${path}: ${JSON.stringify(files.get(path))}, recorded ${JSON.stringify(text)}`;
    }
    const more = [...files.keys()].find((path) => recorded[path] === undefined && !path.startsWith("neuron0/"));
    return more === undefined ? undefined : `${more}: not recorded`;
  };
}

const observe: Replay = (session, step) => {
  const { buffer } = session;
  const bytes = buffer === undefined ? new Uint8Array(0) : session.actor(step.proc).load(buffer.address, buffer.length) ?? new Uint8Array(0);
  const recorded = String(step.out?.["data"]);
  return matchesDescription(bytes, recorded) ? undefined : `${describe(bytes)}, recorded ${recorded}`;
};

/** Handlers of all step kinds but ioctl, series and threads. */
export const otherSteps: Readonly<Record<string, Replay>> = {
  open, close, dup, mmap, munmap, mprotect, mremap, load, store, fork, exit, kill, wait, "drop-privileges": dropPrivileges,
  read: readWriteSeek, write: readWriteSeek, lseek: readWriteSeek, "sysfs-read": sysfsRead, "sysfs-write": sysfsWrite,
  "sysfs-diff": sysfsDiff, "sysfs-tree": tree(`${DEVICES}/neuron0`), "class-tree": tree("/sys/class/neuron_device"),
  "module-tree": tree("/sys/module/neuron"), observe,
};
