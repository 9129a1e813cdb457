import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { ShimError, shimObstacle } from "../shim/capability.ts";

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

function compiled(): RemoteClient | string {
  const compiler = process.env["CC"] ?? "cc";
  const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-client-"));
  const program = join(folder, "client");
  const remove = () => rmSync(folder, { recursive: true, force: true });
  const { status, error, stderr } = spawnSync(compiler, ["-O1", "-pthread", "-o", program, sourceOf("client.c")], { encoding: "utf8" });
  if (status === 0) return { language: "c", command: [program], [Symbol.dispose]: remove };
  remove();
  return error === undefined ? `${compiler} failed: ${String(stderr).trim().split("\n")[0]}` : `there is no C compiler ${compiler}`;
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
