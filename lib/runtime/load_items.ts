import type { UsageName } from "../abi/runtime_dmem.ts";
import type { Neff, Subgraph } from "../neff/model.ts";

/** What loading a subgraph allocates besides its variables. */
export interface LoadItem {
  readonly kind: "tables" | "instructions" | "rings";
  readonly usage: UsageName;
  readonly size: number;
  readonly alignment: number | undefined;
  readonly hint: string;
  readonly member: string | undefined;
  readonly memberBytes: number;
}

export function loadItems(_neff: Neff, _subgraph: Subgraph): readonly LoadItem[] {
  return [];
}
