import { textWidth } from "./text_width.ts";

/** How one column is set. */
export interface Column {
  /** The heading. */
  readonly title: string;
  /** Numbers go right. */
  readonly align?: "left" | "right";
}

const BETWEEN = "  ";

/**
 * Sets rows under headings, without rules, columns two spaces apart. A cell may
 * have several lines.
 *
 * @param heading turns a heading into what is printed, for example bold
 */
export function table(columns: readonly Column[], rows: readonly (readonly string[])[], heading: (text: string) => string = (text) => text): string {
  const all = [columns.map(({ title }) => heading(title)), ...rows].map((row) => columns.map((_, index) => (row[index] ?? "").split("\n")));
  const widths = columns.map((_, index) => {
    let widest = 0;
    for (const row of all) for (const line of row[index]!) widest = Math.max(widest, textWidth(line));
    return widest;
  });
  return all.flatMap((row) => {
    const height = Math.max(1, ...row.map((cell) => cell.length));
    return Array.from({ length: height }, (_, line) =>
      columns.map(({ align }, index) => padded(row[index]![line] ?? "", widths[index]!, align === "right")).join(BETWEEN).trimEnd());
  }).join("\n");
}

function padded(text: string, width: number, right: boolean): string {
  const space = " ".repeat(width - textWidth(text));
  return right ? space + text : text + space;
}
