/** Which tensors several models have in common, and what that saves. */
import { ArgumentError } from "../../ffi/error.ts";
import { tensorItems } from "../plan/footprint.ts";
import type { PlannedModel, ShareKey } from "./fit_demand.ts";

/**
 * Which inputs are one tensor for all models on a logical core: `none`; `equal`, all that are equal in
 * name, shape and type; some of these by name; or a function that gives a tensor's key: tensors of one
 * key on one logical core count once (weights and states by their key in the checkpoint, an aliased
 * output by the key of its input), null counts by itself.
 *
 * @example
 * const neff = await readNeff("model.neff");
 * const own = fit([neff, neff], { fixed: false }).sharing.separateBytes;
 * const once = fit([neff, neff], { fixed: false, share: (_model, tensor) => tensor }).sharing.savedBytes;
 * console.log(once === own / 2); // → true
 */
export type ShareChoice = "equal" | "none" | readonly string[] | ((model: number, tensor: string) => string | null);

/** An input that is equal in name, shape and type in several models. */
export interface SharedTensor {
  readonly name: string;
  readonly bytes: number;
  /** Models that have it. */
  readonly models: readonly string[];
  /** Whether it was counted once. */
  readonly shared: boolean;
}

/** What the models of an answer have in common. */
export interface FitSharing {
  readonly mode: "none" | "equal" | "named" | "keys";
  /** Inputs that may be shared. */
  readonly tensors: readonly SharedTensor[];
  /** Bytes that were not counted twice, over all logical cores. */
  readonly savedBytes: number;
  /** Bytes of all tensors if each model had its own, over all logical cores. */
  readonly separateBytes: number;
  /** The same if all equal inputs were shared. */
  readonly sharedBytes: number;
}

interface EqualInput {
  readonly key: string;
  readonly name: string;
  readonly bytes: number;
  readonly models: readonly number[];
}

/** Inputs that are equal in several models, largest first. */
function equalInputs(models: readonly PlannedModel[]): EqualInput[] {
  const found = new Map<string, { name: string; bytes: number; models: number[] }>();
  models.forEach(({ neff }, index) => {
    for (const { name, shape, dtype, size } of neff.inputs) {
      const key = JSON.stringify([name, shape, dtype, size]);
      const entry = found.get(key);
      if (entry === undefined) found.set(key, { name, bytes: size, models: [index] });
      else entry.models.push(index);
    }
  });
  return [...found].flatMap(([key, one]) => (one.models.length > 1 ? [{ key, ...one }] : [])).sort((a, b) => b.bytes - a.bytes);
}

/**
 * The function a choice stands for.
 *
 * @throws {ArgumentError} for a name that is no input which is equal in several models
 */
export function shareKeyOf(models: readonly PlannedModel[], choice: ShareChoice = "none"): ShareKey {
  if (typeof choice === "function") return choice;
  if (choice === "none") return () => null;
  const equal = equalInputs(models);
  const unknown = choice === "equal" ? undefined : choice.find((name) => !equal.some((one) => one.name === name));
  if (unknown !== undefined) {
    throw new ArgumentError(`Cannot share "${unknown}": it is no input of equal shape and type in several of the models`, {
      hint: equal.length === 0 ? "No input is." : `These are: ${equal.slice(0, 8).map(({ name }) => name).join(", ")}${equal.length > 8 ? ", …" : ""}.`,
    });
  }
  const keys = new Map<string, string>();
  for (const { key, name, models: having } of equal) {
    if (choice === "equal" || choice.includes(name)) for (const model of having) keys.set(`${model} ${name}`, key);
  }
  return (model, tensor) => keys.get(`${model} ${tensor}`) ?? null;
}

/** What the models have in common. @param placements logical cores per model */
export function sharingOf(models: readonly PlannedModel[], placements: readonly (readonly number[])[], choice: ShareChoice = "none"): FitSharing {
  const key = shareKeyOf(models, choice);
  const total = (of: ShareKey) => tensorBytes(models, placements, of);
  const separateBytes = total(() => null);
  return {
    mode: typeof choice === "string" ? choice : typeof choice === "function" ? "keys" : "named",
    tensors: equalInputs(models).map(({ name, bytes, models: having }) => ({
      name, bytes, models: having.map((model) => models[model]!.name), shared: having.filter((model) => key(model, name) !== null).length > 1,
    })),
    savedBytes: separateBytes - total(key),
    separateBytes,
    sharedBytes: total(shareKeyOf(models, "equal")),
  };
}

function tensorBytes(models: readonly PlannedModel[], placements: readonly (readonly number[])[], key: ShareKey): number {
  let sum = 0;
  for (const logical of new Set(placements.flat())) {
    const keyed = new Map<string, number>();
    models.forEach(({ plans }, model) => {
      if (!placements[model]!.includes(logical)) return;
      for (const { name, size } of tensorItems(plans)) {
        const one = key(model, name);
        if (one === null) sum += size;
        else keyed.set(one, Math.max(keyed.get(one) ?? 0, size));
      }
    });
    for (const bytes of keyed.values()) sum += bytes;
  }
  return sum;
}
