import { open, readFile } from "node:fs/promises";
import { planNeff } from "../plan/build.ts";
import type { Plan } from "../plan/plan.ts";
import { decodePlanFile, encodePlanFile, PLAN_MAGIC, type PlanFile, planRecord } from "../plan/plan_file.ts";
import { type PlannedSubgraph, type PlanReport, planTables } from "./text/plan_report.ts";
import type { Given } from "./commands.ts";
import { writeOutput } from "./output.ts";
import { readModel } from "./read_model.ts";
import { emphasisOf, printJson, type Terminal } from "./terminal.ts";

/**
 * `plan FILE`: the records a model is planned into; with `--out` also as a file, which
 * `plan` reads too.
 *
 * @throws {PlanError} for a model that cannot be planned, or a plan that contradicts itself
 */
export async function plan(terminal: Terminal, { file, out, force, json }: Given<"plan">): Promise<void> {
  const { target, plans } = await readPlans(file);
  const bytes = encodePlanFile({ target, plans });
  if (out !== undefined) await writeOutput(out, bytes, { kind: "plan", inputs: [file], force });
  if (out === "-") return;
  const report: PlanReport = { file, target, fileBytes: bytes.length, out: out ?? null, subgraphs: plans.map(subgraphOf) };
  if (json) printJson(terminal, report);
  else terminal.print(planTables(report, emphasisOf(terminal)));
}

/** The plans of a model, or of a plan file: that one ends with its magic. */
async function readPlans(file: string): Promise<PlanFile> {
  if (await endsWithMagic(file)) return decodePlanFile(await readFile(file));
  const neff = await readModel(file);
  return { target: neff.target, plans: planNeff(neff) };
}

async function endsWithMagic(file: string): Promise<boolean> {
  // What is wrong with a file that cannot be opened is better said by the reader of models.
  const handle = await open(file).catch(() => null);
  if (handle === null) return false;
  try {
    const { size } = await handle.stat();
    const magic = Buffer.alloc(PLAN_MAGIC.length);
    await handle.read(magic, 0, magic.length, Math.max(0, size - magic.length));
    return magic.toString("latin1") === PLAN_MAGIC;
  } catch {
    return false;
  } finally {
    await handle.close();
  }
}

function subgraphOf(plan: Plan): PlannedSubgraph {
  return {
    name: plan.name,
    count: plan.count,
    setBytes: plan.setBytes,
    planBytes: plan.bytes.length,
    localScratchpadBytes: plan.localScratchpadBytes,
    sharedScratchpadBytes: plan.sharedScratchpadBytes,
    records: Array.from({ length: plan.count }, (_, varId) => planRecord(plan, varId)),
  };
}
