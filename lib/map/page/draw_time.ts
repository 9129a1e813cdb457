/** Draws use over time. Part of the page. */
import { labelFont, preparePen } from "./draw_tree.ts";
import { canvasOf, fillOf, inksOf, type View } from "./state.ts";
import { humanBytes } from "./text.ts";

/** Height of the curve, and of the whole, in CSS pixels. */
export function timeHeights(): { readonly curve: number; readonly all: number } {
  return { curve: 150, all: 236 };
}

/** Draws bytes in use on all HBMs after each event, the peak, and every event as a bar below: allocations up, frees down. */
export function drawTime(view: View): void {
  const { rows, start, peak } = view.data.time;
  if (rows.length === 0 || peak === null) return;
  const { curve, all } = timeHeights();
  const { pen, width } = preparePen(view, canvasOf(view.page, "time"), all);
  const inks = inksOf(view);
  const top = 26;
  const yOf = (bytes: number): number => top + (curve - top) * (1 - bytes / Math.max(1, peak.bytes));
  const step = width / rows.length;
  pen.beginPath();
  pen.moveTo(0, curve);
  pen.lineTo(0, yOf(start));
  rows.forEach((row, index) => {
    // The level changes at the event, in the middle of its column.
    const x = (index + 0.5) * step;
    pen.lineTo(x, yOf(index === 0 ? start : rows[index - 1]![9]));
    pen.lineTo(x, yOf(row[9]));
  });
  pen.lineTo(width, yOf(rows.at(-1)![9]));
  pen.lineTo(width, curve);
  pen.closePath();
  pen.globalAlpha = 0.16;
  pen.fillStyle = inks.ink;
  pen.fill();
  pen.globalAlpha = 1;
  pen.strokeStyle = inks.ink;
  pen.stroke();
  pen.fillStyle = inks.rule;
  pen.fillRect(0, curve, width, 1);
  drawEvents(view, pen, step, curve, all);
  drawPeak(view, pen, width, step, yOf);
  if (view.timeHovered >= 0) {
    pen.fillStyle = inks.ink;
    pen.globalAlpha = 0.5;
    pen.fillRect(Math.round((view.timeHovered + 0.5) * step), top - 6, 1, all - top);
    pen.globalAlpha = 1;
  }
}

function drawEvents(view: View, pen: CanvasRenderingContext2D, step: number, curve: number, all: number): void {
  const { rows } = view.data.time;
  const middle = (curve + all) / 2 - 4;
  const reach = (all - curve) / 2 - 18;
  const largest = rows.reduce((most, row) => Math.max(most, row[3]), 1);
  const inks = inksOf(view);
  pen.fillStyle = inks.rule;
  pen.fillRect(0, middle, rows.length * step, 1);
  rows.forEach((row, index) => {
    const height = Math.max(2, reach * Math.sqrt(row[3] / largest));
    pen.fillStyle = fillOf(view, row[6]);
    pen.fillRect(index * step, row[2] === "alloc" ? middle - height : middle + 1, Math.max(1, step - (step > 4 ? 1 : 0)), height);
  });
  pen.font = labelFont(11, false);
  pen.fillStyle = inks.muted;
  const [first, last] = [`event ${rows[0]![0]}`, `event ${rows.at(-1)![0]}`];
  pen.fillText(`${first}   ↑ allocated   ↓ freed`, 2, all - 8);
  pen.fillText(last, rows.length * step - pen.measureText(last).width - 2, all - 8);
}

function drawPeak(view: View, pen: CanvasRenderingContext2D, width: number, step: number, yOf: (bytes: number) => number): void {
  const { rows, peak } = view.data.time;
  const inks = inksOf(view);
  const index = rows.findIndex((row) => row[0] === peak!.sequence);
  const x = index < 0 ? 0 : (index + 0.5) * step;
  const y = yOf(peak!.bytes);
  pen.strokeStyle = inks.ink;
  pen.setLineDash([3, 3]);
  pen.beginPath();
  pen.moveTo(0, y);
  pen.lineTo(width, y);
  pen.stroke();
  pen.setLineDash([]);
  pen.beginPath();
  pen.arc(x, y, 4.5, 0, 2 * Math.PI);
  pen.fillStyle = inks.paper;
  pen.fill();
  pen.lineWidth = 2;
  pen.stroke();
  pen.lineWidth = 1;
  pen.font = labelFont(12, false);
  const label = `peak ${humanBytes(peak!.bytes)}${index < 0 ? " before the first event" : ` at event ${peak!.sequence}`}`;
  const labelWidth = pen.measureText(label).width;
  pen.fillStyle = inks.ink;
  pen.fillText(label, Math.max(2, Math.min(width - labelWidth - 4, x - labelWidth / 2)), y - 14);
}

/** The moment under a horizontal place, or −1. */
export function momentAt(view: View, x: number, width: number): number {
  const { rows } = view.data.time;
  const index = Math.floor((x / width) * rows.length);
  return index >= 0 && index < rows.length ? index : -1;
}
