import { explainFeatures, LOADER_FEATURE_MASK, summarizeNeff } from "../neff/mod.ts";
import { loadItems } from "../plan/footprint.ts";
import { deploymentReport, deploymentText } from "./text/deployment_report.ts";
import { type Inspection, inspectNeff } from "./text/inspection.ts";
import { grouped, humanSize } from "../text/size.ts";
import { table } from "../text/table.ts";
import type { Given } from "./commands.ts";
import { isDeployment, readDeployment } from "../deployment/deployment.ts";
import { ExitCode, UsageError } from "./failure.ts";
import { readModel } from "./read_model.ts";
import { emphasisOf, printJson, type Terminal } from "./terminal.ts";

/**
 * `inspect FILE`: the facts of a compiled model, or of the programs in an archive or folder. With `--supported-features` the exit
 * code is 1 when the model has features the mask lacks.
 *
 * @throws {NeffError} when the file cannot be read
 */
export async function inspect(terminal: Terminal, { file, supportedFeatures: asked, json }: Given<"inspect">): Promise<number> {
  if (await isDeployment(file)) return inspectDeployment(terminal, { file, supportedFeatures: asked, json });
  const neff = await readModel(file, { verifyHash: true });
  const facts = inspectNeff(neff, {
    summary: summarizeNeff(neff, file),
    features: explainFeatures(neff.header.featureBits, asked ?? LOADER_FEATURE_MASK),
    ringBytes: (subgraph) => loadItems(neff, subgraph).reduce((sum, item) => sum + (item.kind === "rings" ? item.size : 0), 0),
  });
  if (json) printJson(terminal, facts);
  else print(terminal, facts, asked !== undefined);
  return asked === undefined || facts.features.accepted ? ExitCode.OK : ExitCode.REFUSED;
}

/** An archive of programs, or a folder of them. */
async function inspectDeployment(terminal: Terminal, { file, supportedFeatures, json }: Given<"inspect">): Promise<number> {
  if (supportedFeatures !== undefined) throw new UsageError(`Cannot compare features of ${file}: it is no compiled model but an archive or a folder`, { hint: "Give one NEFF; unpack writes those of an archive." });
  const report = deploymentReport(await readDeployment(file));
  if (json) printJson(terminal, report);
  else terminal.print(deploymentText(report, emphasisOf(terminal)));
  return ExitCode.OK;
}

function print(terminal: Terminal, facts: Inspection, maskAsked: boolean): void {
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
    emphasisOf(terminal),
  ));
  terminal.print("");
  terminal.print(table(
    [
      { title: "subgraph" }, { title: "vars", align: "right" }, { title: "constants", align: "right" }, { title: "scratchpad", align: "right" },
      { title: "code", align: "right" }, { title: "queues", align: "right" }, { title: "transfers", align: "right" }, { title: "rings ~", align: "right" },
    ],
    facts.subgraphs.map((subgraph) => [
      subgraph.name,
      grouped(Object.values(subgraph.variableCounts).reduce((sum, count) => sum + count, 0)),
      humanSize(subgraph.bytesByType["file"] ?? 0), humanSize(subgraph.scratchpad.highWaterBytes), humanSize(subgraph.codeBytes),
      String(subgraph.dmaQueues.length), grouped(subgraph.dmaDescriptors), humanSize(subgraph.ringBytes),
    ]),
    emphasisOf(terminal),
  ));
  for (const { name, variableCounts } of facts.subgraphs) {
    terminal.print(terminal.dim(`${name}: ${Object.entries(variableCounts).map(([type, count]) => `${count} ${type}`).join(", ")}`));
  }
  if (facts.features.bits.length > 0) terminal.print(`\nfeatures: ${facts.features.bits.map(featureText).join(", ")}`);
  if (maskAsked) terminal.print(supportLine(terminal, facts.features));
  for (const note of facts.notes) terminal.print(terminal.dim(`note: ${note}`));
}

function supportLine(terminal: Terminal, { accepted, supported, missing, missingMask }: Inspection["features"]): string {
  return accepted
    ? terminal.green(`a runtime that supports ${supported} accepts this model`)
    : terminal.red(`a runtime that supports ${supported} refuses this model: it lacks ${missingMask} = ${missing.map(featureText).join(", ")}`);
}

function featureText({ bit, name }: Inspection["features"]["bits"][number]): string {
  return `0x${(1n << BigInt(bit)).toString(16)} ${name === null ? "(unknown)" : `(${name})`}`;
}
