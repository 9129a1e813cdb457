import Table from "cli-table3";

/** How one column is set. */
export interface Column {
  /** The heading. */
  readonly title: string;
  /** Numbers go right. */
  readonly align?: "left" | "right";
}

const PLAIN = {
  "top": "", "top-mid": "", "top-left": "", "top-right": "", "bottom": "", "bottom-mid": "", "bottom-left": "", "bottom-right": "",
  "left": "", "left-mid": "", "mid": "", "mid-mid": "", "right": "", "right-mid": "", "middle": "  ",
};

/**
 * Sets rows under headings, without rules, columns two spaces apart.
 *
 * @param heading turns a heading into what is printed, for example bold
 */
export function table(columns: readonly Column[], rows: readonly (readonly string[])[], heading: (text: string) => string = (text) => text): string {
  const set = new Table({
    chars: PLAIN,
    style: { "head": [], "border": [], "padding-left": 0, "padding-right": 0 },
    colAligns: columns.map((column) => column.align ?? "left"),
    head: columns.map((column) => heading(column.title)),
  });
  for (const row of rows) set.push([...row]);
  return set.toString().split("\n").map((line) => line.trimEnd()).join("\n");
}
