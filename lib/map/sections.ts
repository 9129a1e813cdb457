/** The parts of the page that are plain markup: they need no script, and carry every total to the byte. */
import { grouped, humanSize } from "../text/size.ts";
import { categories, categoryOf } from "./categories.ts";
import { cellsOf } from "./totals.ts";
import type { HbmSums, MemoryPicture, PictureHbm } from "./model.ts";

/** Text made safe for markup, attributes included. */
export function escapeHtml(text: string): string {
  const names: Readonly<Record<string, string>> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
  return text.replace(/[&<>"']/g, (character) => names[character]!);
}

function bytesCell(bytes: number): string {
  return `<td class="n" data-bytes="${bytes}">${humanSize(bytes)}<small>${grouped(bytes)}</small></td>`;
}

function percent(part: number, whole: number): string {
  return whole === 0 ? "–" : `${((100 * part) / whole).toFixed(part > 0 && part < whole / 10 ? 2 : 1)} %`;
}

/** The large numbers at the top. */
export function figures({ totals }: MemoryPicture): string {
  const figure = (name: string, label: string, bytes: number): string =>
    `<div><dd data-total="${name}" data-bytes="${bytes}">${humanSize(bytes)}<small>${grouped(bytes)} bytes</small></dd><dt>${label}</dt></div>`;
  return `<dl class="figures">${[
    figure("used", "in use", totals.usedBytes),
    figure("free", "free", totals.freeBytes),
    figure("gap", "largest free gap", totals.largestGapBytes),
    figure("size", "capacity", totals.sizeBytes),
    ...(totals.peak === null ? [] : [figure("peak", "peak of allocations", totals.peak.bytes)]),
    ...(totals.hostBytes === 0 ? [] : [figure("host", "host memory", totals.hostBytes)]),
  ].join("")}</dl>`;
}

/** What the colours mean, with the bytes in use of each. */
export function legend({ totals }: MemoryPicture): string {
  const entries = categories.filter(({ key }) => totals.byCategory[key] !== undefined).map(({ key, label }) =>
    `<li data-category="${key}" data-bytes="${totals.byCategory[key]}"><i class="chip c-${key}"></i>${label}<span class="none">${humanSize(totals.byCategory[key]!)}</span></li>`
  );
  return `<ul class="legend" aria-label="Categories">${entries.join("")}<li class="free"><i class="chip"></i>free</li></ul>`;
}

/** One row per HBM, with its bar. */
export function hbmList(picture: MemoryPicture): string {
  let slot = 0;
  const devices = picture.devices.map((device) => {
    const rows = device.hbms.map((hbm) => hbmRow(hbm, picture.totals.hbms.find((sums) => sums.device === device.index && sums.hbm === hbm.index)!, slot++));
    return `<li class="head"><span>device ${device.index}, ${escapeHtml(device.name)}</span><span></span><span class="n">in use</span><span class="n opt">free</span><span class="n opt">share</span></li>${rows.join("")}`;
  });
  return `<ol class="hbms" id="hbms">${devices.join("")}</ol>`;
}

function hbmRow(hbm: PictureHbm, sums: HbmSums, slot: number): string {
  const cores = hbm.cores.length === 0 ? "" : `${hbm.cores.length === 1 ? "core" : "cores"} ${hbm.cores.join(", ")}`;
  return `<li><button type="button" data-slot="${slot}" data-device="${sums.device}" data-hbm="${hbm.index}" data-used="${sums.usedBytes}" data-free="${sums.freeBytes}" data-size="${hbm.size}" aria-pressed="false">` +
    `<span><b>HBM ${hbm.index}</b><span class="cores">${cores}</span></span>${bar(hbm)}` +
    `<span class="n">${humanSize(sums.usedBytes)}</span><span class="n opt">${humanSize(sums.freeBytes)}</span><span class="n opt">${percent(sums.usedBytes, hbm.size)}</span></button></li>`;
}

const BAR_CELLS = 480;

function bar(hbm: PictureHbm): string {
  const cells = cellsOf(hbm, BAR_CELLS);
  let rects = "";
  for (let from = 0; from < cells.length;) {
    const { category } = cells[from]!;
    let to = from;
    while (to < cells.length && cells[to]!.category === category) to++;
    if (category !== null) rects += `<rect class="c-${category}" x="${from}" y="0" width="${to - from}" height="1"/>`;
    from = to;
  }
  return `<svg viewBox="0 0 ${BAR_CELLS} 1" preserveAspectRatio="none" aria-hidden="true">${rects}</svg>`;
}

/** Who holds how much. */
export function ownersTable({ totals }: MemoryPicture): string {
  const rows = totals.byOwner.slice(0, 60).map(({ owner, bytes }) =>
    `<tr data-owner="${escapeHtml(owner)}"><td>${escapeHtml(owner)}</td>${bytesCell(bytes)}<td class="n">${percent(bytes, totals.usedBytes)}</td></tr>`
  );
  const more = totals.byOwner.length > 60 ? `<tr><td colspan="3" class="none">and ${totals.byOwner.length - 60} more</td></tr>` : "";
  return `<table id="owners"><thead><tr><th>owner</th><th class="n">bytes</th><th class="n">share</th></tr></thead><tbody>${rows.join("")}${more}</tbody>` +
    `<tbody><tr><td><b>all in use</b></td>${bytesCell(totals.usedBytes)}<td></td></tr></tbody></table>`;
}

/** What it is for, and what is free. */
export function kindsTable({ totals }: MemoryPicture): string {
  const row = (label: string, bytes: number, chip = ""): string => `<tr><td>${chip}${label}</td>${bytesCell(bytes)}</tr>`;
  const rows = categories.filter(({ key }) => totals.byCategory[key] !== undefined).map(({ key }) =>
    row(categoryOf(key).label, totals.byCategory[key]!, `<i class="chip c-${key}"></i>&ensp;`)
  );
  const extra = [
    ["free", totals.freeBytes], ["of what is in use, page rounding", totals.roundingBytes], ["covered by variables", totals.variableBytes],
    ["of that, by two or more", totals.sharedBytes],
  ] as const;
  return `<table id="kinds"><thead><tr><th>what</th><th class="n">bytes</th></tr></thead><tbody>${rows.join("")}${
    extra.filter(([, bytes]) => bytes > 0).map(([label, bytes]) => row(label, bytes)).join("")
  }</tbody></table>`;
}

/** Pinned host memory and variables that are not in device memory; nothing when there is neither. */
export function elsewhere(picture: MemoryPicture): string {
  const host = picture.devices.flatMap((device) => device.host.map((one) => ({ ...one, device: device.index })));
  const hostTable = host.length === 0 ? "" : `<section><h2>Host memory<small>pinned for the devices, not in HBM</small></h2><br><table id="host"><thead><tr><th>owner</th><th>usage</th><th>device</th><th class="n">bytes</th></tr></thead><tbody>${
    host.map((one) => `<tr><td>${escapeHtml(one.owner)}</td><td>${escapeHtml(one.usage)}</td><td>${one.device}</td>${bytesCell(one.bytes)}</tr>`).join("")
  }</tbody></table></section>`;
  const { unplaced } = picture;
  const shown = unplaced.slice(0, 200);
  const unplacedTable = unplaced.length === 0 ? "" : `<section><details><summary>${unplaced.length} ${unplaced.length === 1 ? "variable is" : "variables are"} not in device memory</summary><table><thead><tr><th>name</th><th>model</th><th>why</th><th class="n">bytes</th></tr></thead><tbody>${
    shown.map((one) => `<tr><td>${escapeHtml(one.name)}</td><td>${escapeHtml(one.model ?? "")}</td><td>${escapeHtml(one.reason)}</td>${one.size === null ? "<td></td>" : bytesCell(one.size)}</tr>`).join("")
  }</tbody></table>${unplaced.length > shown.length ? `<p class="none">and ${unplaced.length - shown.length} more</p>` : ""}</details></section>`;
  return hostTable + unplacedTable;
}

/** Remarks. */
export function notesList({ notes }: MemoryPicture): string {
  return notes.length === 0 ? "" : `<ul class="notes">${notes.map((note) => `<li>${escapeHtml(note)}</li>`).join("")}</ul>`;
}
