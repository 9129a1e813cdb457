/** The program of the page: `scripts/build_page.ts` makes one script of it. */
import { start } from "./start.ts";

start(window);
