import { readNeff } from "../neff/mod.ts";
import { type Inspection, inspectNeff } from "../report/inspection.ts";
import { grouped, humanSize } from "../report/size.ts";
import { table } from "../report/table.ts";
import { printJson, type Terminal } from "./terminal.ts";

/** `inspect FILE`: the facts of a compiled model. @throws {NeffError} when the file cannot be read */
export async function inspect(terminal: Terminal, args: readonly string[], options: Readonly<Record<string, unknown>>): Promise<void> {
  const file = args[0]!;
  const facts = inspectNeff(await readNeff(file), file);
  if (options["json"] === true) return printJson(terminal, facts);
  print(terminal, facts);
}

function print(terminal: Terminal, facts: Inspection): void {
  const { header, archive } = facts;
  const inputs = facts.inputs.reduce((sum, tensor) => sum + tensor.size, 0);
  const outputs = facts.outputs.reduce((sum, tensor) => sum + tensor.size, 0);
  const constants = facts.subgraphs.map((subgraph) => humanSize(subgraph.bytesByType["file"] ?? 0)).join(" + ");
  terminal.print(`${terminal.bold(facts.file)}  ${humanSize(facts.fileBytes)}, for ${facts.target}, LNC ${header.lncSize}, compiler ${facts.compiler ?? "unknown"}`);
  terminal.print(`inputs ${humanSize(inputs)} (${facts.inputs.length})   outputs ${humanSize(outputs)} (${facts.outputs.length})   constants ${constants} per core`);
  terminal.print(terminal.dim(
    `header ${header.major}.${header.minor}, package ${header.pkgVersion}, features ${header.featureBits}, uuid ${header.uuid}; ` +
      `${archive.format}, ${archive.members} members, ${humanSize(archive.tarBytes)} of tar, ${grouped(archive.paddingBytes)} bytes padding`,
  ));
  terminal.print("");
  terminal.print(table(
    [{ title: "tensor" }, { title: "use" }, { title: "shape" }, { title: "type" }, { title: "size", align: "right" }],
    [...facts.inputs.map((tensor) => ({ tensor, use: "input" })), ...facts.outputs.map((tensor) => ({ tensor, use: "output" }))]
      .map(({ tensor, use }) => [tensor.name, use, tensor.shape === null ? "?" : tensor.shape.join("×") || "scalar", tensor.dtype ?? "?", humanSize(tensor.size)]),
    terminal.bold,
  ));
  terminal.print("");
  terminal.print(table(
    [
      { title: "subgraph" }, { title: "variables" }, { title: "constants", align: "right" }, { title: "scratchpad", align: "right" },
      { title: "code", align: "right" }, { title: "DMA queues", align: "right" }, { title: "DMA entries", align: "right" },
    ],
    facts.subgraphs.map((subgraph) => [
      subgraph.name,
      Object.entries(subgraph.variableCounts).map(([type, count]) => `${count} ${type}`).join(", "),
      humanSize(subgraph.bytesByType["file"] ?? 0), humanSize(subgraph.scratchpad.highWaterBytes), humanSize(subgraph.codeBytes),
      String(subgraph.dmaQueues.length), grouped(subgraph.dmaDescriptors),
    ]),
    terminal.bold,
  ));
  for (const note of facts.notes) terminal.print(terminal.dim(`note: ${note}`));
}
