/** What is told about things. Part of the page. */
import type { PageFunction } from "./dom.ts";
import type { Drawing } from "../drawing.ts";
import type { Item, View } from "./state.ts";
import { exactBytes, hexRange, humanBytes } from "./text.ts";

/** A title and labelled lines. */
export interface Description {
  /** Heading. */
  readonly title: string;
  /** What it is, in a word. */
  readonly kind: string;
  /** Index of the category, −1 for none. */
  readonly category: number;
  /** Label and text. */
  readonly lines: readonly (readonly [string, string])[];
}

/** Everything there is to say about a region or variable. */
export function describe(view: View, item: Item): Description {
  const hbm = view.hbms[item.slot]!;
  const lines: [string, string][] = [["range", hexRange(item.start, item.size)], ["size", exactBytes(item.size)]];
  const add = (label: string, text: string): void => {
    if (text !== "") lines.push([label, text]);
  };
  add("type", item.type);
  add("usage", item.usage);
  add(item.kind === "variable" ? "model" : "owner", item.owner);
  add("subgraph", item.subgraph);
  if (item.region !== null) {
    add("in", `${item.region.name}, at +0x${(item.start - item.region.start).toString(16)}`);
    const sharing = item.region.variables.filter((other) => other !== item && other.start < item.start + item.size && item.start < other.start + other.size);
    if (sharing.length > 0) add("shares with", `${sharing.length} other ${sharing.length === 1 ? "variable" : "variables"}`);
  } else if (item.row !== null) {
    const [, , , , , , , hint, core, requested, covered, shared, chunks] = item.row;
    add("hint", view.data.strings[hint] ?? "");
    add("core", core < 0 ? "" : `${core} (of this device)`);
    if (requested >= 0 && requested < item.size) add("rounding", `${humanBytes(item.size - requested)} of ${humanBytes(requested)} asked for`);
    if (chunks > 1) add("consists of", `${chunks} adjacent allocations`);
    if (item.variables.length > 0) add("variables", `${item.variables.length}, covering ${exactBytes(covered)}`);
    if (shared > 0) add("shared", `${exactBytes(shared)} by two or more`);
  }
  add("where", `device ${hbm.device}, HBM ${hbm.index}`);
  return { title: item.name, kind: item.kind === "gap" ? "free" : item.kind, category: item.category, lines };
}

/** One line about an item, for lists and screen readers. */
export function summarize(view: View, item: Item): string {
  const hbm = view.hbms[item.slot]!;
  return `${item.name}, ${item.kind}, ${exactBytes(item.size)}, ${hexRange(item.start, item.size)}, HBM ${hbm.index}`;
}

/** Bytes of a node of the tree of owners. */
export function nodeBytes(node: Drawing["tree"]): number {
  return node[6].reduce((sum, child) => sum + nodeBytes(child), node[1]);
}

/** What a rectangle of the treemap stands for. @param path from the root to the node */
export function describeNode(view: View, path: readonly Drawing["tree"][]): Description {
  const node = path.at(-1)!;
  const bytes = nodeBytes(node);
  const total = nodeBytes(view.data.tree);
  const names = path.slice(1, -1).map((one) => view.data.strings[one[0]] ?? "");
  const hbm = view.hbms[node[4]];
  const lines: [string, string][] = [["size", exactBytes(bytes)], ["share", `${((100 * bytes) / total).toFixed(2)} % of what is in use`]];
  if (names.length > 0) lines.push(["owner", names.join(" → ")]);
  if (node[2] !== null && node[2] !== "rest") lines.push(["range", hexRange(node[5], bytes)]);
  if (hbm !== undefined) lines.push(["where", `device ${hbm.device}, HBM ${hbm.index}`]);
  const kind = { variable: "variable", aliases: "variables sharing memory", rest: "not covered by a variable", region: "allocation", group: "" }[node[2] ?? "group"];
  return { title: view.data.strings[node[0]] ?? "", kind, category: node[3], lines };
}

/** What a moment of the timeline tells. */
export function describeMoment(view: View, index: number): Description {
  const [sequence, time, action, bytes, slot, usage, category, owner, used, total] = view.data.time.rows[index]!;
  const hbm = view.hbms[slot];
  const lines: [string, string][] = [["size", exactBytes(bytes)], ["usage", view.data.strings[usage] ?? ""]];
  if (owner >= 0) lines.push(["owner", view.data.strings[owner] ?? ""]);
  lines.push(["where", hbm === undefined ? "host memory" : `device ${hbm.device}, HBM ${hbm.index}`]);
  if (used !== null) lines.push(["HBM then", exactBytes(used)]);
  lines.push(["all HBMs then", exactBytes(total)]);
  if (time !== null) lines.push(["time", `${time.toFixed(3)} s`]);
  return { title: action === "alloc" ? "allocated" : "freed", kind: `event ${sequence}`, category, lines };
}

/** The functions of this file, for the page. */
export const describeFunctions: readonly PageFunction[] = [describe, summarize, nodeBytes, describeNode, describeMoment];
