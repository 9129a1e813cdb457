/** Numbers as text. Part of the page: each function stands on its own or uses functions of this folder. */
import type { Item } from "./state.ts";

/** A byte count for people: `62.0 KiB`. */
export function humanBytes(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = bytes;
  let unit = 0;
  // What would be written as 1024 is one of the next unit.
  while (Math.abs(value) >= (unit === 0 ? 1024 : 1023.5) && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return unit === 0 ? `${bytes} B` : `${value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)} ${units[unit]}`;
}

/** A byte count for people and to the byte: `62.0 KiB · 63 488 bytes`. */
export function exactBytes(bytes: number): string {
  const exact = `${String(bytes).replace(/\B(?=(\d{3})+(?!\d))/g, "\u2009")} ${bytes === 1 ? "byte" : "bytes"}`;
  return bytes < 1024 ? exact : `${humanBytes(bytes)} · ${exact}`;
}

/** An address as `0x…`. */
export function hexAddress(value: number): string {
  return `0x${value.toString(16).padStart(10, "0")}`;
}

/** A range of addresses as `0x… – 0x…`, the end included. */
export function hexRange(start: number, size: number): string {
  return `${hexAddress(start)} – ${hexAddress(start + size - 1)}`;
}

/** Whether black text reads better on a colour than white. @param colour `#rrggbb` */
export function isLight(colour: string): boolean {
  const part = (at: number): number => {
    const value = Number.parseInt(colour.slice(at, at + 2), 16) / 255;
    return value <= 0.040_45 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  };
  return 0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5) > 0.179;
}

/** Shortens text in the middle to a number of characters. */
export function shorten(text: string, most: number): string {
  if (text.length <= most) return text;
  if (most <= 1) return "";
  const tail = Math.floor((most - 1) / 3);
  return `${text.slice(0, most - 1 - tail)}…${text.slice(text.length - tail)}`;
}


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
