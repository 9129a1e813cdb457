import { readFileSync } from "node:fs";
import { featureBits } from "../neff/mod.ts";
import { type CodeExplanation, explainableCodes, explainCode } from "../explain/codes.ts";
import { explainLog, type LogExplanation } from "../explain/log.ts";
import { humanSize } from "../text/size.ts";
import type { Given } from "./commands.ts";
import { ExitCode, UsageError } from "./failure.ts";
import { printJson, type Terminal } from "./terminal.ts";

/** `explain CODE` or `explain -` (a runtime log on standard input). Exit code 1 when nothing was recognised. */
export function explain(terminal: Terminal, { code: what, json }: Given<"explain">): number {
  return what === "-"
    ? explainText(terminal, readFileSync(0, "utf8"), json)
    : explainOne(terminal, what, json);
}

function explainOne(terminal: Terminal, what: string, json: boolean): number {
  const code = explainCode(what);
  if (code === undefined) {
    throw new UsageError(`Cannot explain "${what}": it is neither a runtime status nor an errno name`, {
      hint: `Give a status number, one of ${explainableCodes().slice(0, 6).join(", ")} …, or - to read a log from standard input.`,
    });
  }
  if (json) printJson(terminal, code);
  else printCode(terminal, code);
  return ExitCode.OK;
}

/** Explains a log; shared with the tests, which have no standard input to give. */
export function explainText(terminal: Terminal, text: string, json: boolean): number {
  const explanation = explainLog(text, {
    featureNames: (mask) => featureBits(mask).map((feature) => feature.name ?? `bit ${feature.bit}`),
  });
  if (json) printJson(terminal, explanation);
  else printLog(terminal, explanation);
  return explanation.findings.length + explanation.codes.length > 0 ? ExitCode.OK : ExitCode.REFUSED;
}

function printCode(terminal: Terminal, code: CodeExplanation): void {
  terminal.print(`${terminal.bold(`${code.name} (${code.code})`)}  ${code.meaning}`);
  for (const cause of code.causes) terminal.print(`  cause: ${cause}`);
  for (const advice of code.advice) terminal.print(`  try:   ${advice}`);
}

function printLog(terminal: Terminal, explanation: LogExplanation): void {
  if (explanation.findings.length === 0) terminal.print("No known failure in the text.");
  for (const finding of explanation.findings) {
    const head = finding.role === "cause" ? terminal.red("cause") : terminal.dim("then");
    terminal.print(`${head}  ${finding.meaning}  ${terminal.dim(`(line ${finding.line}${finding.count > 1 ? `, ${finding.count} times` : ""})`)}`);
    for (const advice of finding.advice) terminal.print(`  try: ${advice}`);
  }
  if (explanation.usage !== null) {
    terminal.print(`usage: ${Object.entries(explanation.usage).map(([name, bytes]) => `${name} ${humanSize(bytes)}`).join(", ")}`);
  }
  for (const code of explanation.codes) printCode(terminal, code);
  terminal.print(terminal.dim(`${explanation.lines.total} lines read, ${explanation.lines.harmless} known to be harmless`));
}
