import type { Dmem } from "../dmem/types.ts";
import type { StagedModel } from "../stage/staged_model.ts";
import type { ModelPart } from "./model_part.ts";

/** Steps of an unload, in their order (context notes, 5.2). */
export type ReleaseStep = "rings" | "tables" | "ucode" | "instructions" | "variables";

/**
 * Frees everything a model holds and nothing else: rings, tables, its own
 * libraries (not the core's shared set), instructions, then scratchpad claims,
 * the garbage list and last the MODEL allocators, which must be empty by then.
 *
 * Destroying an allocator frees no device memory; whatever was left in it would
 * stay allocated. That is a defect and reported as one.
 *
 * @throws {PlanError} NRT_FAILURE when something was left
 */
export function releaseModel(staged: StagedModel, parts: readonly ModelPart[], trace: (step: ReleaseStep) => void = () => {}): void {
  trace("rings");
  for (const part of parts) freeAll(part.rings);
  trace("tables");
  for (const part of parts) freeAll(part.tables);
  trace("ucode");
  for (const part of parts) if (part.ucode?.shared === false) part.ucode.set.memory.close();
  trace("instructions");
  for (const part of parts) freeAll(part.instructions);
  trace("variables");
  staged.unload();
}

function freeAll(memories: readonly Dmem[]): void {
  for (const memory of memories) memory.close();
}
