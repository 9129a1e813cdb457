/** Text parts of the page: tooltip, details, search results. Part of the page. All texts go in as text, never as markup. */
import { describe, type Description, summarize } from "./describe.ts";
import type { Page, PageElement, PageFunction } from "./dom.ts";
import { byId, fillOf, type Item, type View } from "./state.ts";
import { humanBytes } from "./text.ts";

/** A new element with a class and text. */
export function element(page: Page, name: string, className: string, text: string): PageElement {
  const made = page.document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
}

/** Fills an element with a description. */
export function showDescription(view: View, into: PageElement, description: Description): void {
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

function resultRow(view: View, item: Item, index: number): PageElement {
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

/** The functions of this file, for the page. */
export const panelFunctions: readonly PageFunction[] = [element, showDescription, showTooltip, hideTooltip, showSelection, showResults, resultRow];
