/** What memory is for, in the ten kinds a picture tells apart, and how each is drawn. */
import { aggregateColumns, usageNames } from "../abi/runtime_dmem.ts";

/** Key of a {@linkcode Category}. */
export type CategoryKey =
  | "code" | "constants" | "tensors" | "scratchpad" | "spill" | "rings" | "collectives" | "profiler" | "runtime" | "driver";

/** One kind of use and how it is drawn. */
export interface Category {
  /** Its key. */
  readonly key: CategoryKey;
  /** Its name in legends. */
  readonly label: string;
  /** One letter for terminals without colour. */
  readonly letter: string;
  /** Fill on a light page. */
  readonly light: string;
  /** Fill on a dark page. */
  readonly dark: string;
  /** Colour of a 256-colour terminal. */
  readonly ansi: number;
}

/**
 * The categories, in the order of legends.
 *
 * The colours were chosen so that any two stay apart for people with protanopia,
 * deuteranopia, tritanopia and without: a test measures it.
 */
export const categories: readonly Category[] = [
  { key: "code", label: "code", letter: "c", light: "#f78b05", dark: "#f4af3e", ansi: 208 },
  { key: "constants", label: "constants", letter: "k", light: "#3170ed", dark: "#286ca5", ansi: 27 },
  { key: "tensors", label: "tensors", letter: "t", light: "#64d1fd", dark: "#74c0ff", ansi: 81 },
  { key: "scratchpad", label: "shared scratchpad", letter: "s", light: "#136a5d", dark: "#1aa15f", ansi: 29 },
  { key: "spill", label: "private scratchpad", letter: "p", light: "#c0e483", dark: "#ede9a1", ansi: 192 },
  { key: "rings", label: "DMA rings", letter: "r", light: "#b26fa4", dark: "#c57eb6", ansi: 133 },
  { key: "collectives", label: "collectives", letter: "x", light: "#c00007", dark: "#b21500", ansi: 124 },
  { key: "profiler", label: "notifications", letter: "n", light: "#7224a1", dark: "#9555ee", ansi: 91 },
  { key: "runtime", label: "runtime", letter: "m", light: "#b3ac97", dark: "#bbc0b0", ansi: 144 },
  { key: "driver", label: "driver", letter: "d", light: "#2a2c31", dark: "#575859", ansi: 240 },
];

const BY_KEY = new Map(categories.map((category) => [category.key, category]));
/** Categories in the order of the 12 columns of reports: the four ring columns are one here. */
const OF_COLUMN: readonly CategoryKey[] = [
  "code", "constants", "tensors", "scratchpad", "spill", "runtime", "rings", "rings", "rings", "rings", "collectives", "profiler",
];
/** The driver's names in sysfs. */
const OF_SYSFS: Readonly<Record<string, CategoryKey>> = {
  model_code: "code", constants: "constants", tensors: "tensors", model_shared_scratchpad: "scratchpad", nonshared_scratchpad: "spill",
  dma_rings: "rings", collectives: "collectives", notifications: "profiler", runtime_memory: "runtime", driver_memory: "driver",
  uncategorized: "runtime", dma_buffers: "code", application_memory: "runtime",
};
const OF_USAGE = new Map<string, CategoryKey>([
  ...usageNames.map((name, value) => [name as string, OF_COLUMN[aggregateColumns[value]!]!] as const),
  ...Object.entries(OF_SYSFS),
]);

/** The category of a key. */
export function categoryOf(key: CategoryKey): Category {
  return BY_KEY.get(key)!;
}

/**
 * The category of a usage: a runtime usage name (`TENSOR`) goes by the column of
 * the memory report, a driver category (`model_code`) by its name; anything else
 * is `runtime`.
 */
export function categoryOfUsage(usage: string): CategoryKey {
  return OF_USAGE.get(usage) ?? "runtime";
}
