/** Draws who owns what. Part of the page. */
import { hierarchy, treemap, treemapSquarify } from "d3-hierarchy";
import type { Drawing } from "../drawing.ts";
import { nodeBytes } from "./panel.ts";
import { canvasOf, fillOf, inksOf, type TreeBox, type View } from "./state.ts";
import { humanBytes, isLight, shorten } from "./text.ts";

/** Fits a canvas to its width and clears it. @param height in CSS pixels */
export function preparePen(view: View, canvas: HTMLCanvasElement, height: number): { readonly pen: CanvasRenderingContext2D; readonly width: number } {
  const ratio = view.page.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const [pixelsWide, pixelsHigh] = [Math.round(width * ratio), Math.round(height * ratio)];
  // Setting the size clears the canvas and is slow: only when it changed.
  if (canvas.width !== pixelsWide || canvas.height !== pixelsHigh) {
    canvas.width = pixelsWide;
    canvas.height = pixelsHigh;
    canvas.style["height"] = `${height}px`;
  }
  const pen = canvas.getContext("2d")!;
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
export function boxText(pen: CanvasRenderingContext2D, text: string, box: { readonly x: number; readonly y: number; readonly width: number; readonly height: number }, colour: string): boolean {
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
export function boxTextWhole(pen: CanvasRenderingContext2D, texts: readonly string[], box: { readonly x: number; readonly y: number; readonly width: number; readonly height: number }, colour: string): string {
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
export function hatch(pen: CanvasRenderingContext2D, box: { readonly x: number; readonly y: number; readonly width: number; readonly height: number }, colour: string, step: number): void {
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


/** Draws the treemap below the last node of `view.treePath` and remembers where everything is. */
export function drawTree(view: View): void {
  const height = 380;
  const { pen, width } = preparePen(view, canvasOf(view.page, "tree"), height);
  const boxes: TreeBox[] = [];
  const node = view.treePath.at(-1)!;
  if (node[6].length > 0) layChildren(node, view.treePath, { x: 0, y: 0, width, height }, boxes);
  view.treeBoxes = boxes;
  for (const box of boxes) drawBox(view, pen, box);
  const hovered = boxes.find((box) => box.node === view.treeHovered);
  if (hovered !== undefined) {
    pen.lineWidth = 2;
    pen.strokeStyle = inksOf(view).accent;
    pen.strokeRect(hovered.x + 1, hovered.y + 1, Math.max(1, hovered.width - 2), Math.max(1, hovered.height - 2));
    pen.lineWidth = 1;
  }
}

function layChildren(
  node: Drawing["tree"], path: readonly Drawing["tree"][], box: { readonly x: number; readonly y: number; readonly width: number; readonly height: number }, boxes: TreeBox[],
): void {
  const children = node[6];
  const places = squarify(children.map(nodeBytes), box);
  children.forEach((child, index) => {
    const [x, y, width, height] = [places[4 * index]!, places[4 * index + 1]!, places[4 * index + 2]!, places[4 * index + 3]!];
    if (width * height < 0.5) return;
    const childPath = [...path, child];
    boxes.push({ x, y, width, height, node: child, path: childPath });
    if (child[6].length === 0) return;
    const header = width > 46 && height > 38 ? 19 : 0;
    const pad = width > 14 && height > 14 ? 2 : 0;
    layChildren(child, childPath, { x: x + pad, y: y + header + (header === 0 ? pad : 0), width: width - 2 * pad, height: height - header - (header === 0 ? 2 : 1) * pad }, boxes);
  });
}

function drawBox(view: View, pen: CanvasRenderingContext2D, box: TreeBox): void {
  const { node } = box;
  const name = view.data.strings[node[0]] ?? "";
  const inset = { x: box.x + 0.5, y: box.y + 0.5, width: Math.max(0.5, box.width - 1), height: Math.max(0.5, box.height - 1) };
  if (node[2] === null) {
    const inks = inksOf(view);
    pen.fillStyle = box.path.length % 2 === 0 ? inks.rule : inks.paper;
    pen.fillRect(inset.x, inset.y, inset.width, inset.height);
    if (box.width <= 46 || box.height <= 38) return;
    pen.font = labelFont(11.5, false);
    const header = { ...inset, height: 19 };
    if (boxTextWhole(pen, [`${name}  ${humanBytes(nodeBytes(node))}`], header, inks.ink) === "") boxText(pen, name, header, inks.ink);
    return;
  }
  const fill = fillOf(view, node[3]);
  pen.fillStyle = fill;
  pen.fillRect(inset.x, inset.y, inset.width, inset.height);
  if (node[2] === "aliases" && inset.width > 4) hatch(pen, inset, isDarkInk(fill) ? "#00000038" : "#ffffff3d", 7);
  if (node[2] === "rest" && inset.width > 4) {
    pen.fillStyle = isDarkInk(fill) ? "#ffffff66" : "#00000055";
    pen.fillRect(inset.x, inset.y, inset.width, inset.height);
  }
  if (inset.width < 24 || inset.height <= 16) return;
  pen.font = labelFont(11, false);
  const ink = node[2] === "rest" ? (isDarkInk(fill) ? "#101214" : "#ffffff") : inkOn(fill);
  const written = boxText(pen, name, { ...inset, height: Math.min(inset.height, 20) }, ink);
  if (written && inset.height > 34) boxTextWhole(pen, [humanBytes(node[1])], { ...inset, y: inset.y + 15, height: 18 }, ink);
}

/** Whether black is the ink for a fill. */
function isDarkInk(fill: string): boolean {
  return inkOn(fill) === "#101214";
}

/** The innermost rectangle of the treemap under a point, or null. */
export function treeBoxAt(view: View, x: number, y: number): TreeBox | null {
  let found: TreeBox | null = null;
  for (const box of view.treeBoxes) {
    if (x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + box.height && (found === null || box.path.length >= found.path.length)) found = box;
  }
  return found;
}

/**
 * Lays out a treemap by the squarified method: rectangles of the areas asked for, near to squares.
 *
 * @param sizes non-negative, in any order
 * @returns x, y, width and height of each, one after the other, in the order given
 */
export function squarify(sizes: readonly number[], box: { readonly x: number; readonly y: number; readonly width: number; readonly height: number }): readonly number[] {
  const result: number[] = Array.from({ length: 4 * sizes.length }, () => 0);
  if (box.width <= 0 || box.height <= 0 || !sizes.some((size) => size > 0)) return result;
  interface Part {
    readonly index: number;
    readonly size: number;
    readonly parts?: readonly Part[];
  }
  const parts = sizes.map((size, index): Part => ({ index, size })).filter(({ size }) => size > 0);
  const root = hierarchy<Part>({ index: -1, size: 0, parts }, (part) => part.parts).sum(({ size }) => size).sort((a, b) => (b.value ?? 0) - (a.value ?? 0) || a.data.index - b.data.index);
  const placed = treemap<Part>().tile(treemapSquarify.ratio(1)).size([box.width, box.height])(root);
  for (const { data, x0, y0, x1, y1 } of placed.children ?? []) result.splice(4 * data.index, 4, box.x + x0, box.y + y0, x1 - x0, y1 - y0);
  return result;
}
