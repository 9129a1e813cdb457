import type { Product } from "../abi/architecture.ts";
import { type LoadReport, loadTables } from "./text/load_report.ts";
import { ExitCode } from "./failure.ts";
import { startBar } from "./progress.ts";
import { isLarge, openSession, type Session } from "./session.ts";
import { emphasisOf, printJson, type Terminal } from "./terminal.ts";

/** `load FILE`: loads a model, shows where everything went, frees everything. */
export async function load(terminal: Terminal, args: readonly string[], options: Readonly<Record<string, unknown>>): Promise<number> {
  const file = args[0]!;
  const json = options["json"] === true;
  await using progress = await startBar(terminal, { title: "loading", unit: "bytes", quiet: json || !isLarge(file) });
  await using session = await openSession([file], { ...sessionOptions(options), progress });
  progress.stop();
  const before = reportOf(session, file);
  const bars = options["map"] === true && !json ? await barsOf(terminal, session) : null;
  const report: LoadReport = { ...before, leakedBytes: await session.release() };
  if (json) printJson(terminal, report);
  else terminal.print([loadTables(report, emphasisOf(terminal)), ...(bars === null ? [] : ["", bars])].join("\n"));
  return report.leakedBytes === 0 ? ExitCode.OK : ExitCode.REFUSED;
}

async function barsOf(terminal: Terminal, { neuron, loaded, device }: Session): Promise<string> {
  const [{ neuronPicture }, { barsText }] = await Promise.all([import("./picture.ts"), import("./bars.ts")]);
  return barsText(terminal, neuronPicture(neuron, loaded.map(({ model }) => model), { title: "", source: device.label }));
}

/** The options of a session as the command line gives them. */
export function sessionOptions(options: Readonly<Record<string, unknown>>): Parameters<typeof openSession>[1] {
  return {
    fake: options["fake"] as Product | undefined,
    device: options["device"] as number | undefined,
    core: options["core"] as number | undefined,
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
    notes: [...session.neuron.notes, ...neff.notes, ...model.notes].map((note) => note.message),
  };
}

function addressText(address: number | null): string | null {
  return address === null ? null : `0x${address.toString(16)}`;
}
