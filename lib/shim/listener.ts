import { Errno } from "../../ffi/errno.ts";
import { pinned } from "../../ffi/memory.ts";
import { native } from "../../ffi/native.ts";
import { ADDFD_SEND, ListenerRequest, NOTIF_CONTINUE, NotifLayout, SYNC_WAKE_UP } from "./seccomp.ts";

const { notif, resp, addfd } = NotifLayout;
const CLOEXEC = 0o2000000;
const HIGH = 2 ** 32;

/**
 * The receiving end of a program's filter: takes one notified system call at a
 * time and answers it.
 *
 * After `receive()` the getters and `argument()` describe the call; exactly one
 * of `answer`, `proceed` and `inject` ends it, now or, after `save()`, later. An
 * answer to a thread that has died meanwhile is dropped.
 */
export class Listener {
  /** The listener descriptor, for polling. */
  readonly fd: number;
  readonly #call = pinned(notif.size);
  readonly #reply = pinned(resp.size);
  readonly #inject = pinned(addfd.size);

  /** Takes over a listener descriptor. */
  constructor(fd: number) {
    this.fd = fd;
    // Before Linux 6.6 there is no such flag; the answers are only slower then.
    native().ioctl(fd, ListenerRequest.SET_FLAGS, SYNC_WAKE_UP);
  }

  /** Takes the next call. Returns 0, or −errno: ENOENT when its thread died, EINTR. */
  receive(): number {
    this.#call.bytes.fill(0);
    return native().ioctl(this.fd, ListenerRequest.RECV, this.#call.address);
  }

  /** The present call, to be taken up again with `restore`. */
  save(): Uint8Array {
    return this.#call.bytes.slice();
  }

  /** Makes a saved call the present one. */
  restore(call: Uint8Array): void {
    this.#call.bytes.set(call);
  }

  /** Thread that made the call. */
  get tid(): number {
    return this.#call.view.getUint32(notif.pid, true);
  }

  /** System call number. */
  get number(): number {
    return this.#call.view.getInt32(notif.nr, true);
  }

  /** Argument `index` as an unsigned number; above 2^53 it is rounded, which is beyond every address. */
  argument(index: number): number {
    const at = notif.args + 8 * index;
    return this.#call.view.getUint32(at + 4, true) * HIGH + this.#call.view.getUint32(at, true);
  }

  /** Argument `index` as the C type `int`. */
  int(index: number): number {
    return this.#call.view.getInt32(notif.args + 8 * index, true);
  }

  /** Whether the calling thread is still waiting: what was read through its id belongs to it. */
  valid(): boolean {
    return native().ioctl(this.fd, ListenerRequest.ID_VALID, this.#call.address + notif.id) === 0;
  }

  /** Ends the call with a result ≥ 0 or −errno. Returns −ENOENT when nobody waits for it any more. */
  answer(result: number): number {
    const { view } = this.#reply;
    view.setUint32(resp.val, result < 0 ? 0 : result, true);
    view.setUint32(resp.val + 4, result < 0 ? 0 : result / HIGH, true);
    view.setInt32(resp.error, result < 0 ? result : 0, true);
    view.setUint32(resp.flags, 0, true);
    return this.#send();
  }

  /** Lets the kernel carry out the call. */
  proceed(): number {
    const { view } = this.#reply;
    view.setUint32(resp.val, 0, true);
    view.setUint32(resp.val + 4, 0, true);
    view.setInt32(resp.error, 0, true);
    view.setUint32(resp.flags, NOTIF_CONTINUE, true);
    return this.#send();
  }

  /**
   * Gives the caller a copy of descriptor `source` and ends the call with its
   * number. Returns the number, or −errno; the call is then ended with that
   * errno too, unless its thread is gone.
   */
  inject(source: number, closeOnExec: boolean): number {
    const result = this.#addFd(source, ADDFD_SEND, closeOnExec);
    if (result < 0 && result !== -Errno.ENOENT) this.answer(result);
    return result;
  }

  /** Gives the caller a copy of descriptor `source`, closed on exec; the call goes on. Returns the number, or −errno. */
  give(source: number): number {
    return this.#addFd(source, 0, true);
  }

  /** Closes the descriptor; whoever still waits gets ENOSYS. */
  close(): void {
    native().close(this.fd);
  }

  #addFd(source: number, flags: number, closeOnExec: boolean): number {
    const { view } = this.#inject;
    this.#copyId(view, addfd.id);
    view.setUint32(addfd.flags, flags, true);
    view.setUint32(addfd.srcfd, source, true);
    view.setUint32(addfd.newfd, 0, true);
    view.setUint32(addfd.newfdFlags, closeOnExec ? CLOEXEC : 0, true);
    return native().ioctl(this.fd, ListenerRequest.ADDFD, this.#inject.address);
  }

  #send(): number {
    this.#copyId(this.#reply.view, resp.id);
    return native().ioctl(this.fd, ListenerRequest.SEND, this.#reply.address);
  }

  #copyId(view: DataView, at: number): void {
    view.setUint32(at, this.#call.view.getUint32(notif.id, true), true);
    view.setUint32(at + 4, this.#call.view.getUint32(notif.id + 4, true), true);
  }
}
