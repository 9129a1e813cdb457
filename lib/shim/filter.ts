import { type FilterInstruction, SeccompAction } from "./seccomp.ts";
import { type SyscallArch, type SyscallName, syscallTable } from "../../ffi/syscalls.ts";

/** Numbers of a system call's data that a filter reads (`struct seccomp_data`). */
const OFFSET = { nr: 0, arch: 4, arg: (index: number) => 16 + 8 * index } as const;
/** `AUDIT_ARCH_X86_64`, `AUDIT_ARCH_AARCH64`. */
const AUDIT_ARCH: Readonly<Record<SyscallArch, number>> = { x64: 0xc000003e, arm64: 0xc00000b7 };
/** System calls of the x32 ABI carry this bit. */
const X32_BIT = 0x40000000;

const LOAD = 0x20; // BPF_LD | BPF_W | BPF_ABS
const AND = 0x54; // BPF_ALU | BPF_AND | BPF_K
const EQUAL = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const AT_LEAST = 0x35; // BPF_JMP | BPF_JGE | BPF_K
const ANY_BIT = 0x45; // BPF_JMP | BPF_JSET | BPF_K
const RETURN = 0x06; // BPF_RET | BPF_K

const ENOSYS = 38;
/** The type letter of the driver's requests, in its place. */
const TYPE_N = 0x4e00;
/** `TCGETS`: how programs ask whether a descriptor is a terminal. */
const TCGETS = 0x5401;
/** `FIONREAD`: the kernel answers it itself for the file behind an injected descriptor. */
const FIONREAD = 0x541b;
/** Type of terminal requests, sent to every descriptor in passing: too frequent to notify. */
const TYPE_T = 0x5400;
/** Type of socket requests. */
const TYPE_SOCKET = 0x8900;
const F_DUPFD = 0;
const F_DUPFD_CLOEXEC = 1030;
const MAP_ANONYMOUS = 0x20;
/** `MAP_SHARED`, also set in `MAP_SHARED_VALIDATE`. */
const MAP_SHARED = 1;
/** Private mappings of files below this offset are programs and libraries; no device memory that a client gets lies there. */
const PRIVATE_OFFSET = 16 * 2 ** 20;

/** Calls that are always notified: whatever takes a path or changes what a descriptor is. */
const ALWAYS: readonly SyscallName[] = [
  "close", "openat", "open", "newfstatat", "fstat", "stat", "lstat", "statx", "readlink", "readlinkat", "access", "faccessat",
  "faccessat2", "openat2", "creat", "dup", "dup2", "dup3", "close_range", "execve", "execveat",
  "getxattr", "lgetxattr", "listxattr", "llistxattr",
];

/** One instruction whose jumps are labels; a missing label means the next instruction. */
interface Draft {
  readonly label?: string;
  readonly code: number;
  readonly k: number;
  readonly yes?: string;
  readonly no?: string;
}

/**
 * The filter that makes a program's device calls visible to a supervisor.
 *
 * Notified: calls that open, close, duplicate or look at files; `ioctl` of type
 * `N` and of types nobody uses on ordinary files; mappings of files that are
 * shared or begin at or above 16 MiB; exec. Everything else runs at full speed;
 * calls without an argument test are allowed from the kernel's cache. System calls of another ABI (32-bit, x32) fail with ENOSYS,
 * because their numbers mean something else.
 */
export function shimFilter(arch: SyscallArch): readonly FilterInstruction[] {
  const numbers = syscallTable(arch);
  const on = (name: SyscallName, label: string): Draft[] => numbers[name] < 0 ? [] : [{ code: EQUAL, k: numbers[name], yes: label }];
  return assemble([
    { code: LOAD, k: OFFSET.arch },
    { code: EQUAL, k: AUDIT_ARCH[arch], no: "refuse" },
    { code: LOAD, k: OFFSET.nr },
    ...(arch === "x64" ? [{ code: AT_LEAST, k: X32_BIT, yes: "refuse" }] : []),
    ...on("ioctl", "ioctl"),
    ...on("mmap", "mmap"),
    ...on("fcntl", "fcntl"),
    ...ALWAYS.flatMap((name) => on(name, "notify")),
    { code: RETURN, k: SeccompAction.ALLOW },
    // Terminal and socket requests pass, except two that are sent to files as well.
    { label: "ioctl", code: LOAD, k: OFFSET.arg(1) },
    { code: EQUAL, k: TCGETS, yes: "notify" },
    { code: EQUAL, k: FIONREAD, yes: "notify" },
    { code: AND, k: 0xff00 },
    { code: EQUAL, k: TYPE_N, yes: "notify" },
    { code: EQUAL, k: TYPE_T, yes: "allow" },
    { code: EQUAL, k: TYPE_SOCKET, yes: "allow", no: "notify" },
    { label: "mmap", code: LOAD, k: OFFSET.arg(3) },
    { code: ANY_BIT, k: MAP_ANONYMOUS, yes: "allow" },
    { code: ANY_BIT, k: MAP_SHARED, yes: "notify" },
    { code: LOAD, k: OFFSET.arg(5) + 4 },
    { code: EQUAL, k: 0, no: "notify" },
    { code: LOAD, k: OFFSET.arg(5) },
    { code: AT_LEAST, k: PRIVATE_OFFSET, yes: "notify", no: "allow" },
    { label: "fcntl", code: LOAD, k: OFFSET.arg(1) },
    { code: EQUAL, k: F_DUPFD, yes: "notify" },
    { code: EQUAL, k: F_DUPFD_CLOEXEC, yes: "notify", no: "allow" },
    // Jumps only go forward.
    { label: "allow", code: RETURN, k: SeccompAction.ALLOW },
    { label: "notify", code: RETURN, k: SeccompAction.USER_NOTIF },
    { label: "refuse", code: RETURN, k: SeccompAction.ERRNO + ENOSYS },
  ]);
}

function assemble(drafts: readonly Draft[]): readonly FilterInstruction[] {
  const places = new Map(drafts.flatMap(({ label }, index) => label === undefined ? [] : [[label, index] as const]));
  return drafts.map(({ code, k, yes, no }, index) => {
    const jump = (label: string | undefined) => label === undefined ? 0 : places.get(label)! - index - 1;
    return { code, k, jt: jump(yes), jf: jump(no) };
  });
}
