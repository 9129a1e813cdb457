/**
 * The part of a browser that the page uses, as types. The repository is compiled
 * without the browser's types, so that no other file can use them by mistake.
 */

/** A rectangle on the screen, in CSS pixels. */
export interface Box {
  /** Left edge. */
  readonly left: number;
  /** Upper edge. */
  readonly top: number;
  /** Width. */
  readonly width: number;
  /** Height. */
  readonly height: number;
}

/** What the page reads of mouse, wheel and keyboard events. */
export interface PageEvent {
  readonly key: string;
  readonly target: PageElement | null;
  readonly clientX: number;
  readonly clientY: number;
  readonly deltaX: number;
  readonly deltaY: number;
  readonly buttons: number;
  readonly detail: number;
  readonly pointerId: number;
  readonly shiftKey: boolean;
  readonly ctrlKey: boolean;
  readonly metaKey: boolean;
  readonly altKey: boolean;
  preventDefault(): void;
}

/** What the page does with an element. */
export interface PageElement {
  id: string;
  className: string;
  textContent: string | null;
  value: string;
  hidden: boolean;
  width: number;
  height: number;
  readonly clientWidth: number;
  readonly tagName: string;
  readonly dataset: Record<string, string | undefined>;
  readonly style: Record<string, string>;
  append(...nodes: (PageElement | string)[]): void;
  replaceChildren(...nodes: PageElement[]): void;
  closest(selector: string): PageElement | null;
  querySelectorAll(selector: string): Iterable<PageElement>;
  addEventListener(type: string, listener: (event: PageEvent) => void, options?: { readonly passive: boolean }): void;
  getBoundingClientRect(): Box;
  getContext(kind: "2d"): Pen;
  setAttribute(name: string, value: string): void;
  setPointerCapture(pointer: number): void;
  scrollIntoView(options: { readonly block: string }): void;
  focus(): void;
  blur(): void;
}

/** What the page does with a canvas. */
export interface Pen {
  fillStyle: string | object;
  strokeStyle: string | object;
  lineWidth: number;
  globalAlpha: number;
  font: string;
  textAlign: string;
  textBaseline: string;
  setTransform(a: number, b: number, c: number, d: number, e: number, f: number): void;
  clearRect(x: number, y: number, width: number, height: number): void;
  fillRect(x: number, y: number, width: number, height: number): void;
  strokeRect(x: number, y: number, width: number, height: number): void;
  fillText(text: string, x: number, y: number): void;
  measureText(text: string): { readonly width: number };
  beginPath(): void;
  moveTo(x: number, y: number): void;
  lineTo(x: number, y: number): void;
  arc(x: number, y: number, radius: number, from: number, to: number): void;
  closePath(): void;
  fill(): void;
  stroke(): void;
  save(): void;
  restore(): void;
  rect(x: number, y: number, width: number, height: number): void;
  clip(): void;
  setLineDash(lengths: readonly number[]): void;
}

/** What the page does with its window. */
export interface Page {
  readonly document: {
    readonly documentElement: PageElement;
    getElementById(id: string): PageElement | null;
    createElement(name: string): PageElement;
    addEventListener(type: string, listener: (event: PageEvent) => void): void;
  };
  readonly performance: { now(): number };
  readonly devicePixelRatio: number;
  readonly innerWidth: number;
  readonly innerHeight: number;
  addEventListener(type: string, listener: (event: PageEvent) => void): void;
  requestAnimationFrame(action: () => void): void;
  matchMedia(query: string): { readonly matches: boolean; addEventListener(type: string, listener: () => void): void };
  /** For scripts that drive the page. */
  memoryMap?: unknown;
}

/** A function that is written into the page; it may use its parameters, the browser, and other such functions. */
export type PageFunction = (...args: never[]) => unknown;
