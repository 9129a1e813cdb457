/** What a terminal takes for style, not for text. */
// oxlint-disable-next-line no-control-regex -- such codes begin with one
const STYLE = /\u001b\[[0-9;]*m/g;
/** Text of which every character takes one column. */
const NARROW = /^[\x20-\x7e\u00a0-\u02ff\u2010-\u2027\u2030-\u205e\u2190-\u21ff\u2500-\u259f]*$/;
/** Marks that go on the character before, and format controls. */
const NO_WIDTH = /[\p{Mn}\p{Me}\p{Cf}\p{Cc}]/gu;
/** Characters that take two columns: East Asian wide and full-width forms, and emoji. */
const WIDE = /[\u1100-\u115f\u2329\u232a\u2e80-\u303e\u3041-\u33ff\u3400-\u4dbf\u4e00-\ua4cf\ua960-\ua97c\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff01-\uff60\uffe0-\uffe6\u{16fe0}-\u{1b2fb}\u{1f200}-\u{1f251}\u{20000}-\u{3fffd}]|\p{Emoji_Presentation}/gu;

/** Columns that a text takes on a terminal, without its styles. */
export function textWidth(text: string): number {
  if (NARROW.test(text)) return text.length;
  const plain = text.replace(STYLE, "").replace(NO_WIDTH, "");
  if (NARROW.test(plain)) return plain.length;
  return [...plain].length + (plain.match(WIDE)?.length ?? 0);
}

/** How one column is set. */
export interface Column {
  /** The heading. */
  readonly title: string;
  /** Numbers go right. */
  readonly align?: "left" | "right";
}

const BETWEEN = "  ";

/** How headings are set, and how wide a table may be; an `Emphasis` is one. */
export interface TableStyle {
  /** Turns a heading into what is printed. */
  readonly bold?: ((text: string) => string) | undefined;
  /** Most columns of a line; default no limit. */
  readonly width?: number | undefined;
}

/** How parts of the text are set apart. */
export interface Emphasis {
  bold(text: string): string;
  dim(text: string): string;
  good(text: string): string;
  bad(text: string): string;
  /** Columns that tables may take; default no limit. */
  readonly width?: number | undefined;
}

/** Texts are not cut below this. */
const LEAST_COLUMNS = 12;

/**
 * Sets rows under headings, without rules, columns two spaces apart. A cell may
 * have several lines. Where a table is too wide, its longest texts lose their
 * middle; numbers, and what has a style, never lose anything.
 *
 * @param style how headings are set, or that and the width
 */
export function table(columns: readonly Column[], rows: readonly (readonly string[])[], style: ((text: string) => string) | TableStyle = {}): string {
  const { bold: heading = (text: string) => text, width = Infinity } = typeof style === "function" ? { bold: style } : style;
  const all = [columns.map(({ title }) => heading(title)), ...rows].map((row) => columns.map((_, index) => (row[index] ?? "").split("\n")));
  const widths = columns.map((_, index) => {
    let widest = 0;
    for (const row of all) for (const line of row[index]!) widest = Math.max(widest, textWidth(line));
    return widest;
  });
  if (width !== Infinity) narrow(all, widths, { columns, width });
  return all.flatMap((row) => {
    const height = Math.max(1, ...row.map((cell) => cell.length));
    return Array.from({ length: height }, (_, line) =>
      columns.map(({ align }, index) => padded(row[index]![line] ?? "", widths[index]!, align === "right")).join(BETWEEN).trimEnd());
  }).join("\n");
}

/** Cuts the longest texts until the table is not wider than it may be, or nothing can be cut any more. */
function narrow(all: string[][][], widths: number[], { columns, width }: { readonly columns: readonly Column[]; readonly width: number }): void {
  const total = () => widths.reduce((sum, one) => sum + one, BETWEEN.length * (widths.length - 1));
  const longest = () => widths.reduce((most, one, index) => columns[index]!.align !== "right" && one > LEAST_COLUMNS && one > (widths[most] ?? LEAST_COLUMNS) ? index : most, -1);
  for (let index = longest(); total() > width && index >= 0; index = longest()) widths[index]!--;
  for (const row of all) for (const [index, cell] of row.entries()) row[index] = cell.map((line) => shortened(line, widths[index]!));
}

/** A text without its middle. Styled text stays whole: a code must not be cut. */
function shortened(text: string, width: number): string {
  if (textWidth(text) <= width || text.includes("\u001b")) return text;
  const characters = [...text];
  const [head, tail]: [string[], string[]] = [[], []];
  for (let left = width - 1; characters.length > 0;) {
    const fromHead = head.length <= tail.length;
    const next = fromHead ? characters.shift()! : characters.pop()!;
    left -= textWidth(next);
    if (left < 0) break;
    if (fromHead) head.push(next);
    else tail.unshift(next);
  }
  return `${head.join("")}…${tail.join("")}`;
}

function padded(text: string, width: number, right: boolean): string {
  const space = " ".repeat(Math.max(0, width - textWidth(text)));
  return right ? space + text : text + space;
}
