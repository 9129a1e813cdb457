/** The script of the page. */
import { treemapFunctions } from "./treemap.ts";
import { actionsFunctions } from "./page/actions.ts";
import { describeFunctions } from "./page/describe.ts";
import { drawMapFunctions } from "./page/draw_map.ts";
import { drawTimeFunctions } from "./page/draw_time.ts";
import { drawTreeFunctions } from "./page/draw_tree.ts";
import { mapLayoutFunctions } from "./page/map_layout.ts";
import { panelFunctions } from "./page/panel.ts";
import { penFunctions } from "./page/pen.ts";
import { scaleFunctions } from "./page/scale.ts";
import { searchFunctions } from "./page/search.ts";
import { startFunctions } from "./page/start.ts";
import { stateFunctions } from "./page/state.ts";
import { textFunctions } from "./page/text.ts";
import { wireFunctions } from "./page/wire.ts";

const ALL = [
  ...actionsFunctions,
  ...describeFunctions,
  ...drawMapFunctions,
  ...drawTimeFunctions,
  ...drawTreeFunctions,
  ...mapLayoutFunctions,
  ...panelFunctions,
  ...penFunctions,
  ...scaleFunctions,
  ...searchFunctions,
  ...startFunctions,
  ...stateFunctions,
  ...textFunctions,
  ...wireFunctions,
  ...treemapFunctions,
];

/**
 * The page's script as text: the functions of `view/`, as this runtime has them
 * without their types, and the call that starts the page. They are ordinary typed
 * functions, tested as such; the page gets their source.
 */
export function pageScript(): string {
  return `"use strict";(()=>{\n${ALL.map(String).join("\n")}\nstart(window);\n})();`;
}

/** Names of the functions in the script. */
export const scriptNames: readonly string[] = ALL.map(({ name }) => name);
