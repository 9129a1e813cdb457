import * as v from "valibot";
import { NeffError } from "./error.ts";
import { duplicateKey, neededBytes } from "./definition.ts";
import { parseJson } from "./json.ts";
import type { NeffLimits } from "./limits.ts";
import type { KelfFacts, Member, NeffTarget } from "./model.ts";
import { checkShape, found, shapeError } from "./shape.ts";

const Kelf = v.looseObject({
  version: v.string(),
  target: v.optional(v.string()),
  revision: v.optional(v.string()),
  graphs: v.array(v.looseObject({ name: v.string(), definition: v.string() })),
});

/** Every spelling of a target and what it means (kelf notes, section 3). */
export const TARGET_WORDS: Readonly<Record<string, NeffTarget>> = {
  sunda: "sunda",
  v2: "sunda",
  cayman: "cayman",
  v3: "cayman",
  mariana: "mariana",
  v4: "mariana",
  "*": "*",
  "": "sunda",
};

/** Instance families of each target, for people. */
export const TARGET_FAMILIES: Readonly<Record<NeffTarget, string>> = {
  sunda: "trn1 and inf2",
  cayman: "trn2",
  mariana: "trn3",
  "*": "any device",
};

/** A kelf file, read. */
export interface Kelf {
  readonly facts: KelfFacts;
  readonly target: NeffTarget;
  readonly graphs: readonly { readonly name: string; readonly definition: string }[];
}

/** Reads `kelf-*.json`: version, target and the list of definitions. */
export function readKelf(member: string, context: { members: ReadonlyMap<string, Member>; limits: NeffLimits }): Kelf {
  const { members, limits } = context;
  const document = parseJson(neededBytes(members, member, "kelf file"), { member, limits, duplicates: "report" });
  const repeated = document.duplicates.find(({ key }) => !key.startsWith("#"));
  if (repeated !== undefined) throw duplicateKey(repeated, member);
  const kelf = checkShape(Kelf, document.value, member);
  if (!/^\d+\.\d+/.test(kelf.version)) {
    throw shapeError(`invalid version: MAJOR.MINOR is expected, found ${found(kelf.version)}`, { member, path: "$.version" });
  }
  checkGraphs(kelf.graphs, member, limits);
  return {
    facts: { member, version: kelf.version, target: kelf.target ?? null, revision: kelf.revision ?? null },
    target: targetOf(kelf.target, member),
    graphs: kelf.graphs,
  };
}

function targetOf(word: string | undefined, member: string): NeffTarget {
  const key = word ?? "";
  const target = Object.hasOwn(TARGET_WORDS, key) ? TARGET_WORDS[key] : undefined;
  if (target !== undefined) return target;
  throw new NeffError(`invalid target ${found(key)}: known are sunda, cayman, mariana, v2, v3, v4 and *`, {
    kind: "wrong-target",
    where: { member, path: "$.target" },
  });
}

function checkGraphs(graphs: Kelf["graphs"], member: string, limits: NeffLimits): void {
  if (graphs.length === 0) throw shapeError("no subgraph is listed", { member, path: "$.graphs" });
  if (graphs.length > limits.subgraphs) {
    throw new NeffError(`${graphs.length} subgraphs, at most ${limits.subgraphs} are read`, {
      kind: "limit",
      where: { member, path: "$.graphs" },
    });
  }
  const seen = new Set<string>();
  for (const [index, { name }] of graphs.entries()) {
    if (seen.has(name)) throw shapeError(`subgraph ${found(name)} is listed twice`, { member, path: `$.graphs[${index}].name` });
    seen.add(name);
  }
}
