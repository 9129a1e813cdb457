/** Pens, labels and hatching. Part of the page. */
import type { PageElement, PageFunction, Pen } from "./dom.ts";
import type { View } from "./state.ts";
import { isLight, shorten } from "./text.ts";

/** Fits a canvas to its width and clears it. @param height in CSS pixels */
export function preparePen(view: View, canvas: PageElement, height: number): { readonly pen: Pen; readonly width: number } {
  const ratio = view.page.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const [pixelsWide, pixelsHigh] = [Math.round(width * ratio), Math.round(height * ratio)];
  // Setting the size clears the canvas and is slow: only when it changed.
  if (canvas.width !== pixelsWide || canvas.height !== pixelsHigh) {
    canvas.width = pixelsWide;
    canvas.height = pixelsHigh;
    canvas.style["height"] = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.textBaseline = "middle";
  pen.textAlign = "left";
  pen.lineWidth = 1;
  return { pen, width };
}

/** Font of labels. */
export function labelFont(size: number, mono: boolean): string {
  return mono ? `${size}px ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, monospace` : `500 ${size}px ui-sans-serif, system-ui, "Segoe UI", Inter, sans-serif`;
}

/** Text in a box, shortened to fit; nothing where nothing fits. Returns whether anything was written. */
export function boxText(pen: Pen, text: string, box: { readonly x: number; readonly y: number; readonly width: number; readonly height: number }, colour: string): boolean {
  const room = box.width - 8;
  if (room < 14 || box.height < 9) return false;
  let shown = text;
  if (pen.measureText(shown).width > room) {
    shown = shorten(text, Math.floor((room * text.length) / pen.measureText(text).width) + 1);
    while (shown.length > 3 && pen.measureText(shown).width > room) shown = shorten(text, shown.length - 1);
    if (shown.length <= 3) return false;
  }
  pen.fillStyle = colour;
  pen.fillText(shown, box.x + 4, box.y + box.height / 2 + 0.5);
  return true;
}

/** The first of several texts that fits a box whole; nothing where none does. Returns what was written. */
export function boxTextWhole(pen: Pen, texts: readonly string[], box: { readonly x: number; readonly y: number; readonly width: number; readonly height: number }, colour: string): string {
  const fitting = box.height < 9 ? undefined : texts.find((text) => pen.measureText(text).width <= box.width - 6);
  if (fitting === undefined) return "";
  pen.fillStyle = colour;
  pen.fillText(fitting, box.x + 4, box.y + box.height / 2 + 0.5);
  return fitting;
}

/** Black or white, whichever reads better on a fill. */
export function inkOn(fill: string): string {
  return isLight(fill) ? "#101214" : "#ffffff";
}

/** Diagonal lines over a box. @param step distance between lines in pixels */
export function hatch(pen: Pen, box: { readonly x: number; readonly y: number; readonly width: number; readonly height: number }, colour: string, step: number): void {
  pen.save();
  pen.beginPath();
  pen.rect(box.x, box.y, box.width, box.height);
  pen.clip();
  pen.strokeStyle = colour;
  pen.beginPath();
  const first = Math.floor((box.x - box.height) / step) * step;
  for (let x = first; x < box.x + box.width; x += step) {
    pen.moveTo(x, box.y + box.height);
    pen.lineTo(x + box.height, box.y);
  }
  pen.stroke();
  pen.restore();
}

/** The functions of this file, for the page. */
export const penFunctions: readonly PageFunction[] = [preparePen, labelFont, boxText, boxTextWhole, inkOn, hatch];
