import { existsSync, readFileSync, readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";

/**
 * Where the collection of material that does not travel with this repository
 * lies (real compiled models, specification tables). `NEURON_DMEM_CORPUS`
 * overrides it; without it tests that need it are skipped and counted.
 */
export const corpusRoot: string = process.env["NEURON_DMEM_CORPUS"] ??
  fileURLToPath(new URL("../../../shared/", import.meta.url)).replace(/\/$/, "");

/** Why corpus tests are skipped, or `false` when the corpus is there: the value of node:test's `skip`. */
export const skipWithoutCorpus: string | false = existsSync(`${corpusRoot}/neff/facts.json`)
  ? false
  : "the corpus of real compiled models is not beside this checkout";

/** Absolute path of a corpus file. */
export function corpusPath(relative: string): string {
  return `${corpusRoot}/${relative}`;
}

/** Names of the real compiled models, sorted; empty without a corpus. */
export function corpusModels(): string[] {
  if (skipWithoutCorpus !== false) return [];
  return readdirSync(corpusPath("neff")).filter((name) => /\.(neff|hlo)$/.test(name)).sort();
}

/** The independently computed facts of the models. */
export function corpusFacts(): readonly Record<string, unknown>[] {
  return JSON.parse(readFileSync(corpusPath("neff/facts.json"), "utf8")) as Record<string, unknown>[];
}
