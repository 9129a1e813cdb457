import { NrtStatus } from "../abi/runtime_dmem.ts";
import type { Dmem } from "../dmem/types.ts";
import type { StagedModel } from "../plan/staged_model.ts";
import { NrtError } from "./errors.ts";
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
 * @throws {NrtError} NRT_FAILURE when something was left
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
  const left = parts.map((part) => ({ part, count: part.allocator.count - part.tracker.length })).filter(({ count }) => count > 0);
  trace("variables");
  staged.unload();
  if (left.length === 0) return;
  const where = left.map(({ part, count }) => `${count} on ${part.core}`).join(", ");
  throw new NrtError(NrtStatus.FAILURE, `Cannot account for all memory of model ${parts[0]!.handle} (${parts[0]!.name}): allocations nobody freed, ${where}`, {
    hint: "Free what you allocated from the model's allocator before you unload it.",
  });
}

function freeAll(memories: readonly Dmem[]): void {
  for (const memory of memories) memory.close();
}
