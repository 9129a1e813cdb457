/** The picture as one HTML file. */
import { createHash } from "node:crypto";
import { toDrawing } from "./drawing.ts";
import type { MemoryPicture } from "./model.ts";
import { pageScript } from "./script.ts";
import { elsewhere, escapeHtml, figures, hbmList, kindsTable, legend, notesList, ownersTable } from "./sections.ts";
import { pageStyle } from "./style.ts";

/**
 * A picture as one HTML file that needs nothing else: no network, no other file.
 *
 * Names in the data are not trusted: they go in as text or as JSON without `<`,
 * and the page's content policy allows exactly its own script and style.
 */
export function pictureHtml(picture: MemoryPicture): string {
  const script = pageScript();
  const style = pageStyle();
  const policy = `default-src 'none'; script-src '${hashOf(script)}'; style-src '${hashOf(style)}'; base-uri 'none'; form-action 'none'`;
  const title = escapeHtml(picture.title);
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="neuron-dmem">
<title>${title}</title>
<style>${style}</style>
<header><div><h1>${title}</h1><p class="source">${escapeHtml(picture.source)}</p></div>${FIND}</header>
${figures(picture)}
${notesList(picture)}
<section aria-labelledby="h-hbms"><div class="bar"><h2 id="h-hbms">Memories<small>true proportion; choose one to look into it</small></h2></div>${legend(picture)}${hbmList(picture)}</section>
${MAP}
<section class="two"><div><div class="bar"><h2 id="h-tree">Who holds it<small>area is bytes; every byte once</small></h2><div class="crumbs" id="crumbs"></div></div>
<canvas id="tree" data-bytes="${picture.totals.usedBytes}" tabindex="0" role="img" aria-label="Bytes in use by owner, usage and variable; the same numbers are in the tables"></canvas></div>
<div>${ownersTable(picture)}<br>${kindsTable(picture)}</div></section>
${timeline(picture)}
${elsewhere(picture)}
<footer>Bytes of device memory as the driver books them, in pages of 4096; 1 KiB = 1024 bytes. What is in use includes the driver's carve-outs, the timeline and its peak do not.</footer>
<div id="tip" role="tooltip" hidden></div>
<p class="unseen" id="said" role="status" aria-live="polite"></p>
<script type="application/json" id="data">${safeJson(toDrawing(picture))}</script>
<script>${script}</script>
</html>
`;
}

/** JSON that can stand in a script element whatever texts it holds. */
export function safeJson(value: unknown): string {
  return JSON.stringify(value).replace(/</g, "\\u003c").replace(/>/g, "\\u003e").replace(/\u2028/g, "\\u2028").replace(/\u2029/g, "\\u2029");
}

function hashOf(text: string): string {
  return `sha256-${createHash("sha256").update(text, "utf8").digest("base64")}`;
}

function timeline(picture: MemoryPicture): string {
  const { peak } = picture.totals;
  if (peak === null) return "";
  const host = picture.events.filter((event) => event.hbm === null).length;
  const about = `${picture.events.length} allocations and frees${host > 0 ? `, ${host} of them of host memory` : ""}`;
  return `<section aria-labelledby="h-time"><div class="bar"><h2 id="h-time">Over time<small>${about}</small></h2></div>` +
    `<canvas id="time" data-peak-bytes="${peak.bytes}" data-peak-event="${peak.sequence}" data-events="${picture.events.length}" tabindex="0" role="img" ` +
    `aria-label="Bytes in use after each event; peak ${peak.bytes} bytes at event ${peak.sequence}. Left and right arrows go through the events."></canvas></section>`;
}

const FIND = `<div class="find" role="search"><input id="search" type="search" placeholder="Find name, usage, model or 0x…" aria-label="Find" aria-controls="results" autocomplete="off" spellcheck="false"><span id="found" role="status"></span><ul id="results" role="listbox" aria-label="Found" hidden></ul></div>`;

const KEYS = [
  ["← →", "along"], ["↑ ↓", "into and out of variables"], ["Enter", "zoom to it"], ["+ −", "zoom"], ["⇧ ← →", "move"], ["0", "all"], ["S", "scale"],
  ["/", "find"], ["N", "next found"], ["Esc", "let go"],
].map(([key, what]) => `<span><kbd>${key}</kbd> ${what}</span>`).join(" ");

const MAP = `<section aria-labelledby="h-map"><div class="bar"><h2 id="h-map">Address map<small id="which"></small></h2><div class="tools">
<span class="join"><button id="fitted" type="button" aria-pressed="true" title="Widths by the square root of sizes, free gaps folded">Fitted</button><button id="true" type="button" aria-pressed="false" title="Widths in proportion to sizes">True scale</button></span>
<button id="wider" type="button" aria-label="Zoom out">−</button><button id="closer" type="button" aria-label="Zoom in">+</button><button id="whole" type="button">All</button></div></div>
<canvas id="overview" aria-hidden="true"></canvas>
<canvas id="map" tabindex="0" role="application" aria-roledescription="address map" aria-label="Address map: pools, allocations, and below them their variables; variables that share memory are in separate rows"></canvas>
<div id="selection" data-selected=""></div><p class="keys">${KEYS}</p></section>`;
