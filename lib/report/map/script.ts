/** The script of the page. */
import { treemapFunctions } from "./treemap.ts";
import { actionsFunctions } from "./view/actions.ts";
import { describeFunctions } from "./view/describe.ts";
import { drawMapFunctions } from "./view/draw_map.ts";
import { drawTimeFunctions } from "./view/draw_time.ts";
import { drawTreeFunctions } from "./view/draw_tree.ts";
import { mapLayoutFunctions } from "./view/map_layout.ts";
import { panelFunctions } from "./view/panel.ts";
import { penFunctions } from "./view/pen.ts";
import { scaleFunctions } from "./view/scale.ts";
import { searchFunctions } from "./view/search.ts";
import { startFunctions } from "./view/start.ts";
import { stateFunctions } from "./view/state.ts";
import { textFunctions } from "./view/text.ts";
import { wireFunctions } from "./view/wire.ts";

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
