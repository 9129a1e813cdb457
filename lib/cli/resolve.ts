import { NeuronError } from "../../ffi/error.ts";
import type { ResolveOutput } from "./text/json_output.ts";
import { sessionOptions } from "./load.ts";
import { openSession } from "./session.ts";
import { printJson, type Terminal } from "./terminal.ts";

/** `resolve FILE NAME[+OFFSET]`: the device address of a byte of a variable. */
export async function resolve(terminal: Terminal, args: readonly string[], options: Readonly<Record<string, unknown>>): Promise<void> {
  const [file, reference] = args as [string, string];
  await using session = await openSession([file], sessionOptions(options));
  const size = options["size"] as number;
  const wanted = options["subgraph"] as string | undefined;
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
  const answer = { variable: name, varId, offset, size, address: `0x${address.toString(16)}` };
  await session.release();
  if (options["json"] === true) printJson(terminal, { ...answer, subgraph: subgraph.name, device: session.device } satisfies ResolveOutput);
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
