/** One frame of the live view as text. Pure. */
import { humanSize } from "../../text/size.ts";
import type { TopRow, TopSample, TopView } from "../../host/top.ts";
import { topRows } from "../../host/top.ts";

/** The terminal a frame is for. */
export interface ScreenSize {
  /** Columns, at least 40 are used. */
  readonly columns: number;
  /** Lines, or infinity for all rows. */
  readonly rows: number;
  /** Whether emphasis and colour may be used. */
  readonly colour: boolean;
  /** Block characters or ASCII only. */
  readonly unicode: boolean;
}

/** What the frame shows besides the rows. */
export interface ScreenState extends TopView {
  /** First row shown. */
  readonly scroll?: number | undefined;
  /** Seconds between samples, or null for a single one. */
  readonly interval?: number | null | undefined;
  /** Text being typed as a filter, or null. */
  readonly typing?: string | null | undefined;
  /** Whether sampling stands still. */
  readonly paused?: boolean | undefined;
}

/** The lines of a frame, none wider than the screen and no more than it has; and how many rows there are. */
export function topFrame(sample: TopSample, before: TopSample | null, state: ScreenState, size: ScreenSize): { readonly lines: readonly string[]; readonly rowCount: number } {
  const columns = Math.max(40, size.columns);
  const rows = topRows(sample, before, state);
  const head = headLines(sample, state, columns, size);
  const foot = size.rows === Infinity ? [] : [footLine(state, columns, size)];
  const room = Math.max(1, size.rows - head.length - foot.length);
  const first = Math.max(0, Math.min(state.scroll ?? 0, rows.length - room));
  const shown = room === Infinity ? rows : rows.slice(first, first + room);
  const body = shown.map((row) => rowLine(row, columns, size));
  if (rows.length === 0) body.push(cut(printable(state.filter ? `nothing matches "${state.filter}"` : sample.memory.problems[0] ?? "no devices"), columns));
  return { lines: [...head, ...body, ...foot].slice(0, size.rows), rowCount: rows.length };
}

const NUMBERS = [
  { title: "in use", width: 10 }, { title: "peak", width: 10 }, { title: "per second", width: 12 }, { title: "host", width: 10 }, { title: "share", width: 8 },
] as const;
const NUMBERS_WIDTH = NUMBERS.reduce((sum, { width }) => sum + width, 0);

/** Columns for the label, the bar, and the numbers that fit. */
function layout(columns: number): { readonly label: number; readonly numbers: number; readonly bar: number } {
  let numbers = NUMBERS.length;
  let used = NUMBERS_WIDTH;
  while (numbers > 1 && columns - used < 24) used -= NUMBERS[--numbers]!.width;
  const rest = columns - used;
  const label = Math.min(rest, Math.max(24, Math.floor(rest * 0.6)));
  const bar = rest - label - 2;
  return { label, numbers, bar: bar < 6 ? 0 : Math.min(bar, 40) };
}

function headLines(sample: TopSample, state: ScreenState, columns: number, size: ScreenSize): string[] {
  const { memory } = sample;
  const parts = [
    `driver ${printable(memory.driverVersion ?? "not found")}`, `${memory.devices.length} ${memory.devices.length === 1 ? "device" : "devices"}`,
    ...(memory.missing.length > 0 ? [`missing: ${memory.missing.join(" ")}`] : []),
    `sort ${state.sort ?? "number"}${state.reverse === true ? " reversed" : ""}`, ...(state.filter ? [`filter "${printable(state.filter)}"`] : []),
    ...(memory.problems.length > 0 ? [`${memory.problems.length} unreadable`] : []),
    ...(state.paused === true ? ["PAUSED"] : typeof state.interval === "number" ? [`every ${state.interval} s`] : []),
  ];
  const time = new Date(sample.time * 1000).toISOString().slice(11, 19);
  const { label, numbers } = layout(columns);
  const titles = NUMBERS.slice(0, numbers).map(({ title, width }) => title.padStart(width)).join("");
  return [
    bold(cut(`neuron-dmem top  ${time}  ${parts.join("  ")}`, columns), size),
    inverse(cut(`${"memory".padEnd(label)}${titles}`.padEnd(columns), columns), size),
  ];
}

function footLine(state: ScreenState, columns: number, size: ScreenSize): string {
  if (typeof state.typing === "string") return cut(`filter: ${printable(state.typing)}${size.unicode ? "▏" : "_"}  (Enter keeps it, Esc drops it)`, columns);
  return dim(cut("q quit  s sort  r reverse  / filter  c details  z zeros  +- interval  p pause  arrows scroll", columns), size);
}

function rowLine(row: TopRow, columns: number, size: ScreenSize): string {
  const { label, numbers, bar } = layout(columns);
  const text = cut(`${"  ".repeat(row.depth)}${printable(row.label)}`, label - 1, size.unicode ? "…" : "~").padEnd(label);
  const share = row.usedBytes === null || row.sizeBytes === null ? null : row.usedBytes / row.sizeBytes;
  const values = [bytes(row.usedBytes), bytes(row.peakBytes), rateText(row.rate), bytes(row.hostBytes), share === null ? "" : `${(100 * share).toFixed(1)} %`];
  const cells = values.slice(0, numbers).map((value, index) => value.padStart(NUMBERS[index]!.width));
  const line = `${row.scope === "device" ? bold(text, size) : text}${paintRate(cells, row.rate, size)}`;
  return share === null || bar === 0 ? line : `${line}  ${barText(share, bar, size)}`;
}

function bytes(value: number | null): string {
  return value === null ? "" : humanSize(value);
}

function rateText(rate: number | null): string {
  if (rate === null) return "";
  const rounded = Math.round(rate);
  return rounded === 0 ? "0" : `${rounded > 0 ? "+" : "-"}${humanSize(Math.abs(rounded))}`;
}

function paintRate(cells: readonly string[], rate: number | null, { colour }: ScreenSize): string {
  return cells.map((cell, index) => {
    if (index !== 2 || !colour || rate === null || Math.round(rate) === 0) return cell;
    return `\u001b[${rate > 0 ? 33 : 36}m${cell}\u001b[0m`;
  }).join("");
}

const EIGHTHS = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"] as const;

function barText(share: number, width: number, { unicode, colour }: ScreenSize): string {
  const full = Math.max(0, Math.min(1, share)) * width;
  if (!unicode) {
    const marks = share > 0 ? Math.max(1, Math.round(full)) : 0;
    return `${"#".repeat(marks)}${".".repeat(width - marks)}`;
  }
  const whole = Math.floor(full);
  const eighth = share > 0 && full < 1 / 8 ? "▏" : EIGHTHS[Math.floor((full - whole) * 8)]!;
  const text = `${"█".repeat(whole)}${eighth}`;
  const rest = "·".repeat(Math.max(0, width - whole - eighth.length));
  return colour ? `\u001b[${share > 0.9 ? 31 : 34}m${text}\u001b[0m\u001b[2m${rest}\u001b[0m` : text + rest;
}

/** Text of one column per character: names of processes and filters are not to be trusted. */
function printable(text: string): string {
  return text.replace(/[^\u0020-\u007e\u00a0-\u024f]/gu, "?");
}

function cut(text: string, most: number, mark = ""): string {
  const characters = [...text];
  return characters.length <= most ? text : `${characters.slice(0, Math.max(0, most - mark.length)).join("")}${mark}`;
}

function bold(text: string, { colour }: ScreenSize): string {
  return colour ? `\u001b[1m${text}\u001b[0m` : text;
}

function dim(text: string, { colour }: ScreenSize): string {
  return colour ? `\u001b[2m${text}\u001b[0m` : text;
}

function inverse(text: string, { colour }: ScreenSize): string {
  return colour ? `\u001b[7m${text}\u001b[0m` : text.trimEnd();
}
