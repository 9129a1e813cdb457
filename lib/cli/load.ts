import type { ResolveOutput } from "./text/json_output.ts";
import { type LoadReport, loadTables } from "./text/load_report.ts";
import { NeuronError } from "../../ffi/error.ts";
import { hex } from "../../ffi/u64.ts";
import type { Given } from "./commands.ts";
import { ExitCode } from "./failure.ts";
import { startBar } from "./progress.ts";
import { isLarge } from "./read_model.ts";
import { openSession, type Session } from "./session.ts";
import { emphasisOf, printJson, type Terminal } from "./terminal.ts";

/** `load FILE`: loads a model, shows where everything went, frees everything. */
export async function load(terminal: Terminal, given: Given<"load">): Promise<number> {
  const { file, json } = given;
  await using progress = await startBar(terminal, { title: "loading", unit: "bytes", quiet: json || !isLarge(file) });
  await using session = await openSession([file], { ...given, progress });
  progress.stop();
  const before = reportOf(session, file);
  const bars = given.map && !json ? await barsOf(terminal, session) : null;
  const report: LoadReport = { ...before, leakedBytes: await session.release() };
  if (json) printJson(terminal, report);
  else terminal.print([loadTables(report, emphasisOf(terminal)), ...(bars === null ? [] : ["", bars])].join("\n"));
  return report.leakedBytes === 0 ? ExitCode.OK : ExitCode.REFUSED;
}

async function barsOf(terminal: Terminal, { neuron, loaded, device }: Session): Promise<string> {
  const { barsText, neuronPicture } = await import("./picture.ts");
  return barsText(terminal, neuronPicture(neuron, loaded.map(({ model }) => model), { title: "", source: device.label }));
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

function addressText<T extends number | null>(address: T): T extends number ? string : null;
function addressText(address: number | null): string | null {
  return address === null ? null : hex(address);
}

/** `resolve FILE NAME[+OFFSET]`: the device address of a byte of a variable. */
export async function resolve(terminal: Terminal, given: Given<"resolve">): Promise<void> {
  const { file, name: reference, subgraph: wanted, size } = given;
  await using session = await openSession([file], given);
  const subgraphs = session.neff.subgraphs;
  if (wanted !== undefined && !subgraphs.some((subgraph) => subgraph.name === wanted)) {
    throw new NeuronError(`Cannot resolve in subgraph ${wanted}: ${file} has ${subgraphs.map((subgraph) => subgraph.name).join(", ")}`);
  }
  const inside = subgraphs.filter((subgraph) => wanted === undefined || subgraph.name === wanted);
  const { name, offset } = split(reference, (text) => inside.some((subgraph) => subgraph.variables.has(text)));
  const index = Math.max(0, subgraphs.findIndex((subgraph) => inside.includes(subgraph) && subgraph.variables.has(name)));
  const subgraph = session.model.subgraph(wanted ?? index);
  const address = subgraph.resolve(name, offset, size);
  const { varId } = subgraph.variable(name);
  const answer = { variable: name, varId, offset, size, address: addressText(address) };
  await session.release();
  if (given.json) printJson(terminal, { ...answer, subgraph: subgraph.name, device: session.device } satisfies ResolveOutput);
  else {
    terminal.print(answer.address);
    terminal.note(terminal.dim(`${name}${offset > 0 ? `+${offset}` : ""} of ${subgraph.name} on core ${subgraph.core}, ${session.device.label}`));
  }
}

/** Takes `NAME+OFFSET` apart. A variable that has the whole text as its name wins. */
function split(reference: string, exists: (name: string) => boolean): { readonly name: string; readonly offset: number } {
  const match = /^(.+)\+(0x[0-9a-f]+|\d+)$/i.exec(reference);
  if (match === null || exists(reference)) return { name: reference, offset: 0 };
  return { name: match[1]!, offset: Number(match[2]) };
}
