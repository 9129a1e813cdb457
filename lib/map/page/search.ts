/** Finding things by text or address. Part of the page. */
import type { PageFunction } from "./dom.ts";
import type { Item } from "./state.ts";

/**
 * The items that match every word of a query, in name, usage, type, owner,
 * subgraph or kind; a word that is an address (`0x…`) matches what contains it,
 * a variable before its region.
 */
export function findItems(items: readonly Item[], query: string): readonly Item[] {
  const words = query.toLowerCase().split(/\s+/).filter((word) => word !== "");
  if (words.length === 0) return [];
  const found = items.filter((item) => {
    const text = `${item.name}\n${item.usage}\n${item.type}\n${item.owner}\n${item.subgraph}\n${item.kind === "gap" ? "free gap" : item.kind}`.toLowerCase();
    return words.every((word) => {
      if (!/^0x[0-9a-f]+$/.test(word)) return text.includes(word);
      const address = Number.parseInt(word, 16);
      return address >= item.start && address < item.start + item.size;
    });
  });
  // A name that is the query itself comes first, then variables.
  const rank = (item: Item): number => (item.name.toLowerCase() === words.join(" ") ? 0 : item.kind === "variable" ? 1 : 2);
  return found.map((item, index) => ({ item, index })).sort((a, b) => rank(a.item) - rank(b.item) || a.index - b.index).map(({ item }) => item);
}

/** The functions of this file, for the page. */
export const searchFunctions: readonly PageFunction[] = [findItems];
