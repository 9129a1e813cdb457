/**
 * What a program's launcher and its runner say to the host of a fake machine,
 * over a local stream socket: one line per message, fields separated by blanks.
 *
 * - runner → host `run ID`: a program with this identity is about to start.
 * - launcher → host `serve ID PID`: this process is about to install the filter;
 *   the host looks for the listener among its descriptors.
 *   host → launcher `ok` once it has it, or `error TEXT`.
 * - runner → host `ended`: the program's first process has ended.
 *   host → runner `gone`: none of its processes is left, everything is given back.
 */

/** Prefix of the abstract socket names. */
const PREFIX = "neuron-dmem-fake";

/** The socket of a named machine, per user. */
export function machineSocket(name: string, uid: number): string {
  return `${PREFIX}/${uid}/machine/${name}`;
}

/** The socket of a machine that only one program uses. */
export function privateSocket(pid: number): string {
  return `${PREFIX}/${pid}/${crypto.randomUUID()}`;
}

/** Exit codes of the launcher, as `env` and `timeout` use them. */
export const LaunchExit = { failed: 125, cannotExecute: 126, notFound: 127 } as const;

/** Takes the complete lines out of `received` and returns them with what is left. */
export function splitLines(received: string): { readonly lines: readonly string[]; readonly rest: string } {
  const lines = received.split("\n");
  const rest = lines.pop() ?? "";
  return { lines, rest };
}
