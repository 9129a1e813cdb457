import type { Product } from "../abi/architecture.ts";
import { type LoadReport, loadTables } from "../report/load_report.ts";
import { ExitCode } from "./failure.ts";
import { openSession, type Session } from "./session.ts";
import { printJson, type Terminal } from "./terminal.ts";

/** `load FILE`: loads a model, shows where everything went, frees everything. */
export async function load(terminal: Terminal, args: readonly string[], options: Readonly<Record<string, unknown>>): Promise<number> {
  const file = args[0]!;
  await using session = await openSession(file, sessionOptions(options));
  const before = reportOf(session, file);
  const report: LoadReport = { ...before, leakedBytes: await session.release() };
  if (options["json"] === true) printJson(terminal, report);
  else terminal.print(loadTables(report, { bold: terminal.bold, dim: terminal.dim, good: terminal.green, bad: terminal.red }));
  return report.leakedBytes === 0 ? ExitCode.OK : ExitCode.REFUSED;
}

/** The options of a session as the command line gives them. */
export function sessionOptions(options: Readonly<Record<string, unknown>>): Parameters<typeof openSession>[1] {
  return {
    fake: options["fake"] as Product | undefined,
    device: options["device"] as number | undefined,
    core: options["core"] as number,
    io: options["io"] as "tensors" | "plan",
  };
}

function reportOf(session: Session, file: string): Omit<LoadReport, "leakedBytes"> {
  const { neff, model, device, usage } = session;
  return {
    file,
    device,
    target: neff.target,
    subgraphs: neff.subgraphs.map((_, index) => {
      const subgraph = model.subgraph(index);
      return { name: subgraph.name, core: subgraph.core, variables: [...subgraph.variables()].map((variable) => ({ ...variable, address: addressText(variable.address) })) };
    }),
    usage,
    notes: [...neff.notes.map((note) => note.message), ...model.notes.map((note) => note.message)],
  };
}

function addressText(address: number | null): string | null {
  return address === null ? null : `0x${address.toString(16)}`;
}
