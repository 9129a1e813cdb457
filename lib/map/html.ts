/** The picture as one HTML file. */
import { PAGE_SCRIPT } from "./page_asset.ts";
import { createHash } from "node:crypto";
import { categories } from "./categories.ts";
import { toDrawing } from "./drawing.ts";
import type { MemoryPicture } from "./model.ts";
import { elsewhere, escapeHtml, figures, hbmList, kindsTable, legend, notesList, ownersTable } from "./sections.ts";

function colours(scheme: "light" | "dark"): string {
  return categories.map((category) => `--${category.key}:${category[scheme]}`).join(";");
}

const LIGHT = `--paper:#fcfcf9;--raised:#ffffff;--ink:#1b1e23;--muted:#5b626c;--rule:#d9dad4;--free:#f1f1ec;--accent:#0b5cad;--focus:#0b5cad;${colours("light")}`;
const DARK = `--paper:#14171b;--raised:#1b1f25;--ink:#e9eaec;--muted:#a3a9b3;--rule:#343a42;--free:#20242a;--accent:#8cc4ff;--focus:#8cc4ff;${colours("dark")}`;

/** The page's style sheet: light, dark and print. */
export function pageStyle(): string {
  return `:root{color-scheme:light dark;${LIGHT};--sans:ui-sans-serif,system-ui,"Segoe UI",Inter,Roboto,sans-serif;--mono:ui-monospace,"SF Mono","Cascadia Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace}
@media (prefers-color-scheme:dark){:root{${DARK}}}
${BASE}${PARTS}
@media print{:root{color-scheme:light;${LIGHT};--paper:#ffffff}${PRINT}}
`;
}

const BASE = `
*{box-sizing:border-box}
html{background:var(--paper);color:var(--ink);font:14px/1.5 var(--sans);-webkit-text-size-adjust:100%}
body{margin:0 auto;max-width:1440px;padding:28px 40px 64px}
h1{font-size:26px;line-height:1.2;letter-spacing:-.02em;font-weight:650;margin:0;overflow-wrap:anywhere}
h2{font-size:15px;font-weight:650;margin:0;letter-spacing:-.005em}
h2 small{font-weight:400;color:var(--muted);font-size:13px;margin-left:10px}
p{margin:0}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th{font-weight:500;color:var(--muted);font-size:12px;text-align:left;padding:0 12px 6px 0;border-bottom:1px solid var(--rule)}
td{padding:5px 12px 5px 0;border-bottom:1px solid var(--rule);vertical-align:baseline;overflow-wrap:anywhere}
th.n,td.n{text-align:right;white-space:nowrap}
th:last-child,td:last-child{padding-right:0}
td small{color:var(--muted);font:11.5px var(--mono);margin-left:8px}
.mono{font-family:var(--mono);font-size:12.5px}
.chip{display:inline-block;width:11px;height:11px;border-radius:2.5px;flex:none;box-shadow:inset 0 0 0 1px color-mix(in srgb,var(--ink) 22%,transparent)}
.unseen{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
canvas{display:block;width:100%;touch-action:pan-y;border-radius:3px}
:focus-visible{outline:2px solid var(--focus);outline-offset:3px;border-radius:3px}
button{font:inherit;color:inherit;background:none;border:0;padding:0;cursor:pointer}
section{margin-top:36px}
.bar{display:flex;align-items:baseline;gap:16px;margin-bottom:12px;flex-wrap:wrap}
.bar>.tools{margin-left:auto;display:flex;gap:6px;align-items:center}
.tools button,.crumbs button{border:1px solid var(--rule);background:var(--raised);border-radius:6px;padding:2px 10px;font-size:12.5px;line-height:20px}
.tools button:hover{border-color:var(--muted)}
.tools button[aria-pressed=true]{background:var(--ink);color:var(--paper);border-color:var(--ink)}
.tools .join{display:flex}
.tools .join button:first-child{border-radius:6px 0 0 6px}
.tools .join button:last-child{border-radius:0 6px 6px 0;margin-left:-1px}
kbd{font:11px var(--mono);border:1px solid var(--rule);border-bottom-width:2px;border-radius:4px;padding:0 4px;color:var(--muted);background:var(--raised)}
.keys{margin-top:10px;color:var(--muted);font-size:12px;line-height:2}
.keys span{margin-right:14px;white-space:nowrap}
`;

const PARTS = `
header{display:grid;grid-template-columns:1fr minmax(240px,340px);gap:4px 32px;align-items:start}
header .source{color:var(--muted);margin-top:4px}
.find{position:relative}
.find input{width:100%;font:inherit;color:inherit;background:var(--raised);border:1px solid var(--rule);border-radius:8px;padding:7px 12px}
.find input::placeholder{color:var(--muted)}
#found{position:absolute;right:12px;top:8px;color:var(--muted);font-size:12.5px;pointer-events:none}
#results{position:absolute;z-index:5;top:40px;right:0;left:-80px;margin:0;padding:4px;list-style:none;background:var(--raised);border:1px solid var(--rule);border-radius:8px;box-shadow:0 12px 32px #0003}
#results li{display:grid;grid-template-columns:11px minmax(0,1fr) auto;gap:9px;align-items:center;padding:4px 8px;border-radius:5px;cursor:pointer}
#results li.current,#results li:hover{background:color-mix(in srgb,var(--accent) 14%,transparent)}
#results .name{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
#results .more{color:var(--muted);font-size:12px;white-space:pre}
.figures{display:flex;flex-wrap:wrap;gap:20px 56px;margin:26px 0 0;padding:0}
.figures div{display:flex;flex-direction:column}
.figures dt{order:-1;color:var(--muted);font-size:12.5px}
.figures dd{margin:0;font-size:27px;line-height:1.25;font-weight:600;letter-spacing:-.02em;font-variant-numeric:tabular-nums}
.figures dd small{display:block;font:400 12px/1.4 var(--mono);color:var(--muted);letter-spacing:0}
.legend{display:flex;flex-wrap:wrap;gap:6px 20px;margin:0 0 12px;padding:0;list-style:none;font-size:12.5px}
.legend li{display:flex;gap:7px;align-items:center}
.legend .free i{background:repeating-linear-gradient(135deg,var(--free) 0 3px,var(--rule) 3px 4px)}
.hbms{list-style:none;margin:0;padding:0}
.hbms button{display:grid;grid-template-columns:190px minmax(120px,1fr) 96px 96px 64px;gap:18px;align-items:center;width:100%;text-align:left;padding:6px 10px;margin:0 -10px;width:calc(100% + 20px);border-radius:7px;font-variant-numeric:tabular-nums}
.hbms button:hover{background:color-mix(in srgb,var(--ink) 5%,transparent)}
.hbms button[aria-pressed=true]{background:color-mix(in srgb,var(--accent) 13%,transparent)}
.hbms b{font-weight:600}
.hbms .cores{color:var(--muted);font-size:12.5px;margin-left:8px}
.hbms svg{display:block;width:100%;height:18px;border-radius:3px;background:var(--free)}
.hbms .n{text-align:right}
.hbms .head{display:grid;grid-template-columns:190px minmax(120px,1fr) 96px 96px 64px;gap:18px;color:var(--muted);font-size:12.5px;padding:10px 0 2px}
${categories.map(({ key }) => `.c-${key}{fill:var(--${key});background:var(--${key})}`).join("")}
#overview{margin-bottom:8px}
#map{cursor:crosshair}
#selection{margin-top:12px;min-height:92px;border-top:1px solid var(--rule);padding-top:12px}
#selection .empty{color:var(--muted)}
.what{display:flex;gap:9px;align-items:center;overflow-wrap:anywhere}
.what strong{font-weight:600}
.what .kind{color:var(--muted);white-space:nowrap}
#selection dt{color:var(--muted);font-size:12px;line-height:21px;float:left;clear:left;width:86px}
#selection dd{margin:0 0 0 86px;overflow-wrap:anywhere}
#selection dl{columns:3 330px;column-gap:28px;margin:8px 0 0}
#selection dd{break-inside:avoid}
#tip{position:fixed;z-index:10;max-width:440px;background:var(--raised);color:var(--ink);border:1px solid var(--rule);border-radius:8px;box-shadow:0 10px 28px #0004;padding:10px 13px;pointer-events:none;font-size:13px;line-height:1.45}
#tip dl{display:grid;grid-template-columns:auto 1fr;gap:1px 12px;margin:6px 0 0}
#tip dt{color:var(--muted);font-size:12px;line-height:19px}
#tip dd{margin:0;overflow-wrap:anywhere}
dd{font-variant-ligatures:no-contextual}
#tip[hidden],#results[hidden]{display:none}
.two{display:grid;grid-template-columns:minmax(0,1fr) 380px;gap:36px;align-items:start}
#tree{cursor:pointer}
.crumbs{display:flex;gap:6px;flex-wrap:wrap;margin-left:auto}
.crumbs button[aria-current]{color:var(--muted)}
.notes{margin:14px 0 0;padding:10px 14px;border-left:3px solid var(--code);background:var(--raised);list-style:none}
details summary{cursor:pointer;font-weight:600}
details table{margin-top:10px}
.none{color:var(--muted)}
footer{margin-top:44px;padding-top:14px;border-top:1px solid var(--rule);color:var(--muted);font-size:12px}
@media (max-width:900px){body{padding:20px 18px 48px}header,.two{grid-template-columns:minmax(0,1fr)}.hbms button,.hbms .head{grid-template-columns:110px minmax(80px,1fr) 84px}.hbms .opt,.hbms .cores{display:none}#results{left:0}}
`;

const PRINT = `
html{font-size:11px}body{padding:0;max-width:none}
.find,.tools,.keys,#tip,#overview,.crumbs,.empty{display:none!important}
section{margin-top:20px;break-inside:avoid}
.two{grid-template-columns:minmax(0,1fr) 260px}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}
@page{size:A4 landscape;margin:12mm}
`;

/**
 * A picture as one HTML file that needs nothing else: no network, no other file.
 *
 * Names in the data are not trusted: they go in as text or as JSON without `<`,
 * and the page's content policy allows exactly its own script and style.
 */
export function pictureHtml(picture: MemoryPicture): string {
  const script = PAGE_SCRIPT;
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
