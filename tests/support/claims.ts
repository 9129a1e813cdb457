import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** One testable statement of the project's specification. */
export interface Claim {
  /** For example `P-114`. */
  readonly id: string;
  /** What it says. */
  readonly text: string;
  /** False for statements that need the original binary or hardware. */
  readonly testable: boolean;
}

/** All claims, from the table in `tests/claims.md`. */
export function allClaims(): readonly Claim[] {
  const table = readFileSync(fileURLToPath(new URL("../claims.md", import.meta.url)), "utf8");
  const rows = table.matchAll(/^\| ([PCD]-\d{3}) \| ([^|]*) \| (.+) \|$/gm);
  return [...rows].map(([, id, mark, text]) => ({ id: id!, text: text!, testable: !/n\/a(?! \(shown)/.test(mark!) }));
}

/** The claim IDs in a test's name, or in one of its parents' names. */
export function claimsIn(name: string): string[] {
  return [...name.matchAll(/\b[PCD]-\d{3}\b/g)].map((match) => match[0]);
}

/** Covered / testable per part, and the testable IDs that no passing test names. */
export function claimCoverage(passedNames: readonly string[]): { readonly summary: string; readonly missing: readonly string[] } {
  const covered = new Set(passedNames.flatMap(claimsIn));
  const claims = allClaims().filter((claim) => claim.testable);
  const parts = ["P", "C", "D"].map((part) => {
    const of = claims.filter((claim) => claim.id.startsWith(part));
    return `${part} ${of.filter((claim) => covered.has(claim.id)).length} / ${of.length}`;
  });
  return { summary: parts.join(", "), missing: claims.filter((claim) => !covered.has(claim.id)).map((claim) => claim.id) };
}
