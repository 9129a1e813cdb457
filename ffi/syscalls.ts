/**
 * System call numbers by architecture, for `Native.syscall` and for filters on
 * system calls. −1 where an architecture has no such call (aarch64 never had
 * the forms without a directory descriptor).
 */
export type SyscallTable = Readonly<Record<SyscallName, number>>;

/** Name, number on x86-64, number on aarch64 (`asm-generic/unistd.h`). */
const NUMBERS = {
  read: [0, 63],
  write: [1, 64],
  open: [2, -1],
  close: [3, 57],
  stat: [4, -1],
  fstat: [5, 80],
  lstat: [6, -1],
  lseek: [8, 62],
  mmap: [9, 222],
  mprotect: [10, 226],
  munmap: [11, 215],
  rt_sigaction: [13, 134],
  rt_sigprocmask: [14, 135],
  ioctl: [16, 29],
  access: [21, -1],
  mremap: [25, 216],
  madvise: [28, 233],
  dup: [32, 23],
  dup2: [33, -1],
  socket: [41, 198],
  connect: [42, 203],
  sendto: [44, 206],
  recvfrom: [45, 207],
  bind: [49, 200],
  listen: [50, 201],
  setsockopt: [54, 208],
  getsockopt: [55, 209],
  clone: [56, 220],
  fork: [57, -1],
  vfork: [58, -1],
  execve: [59, 221],
  wait4: [61, 260],
  kill: [62, 129],
  fcntl: [72, 25],
  flock: [73, 32],
  chdir: [80, 49],
  creat: [85, -1],
  readlink: [89, -1],
  ptrace: [101, 117],
  getuid: [102, 174],
  setgroups: [116, 159],
  setresuid: [117, 147],
  setresgid: [119, 149],
  prctl: [157, 167],
  getxattr: [191, 8],
  lgetxattr: [192, 9],
  listxattr: [194, 11],
  llistxattr: [195, 12],
  tkill: [200, 130],
  remap_file_pages: [216, 234],
  exit_group: [231, 94],
  tgkill: [234, 131],
  waitid: [247, 95],
  openat: [257, 56],
  newfstatat: [262, 79],
  readlinkat: [267, 78],
  faccessat: [269, 48],
  ppoll: [271, 73],
  accept4: [288, 242],
  dup3: [292, 24],
  pipe2: [293, 59],
  process_vm_readv: [310, 270],
  process_vm_writev: [311, 271],
  kcmp: [312, 272],
  seccomp: [317, 277],
  execveat: [322, 281],
  statx: [332, 291],
  pidfd_send_signal: [424, 424],
  pidfd_open: [434, 434],
  clone3: [435, 435],
  close_range: [436, 436],
  openat2: [437, 437],
  pidfd_getfd: [438, 438],
  faccessat2: [439, 439],
} as const satisfies Record<string, readonly [number, number]>;

/** A system call this package names. */
export type SyscallName = keyof typeof NUMBERS;

/** The architectures with a table, as `process.arch` names them. */
export type SyscallArch = "x64" | "arm64";

/** The system call numbers of an architecture. @param arch default: this one; anything but `arm64` is taken for x86-64 */
export function syscallTable(arch: string = process.arch): SyscallTable {
  const column = arch === "arm64" ? 1 : 0;
  return Object.fromEntries(Object.entries(NUMBERS).map(([name, numbers]) => [name, numbers[column]])) as unknown as SyscallTable;
}

/** The system call numbers of this machine. */
export const syscalls: SyscallTable = syscallTable();
