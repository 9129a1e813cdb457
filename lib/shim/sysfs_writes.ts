import { Errno } from "../../ffi/errno.ts";
import { pinned } from "../../ffi/memory.ts";
import { native } from "../../ffi/native.ts";
import { openPipe, type PollSet } from "./process.ts";
import type { FakeMachine } from "../fake/machine.ts";
import type { Listener } from "./listener.ts";

/** A sysfs file that a target has open for writing: the reading end of its pipe. */
interface Writer {
  readonly reader: number;
  readonly path: string;
  readonly tid: number;
  readonly listener: Listener;
}

/**
 * What targets write to the driver's sysfs files. Such a file is a pipe to the
 * target; what it writes is carried out before the next call of anybody is
 * answered.
 */
export class SysfsWrites {
  readonly #machine: FakeMachine;
  readonly #writers = new Set<Writer>();
  readonly #buffer = pinned(4096);

  constructor(machine: FakeMachine) {
    this.#machine = machine;
  }

  /** Opens a file for the caller of `call`, which ends. @param path below `/sys` */
  open(call: Listener, path: string, closeOnExec: boolean): void {
    const mode = this.#machine.sysfs.mode(`/sys/${path}`);
    if (mode === undefined) return void call.answer(typeof this.#machine.list(`/sys/${path}`) === "number" ? -Errno.ENOENT : -Errno.EISDIR);
    if ((mode & 0o222) === 0) return void call.answer(-Errno.EACCES);
    const pipe = openPipe();
    if (typeof pipe === "number") return void call.answer(pipe);
    const { tid } = call;
    const fd = call.inject(pipe.writer, closeOnExec);
    native().close(pipe.writer);
    if (fd < 0) native().close(pipe.reader);
    else this.#writers.add({ reader: pipe.reader, path: `/sys/${path}`, tid, listener: call });
  }

  /** Adds the pipes to a set of descriptors to wait for. */
  watch(set: PollSet): void {
    for (const { reader } of this.#writers) set.add(reader);
  }

  /**
   * Carries out what was written.
   *
   * @param settle brings the fake up to date first: the driver looks at who has a device open
   * @param failed told of a write that is refused loudly
   */
  drain(settle: () => void, failed: (tid: number, error: unknown) => void): void {
    for (const writer of this.#writers) this.#drainOne(writer, settle, failed);
  }

  /** Closes all pipes. */
  close(): void {
    for (const { reader } of this.#writers) native().close(reader);
    this.#writers.clear();
  }

  #drainOne(writer: Writer, settle: () => void, failed: (tid: number, error: unknown) => void): void {
    const length = native().read(writer.reader, this.#buffer.address, this.#buffer.byteLength);
    if (length === -Errno.EAGAIN) return;
    if (length <= 0) {
      native().close(writer.reader);
      this.#writers.delete(writer);
      return;
    }
    try {
      settle();
      this.#machine.writeText(writer.path, new TextDecoder().decode(this.#buffer.bytes.subarray(0, length)));
    } catch (error) {
      failed(writer.tid, error);
    }
  }
}
