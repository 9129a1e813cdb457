/** The columns of memory reports: which usages fold into which, and what the table calls them. */
import { aggregateColumnNames, aggregateColumnNames13, aggregateColumns, aggregateColumns13, UsageType, usageLabels } from "../abi/runtime_dmem.ts";

/** Number of usage types, which is also the index of a row's total. */
export const USAGE_COUNT = UsageType.MAX;

/** How many columns a report has besides its total: 12, 13 (releases of 2025, with XT CC) or one per usage. */
export type ColumnForm = 12 | 13 | 22;

/** One column of a report. */
export interface Column {
  /** As flat reports print it. */
  readonly name: string;
  /** Upper and lower header word of the table. */
  readonly header: readonly [string, string];
  /** Whether memory of this kind can belong to a model; else its model rows say `n/a`. */
  readonly ofModels: boolean;
  /** The usage types it sums. */
  readonly usages: readonly number[];
}

const HEADERS: Readonly<Record<string, readonly [string, string]>> = {
  "model code": ["Model", "Code"], "model constants": ["Model", "Constants"], "tensors": ["", "Tensors"],
  "shared scratchpad": ["Shared", "Scratchpad"], "scratchpad": ["", "Scratchpad"], "runtime": ["", "Runtime"],
  "dma rings io": ["DMA Rings", "IO"], "dma rings spill": ["DMA Rings", "Spill"], "dma rings collectives": ["DMA Rings", "Collectives"],
  "dma rings runtime": ["DMA Rings", "Runtime"], "collectives": ["", "Collectives"], "xt cc": ["", "XT CC"],
  "profiler buffers": ["Profiler", "Buffers"],
};
const NEVER_OF_MODELS: ReadonlySet<string> = new Set(["tensors", "shared scratchpad", "xt cc", "profiler buffers"]);

function aggregate(names: readonly string[], map: readonly number[]): readonly Column[] {
  return names.map((name, index) => ({
    name,
    header: HEADERS[name]!,
    ofModels: !NEVER_OF_MODELS.has(name),
    usages: map.flatMap((column, usage) => column === index ? [usage] : []),
  }));
}

/** One column per usage. The wording of this form is ours: nothing public shows it. */
function perUsage(): readonly Column[] {
  return usageLabels.map((name, usage) => {
    const words = name.split(" ").map((word) => word[0]!.toUpperCase() + word.slice(1));
    return {
      name,
      header: [words.slice(0, -1).join(" "), words.at(-1)!] as const,
      ofModels: !NEVER_OF_MODELS.has(name),
      usages: [usage],
    };
  });
}

const FORMS: Readonly<Record<ColumnForm, readonly Column[]>> = {
  12: aggregate(aggregateColumnNames, aggregateColumns),
  13: aggregate(aggregateColumnNames13, aggregateColumns13),
  22: perUsage(),
};

/** The columns of a form, in order. */
export function reportColumns(form: ColumnForm): readonly Column[] {
  return FORMS[form];
}

/** Bytes per column from bytes per usage. */
export function foldUsage(usage: readonly number[], form: ColumnForm): number[] {
  return FORMS[form].map(({ usages }) => usages.reduce((sum, index) => sum + (usage[index] ?? 0), 0));
}

/** Sum of bytes per usage (a 23rd element, the total, is ignored). */
export function sumUsage(usage: readonly number[]): number {
  return usage.slice(0, USAGE_COUNT).reduce((sum, bytes) => sum + bytes, 0);
}
