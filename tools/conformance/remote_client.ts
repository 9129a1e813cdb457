import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Errno, errnoName } from "../../ffi/errno.ts";
import { MemfdFlag, native } from "../../ffi/native.ts";
import { ShimError, shimObstacle } from "../../lib/shim/capability.ts";

/** `MFD_EXEC`: the file may be executed. */
const MFD_EXEC = 0x10;

/** The language of the program that makes recorded calls out of process. */
export type ClientLanguage = "c" | "python";

/** A program that makes calls as it is told, ready to be started. */
export interface RemoteClient extends Disposable {
  /** Its language. */
  readonly language: ClientLanguage;
  /** Program and arguments; the name of a socket comes after them. */
  readonly command: readonly string[];
}

/**
 * Makes the client ready: compiled C where there is a compiler (`CC`, else
 * `cc`), else Python 3.
 *
 * @param languages what may be used, in order of preference
 * @throws {ShimError} when programs cannot run under a fake here, or there is neither
 */
export function prepareClient(languages: readonly ClientLanguage[] = ["c", "python"]): RemoteClient {
  const obstacle = shimObstacle();
  if (obstacle !== undefined) throw unable(obstacle, "Replay in this process instead, without --out-of-process.");
  const reasons: string[] = [];
  for (const language of languages) {
    const made = language === "c" ? compiled() : interpreted();
    if (typeof made !== "string") return made;
    reasons.push(made);
  }
  throw unable(reasons.join("; "), "Install a C compiler or Python 3; CC names another compiler than cc.");
}

function unable(reason: string, hint: string): ShimError {
  return new ShimError(`Cannot replay out of process: ${reason}`, { hint });
}

/** The C client, compiled into memory: nothing is left behind, however this process ends. */
function compiled(): RemoteClient | string {
  const compiler = process.env["CC"] ?? "cc";
  const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-client-"));
  try {
    const program = join(folder, "client");
    const { status, error, stderr } = spawnSync(compiler, ["-O1", "-pthread", "-o", program, sourceOf("client.c")], { encoding: "utf8" });
    if (error !== undefined) return `there is no C compiler ${compiler}`;
    if (status !== 0) return `${compiler} failed: ${String(stderr).trim().split("\n")[0]}`;
    const fd = inMemory(readFileSync(program));
    if (fd < 0) return `programs cannot be run from memory (memfd_create: ${errnoName(-fd)})`;
    return { language: "c", command: [`/proc/${process.pid}/fd/${fd}`], [Symbol.dispose]: () => void native().close(fd) };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** A descriptor of a program in memory, or −errno. */
function inMemory(program: Uint8Array): number {
  // Linux before 6.3 has no such flag, and needs none.
  let fd = native().memfdCreate("neuron-dmem-client", MemfdFlag.CLOEXEC | MFD_EXEC);
  if (fd === -Errno.EINVAL) fd = native().memfdCreate("neuron-dmem-client", MemfdFlag.CLOEXEC);
  if (fd >= 0) writeFileSync(`/proc/self/fd/${fd}`, program);
  return fd;
}

function interpreted(): RemoteClient | string {
  // The interpreter itself: `python3` may be a script that chooses one, and start slowly.
  const { status, stdout } = spawnSync("python3", ["-c", "import ctypes, sys; print(sys.executable)"], { encoding: "utf8" });
  const file = status === 0 ? String(stdout).trim() : "";
  if (file === "") return "there is no Python 3 with ctypes";
  return { language: "python", command: [file, "-I", "-S", sourceOf("client.py")], [Symbol.dispose]: () => {} };
}

function sourceOf(file: string): string {
  return fileURLToPath(new URL(file, import.meta.url));
}
