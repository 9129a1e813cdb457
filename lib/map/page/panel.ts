/** Text parts of the page: tooltip, details, search results. Part of the page. All texts go in as text, never as markup. */
import type { Drawing } from "../drawing.ts";
import type { Page } from "./state.ts";
import { byId, fillOf, type Item, type View } from "./state.ts";
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


/** A new element with a class and text. */
export function element(page: Page, name: string, className: string, text: string): HTMLElement {
  const made = page.document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
}

/** Fills an element with a description. */
export function showDescription(view: View, into: HTMLElement, description: Description): void {
  const { page } = view;
  const title = element(page, "p", "what", "");
  const chip = element(page, "i", "chip", "");
  chip.style["background"] = fillOf(view, description.category);
  title.append(chip, element(page, "strong", "", description.title), element(page, "span", "kind", description.kind));
  const list = element(page, "dl", "", "");
  for (const [label, text] of description.lines) list.append(element(page, "dt", "", label), element(page, "dd", label === "range" ? "mono" : "", text));
  into.replaceChildren(title, list);
}

/** Shows the tooltip near a point of the window, inside the window. */
export function showTooltip(view: View, description: Description, x: number, y: number): void {
  const tip = byId(view.page, "tip");
  showDescription(view, tip, description);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = x + 16 + width > view.page.innerWidth ? x - width - 12 : x + 16;
  const top = y + 16 + height > view.page.innerHeight ? y - height - 12 : y + 16;
  tip.style["left"] = `${Math.max(4, left)}px`;
  tip.style["top"] = `${Math.max(4, top)}px`;
}

/** Takes the tooltip away. */
export function hideTooltip(view: View): void {
  byId(view.page, "tip").hidden = true;
}

/** Shows the selected item below the map and says it to screen readers. */
export function showSelection(view: View): void {
  const panel = byId(view.page, "selection");
  const { selected } = view;
  panel.dataset["selected"] = selected?.name ?? "";
  if (selected === null) {
    panel.replaceChildren(element(view.page, "p", "empty", "Point at anything to see what it is; click to keep it here."));
    return;
  }
  showDescription(view, panel, describe(view, selected));
  byId(view.page, "said").textContent = summarize(view, selected);
}

/** Lists what the search found. */
export function showResults(view: View): void {
  const { page, matches, query } = view;
  const count = byId(page, "found");
  count.textContent = query === "" ? "" : matches.length === 0 ? "nothing found" : view.matchAt < 0 ? `${matches.length} found` : `${view.matchAt + 1} of ${matches.length}`;
  count.dataset["count"] = query === "" ? "" : String(matches.length);
  const list = byId(page, "results");
  list.hidden = query === "" || matches.length === 0;
  const first = Math.max(0, Math.min(view.matchAt - 4, matches.length - 12));
  list.replaceChildren(...matches.slice(first, first + 12).map((item, index) => resultRow(view, item, first + index)));
}

function resultRow(view: View, item: Item, index: number): HTMLElement {
  const { page } = view;
  const hbm = view.hbms[item.slot]!;
  const row = element(page, "li", index === view.matchAt ? "current" : "", "");
  row.dataset["index"] = String(index);
  row.setAttribute("role", "option");
  row.setAttribute("aria-selected", index === view.matchAt ? "true" : "false");
  const chip = element(page, "i", "chip", "");
  chip.style["background"] = fillOf(view, item.category);
  const place = view.hbms.length > 1 ? `${view.data.hbms.some((one) => one.device !== hbm.device) ? `device ${hbm.device} ` : ""}HBM ${hbm.index}` : "";
  row.append(chip, element(page, "span", "name", item.name), element(page, "span", "more", `${item.owner}  ${humanBytes(item.size)}  ${place}`));
  return row;
}
