import type { FitHbm } from "../fit/fit_trial.ts";
import { allowsUnicode, type BarOptions, drawBars } from "../map/bars.ts";
import { drawFitBars } from "./text/bars_fit.ts";
import type { MemoryPicture } from "../map/model.ts";
import type { Terminal } from "./terminal.ts";

/** A picture's bars as this terminal can show them. */
export function barsText(terminal: Terminal, picture: MemoryPicture): string {
  return drawBars(picture, barOptions(terminal));
}

/** The bars of a prediction as this terminal can show them. */
export function fitBarsText(terminal: Terminal, hbms: readonly FitHbm[]): string {
  return drawFitBars(hbms, barOptions(terminal));
}

function barOptions(terminal: Terminal): BarOptions {
  return { columns: terminal.columns, unicode: allowsUnicode(process.env), colour: terminal.bold("x") !== "x", onlyUsed: true };
}
