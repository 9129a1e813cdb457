import { Errno } from "../../ffi/errno.ts";
import { pinned } from "../../ffi/memory.ts";
import { native } from "../../ffi/native.ts";
import { syscalls } from "../../ffi/syscalls.ts";
import { writeU64 } from "../../ffi/u64.ts";

/**
 * Local stream sockets with abstract names: they need no file and vanish with
 * the last process that has them open. Results are ≥ 0 or −errno.
 */

const AF_UNIX = 1;
const SOCK_STREAM = 1;
const SOCK_NONBLOCK = 0o4000;
const SOCK_CLOEXEC = 0o2000000;
const SOL_SOCKET = 1;
const SO_PEERCRED = 17;
const SO_RCVTIMEO = 20;
const MSG_DONTWAIT = 0x40;
const MSG_NOSIGNAL = 0x4000;
/** Longest abstract name: `sun_path` less the leading NUL. */
const NAME_LIMIT = 107;

/** Who is at the other end of a local socket. */
export interface Peer {
  /** Process id, in this process's namespace. */
  readonly pid: number;
  /** User id. */
  readonly uid: number;
}

/** Opens a socket that listens under an abstract name. EADDRINUSE when somebody else does. */
export function listenAbstract(name: string): number {
  return withAddress(name, SOCK_NONBLOCK, (fd, address, length) => {
    const bound = native().syscall(syscalls.bind, fd, address, length);
    return bound < 0 ? bound : native().syscall(syscalls.listen, fd, 64);
  });
}

/** Connects to an abstract name. ECONNREFUSED when nobody listens. */
export function connectAbstract(name: string): number {
  return withAddress(name, 0, (fd, address, length) => native().syscall(syscalls.connect, fd, address, length));
}

/** Takes a waiting connection; EAGAIN when there is none. */
export function acceptConnection(fd: number): number {
  return native().syscall(syscalls.accept4, fd, 0, 0, SOCK_CLOEXEC);
}

/** Who connected, or −errno. */
export function peerOf(fd: number): Peer | number {
  const credentials = pinned(12);
  const length = pinned(4);
  length.view.setUint32(0, 12, true);
  const result = native().syscall(syscalls.getsockopt, fd, SOL_SOCKET, SO_PEERCRED, credentials.address, length.address);
  if (result < 0) return result;
  return { pid: credentials.view.getInt32(0, true), uid: credentials.view.getUint32(4, true) };
}

/** Sends text; never raises SIGPIPE. Returns the bytes sent. */
export function sendText(fd: number, text: string): number {
  const bytes = new TextEncoder().encode(text);
  const memory = pinned(bytes.length);
  memory.bytes.set(bytes);
  return native().syscall(syscalls.sendto, fd, memory.address, bytes.length, MSG_NOSIGNAL, 0, 0);
}

/**
 * Receives text: what is there, at most 4096 bytes.
 *
 * @param wait whether to wait for the first byte
 * @returns the text, `""` at the end of the stream, or −errno (EAGAIN when nothing is there)
 */
export function receiveText(fd: number, wait: boolean): string | number {
  const memory = pinned(4096);
  const result = native().syscall(syscalls.recvfrom, fd, memory.address, memory.byteLength, wait ? 0 : MSG_DONTWAIT, 0, 0);
  return result < 0 ? result : new TextDecoder().decode(memory.bytes.subarray(0, result));
}

/** Makes receiving fail with EAGAIN after so many milliseconds without anything. */
export function limitReceiving(fd: number, milliseconds: number): number {
  const time = pinned(16);
  writeU64(time.view, 0, Math.floor(milliseconds / 1000));
  writeU64(time.view, 8, (milliseconds % 1000) * 1000);
  return native().syscall(syscalls.setsockopt, fd, SOL_SOCKET, SO_RCVTIMEO, time.address, time.byteLength);
}

/** Sends all bytes at an address; never raises SIGPIPE. Returns `length`, or −errno. */
export function sendAll(fd: number, address: number, length: number): number {
  return moveAll(syscalls.sendto, fd, address, length, MSG_NOSIGNAL);
}

/** Receives exactly `length` bytes to an address, waiting for them. Returns `length`, less at the end of the stream, or −errno. */
export function receiveAll(fd: number, address: number, length: number): number {
  return moveAll(syscalls.recvfrom, fd, address, length, 0);
}

function moveAll(call: number, fd: number, address: number, length: number, flags: number): number {
  for (let done = 0; done < length;) {
    const moved = native().syscall(call, fd, address + done, length - done, flags, 0, 0);
    if (moved === -Errno.EINTR) continue;
    if (moved <= 0) return moved < 0 ? moved : done;
    done += moved;
  }
  return length;
}

function withAddress(name: string, flags: number, use: (fd: number, address: number, length: number) => number): number {
  const bytes = new TextEncoder().encode(name);
  if (bytes.length > NAME_LIMIT) return -36;
  const address = pinned(3 + bytes.length);
  address.view.setUint16(0, AF_UNIX, true);
  address.bytes.set(bytes, 3);
  const fd = native().syscall(syscalls.socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
  if (fd < 0) return fd;
  const result = use(fd, address.address, address.byteLength);
  if (result >= 0) return fd;
  native().close(fd);
  return result;
}
