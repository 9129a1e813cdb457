import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import fc from "fast-check";
import { buildPicture } from "../../lib/map/build.ts";
import { type Drawing, toDrawing } from "../../lib/map/drawing.ts";
import { pictureHtml } from "../../lib/map/html.ts";
import type { PictureInput } from "../../lib/map/model.ts";
import { manyVariables, pictureInputs } from "./pictures.ts";

const HOSTILE = [
  `</script><img src=x onerror="document.title='owned'">`, `<!--<script>`, `"><svg onload=alert(1)>`, `'; alert(1); //`, "\u2028\u2029", `&lt;b&gt;`, `]]>`, "\0",
];

function hostileInput(text: string): PictureInput {
  return {
    title: text, source: text, devices: [{ index: 0, name: text, hbms: [{ index: 0, base: 0, size: 2 ** 30, cores: [0] }], host: [{ owner: text, usage: text, bytes: 5 }] }],
    allocations: [{ device: 0, start: 2 ** 24, size: 4096, usage: text, model: text, core: 0, hint: text }],
    variables: [
      { name: text, device: 0, start: 2 ** 24, size: 10, type: text, usage: text, model: text, subgraph: text }, { name: text, device: 0, start: null, size: 1, model: text },
    ],
    events: [{ sequence: 0, time: null, action: "alloc", bytes: 4096, device: 0, hbm: 0, usage: text, category: "runtime", owner: text, usedAfter: null }],
    notes: [text],
  };
}

/** The elements of a page, as a tokenizer that knows scripts and styles sees them. */
function tagsOf(html: string): readonly string[] {
  const tags: string[] = [];
  for (let at = 0; at < html.length;) {
    const found = /<(\/?[a-z!][a-z0-9-]*)((?:[^>"']|"[^"]*"|'[^']*')*)>/i.exec(html.slice(at));
    if (found === null) break;
    at += found.index + found[0].length;
    const name = found[1]!.toLowerCase();
    tags.push(name + found[2]!);
    if (name === "script" || name === "style") at = html.indexOf(`</${name}`, at);
  }
  return tags;
}

test("names cannot break out of the page: markup is the same whatever the texts are", () => {
  const shape = (html: string) => tagsOf(html).map((tag) => tag.replace(/content="[^"]*"|data-owner="[^"]*"/g, ""));
  const harmless = shape(pictureHtml(buildPicture(hostileInput("harmless"))));
  assert.ok(harmless.length > 100);
  for (const text of HOSTILE) assert.deepEqual(shape(pictureHtml(buildPicture(hostileInput(text)))), harmless, JSON.stringify(text));
});

test("hostile names are in the data as they are", () => {
  for (const text of HOSTILE) {
    const html = pictureHtml(buildPicture(hostileInput(text)));
    const json = /<script type="application\/json" id="data">(.*?)<\/script>/s.exec(html)![1]!;
    assert.ok(!/[<>\u2028\u2029]/.test(json));
    assert.ok((JSON.parse(json) as Drawing).strings.includes(text));
  }
});

test("the page's policy allows exactly its own script and style, and no network", () => {
  const html = pictureHtml(buildPicture(manyVariables(10)));
  const policy = /Content-Security-Policy" content="([^"]+)"/.exec(html)![1]!;
  const hashOf = (text: string) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
  assert.equal(policy, [
    "default-src 'none'", `script-src ${hashOf(/<script>(.*?)<\/script>/s.exec(html)![1]!)}`, `style-src ${hashOf(/<style>(.*?)<\/style>/s.exec(html)![1]!)}`,
    "base-uri 'none'", "form-action 'none'",
  ].join("; "));
  assert.ok(!/\b(src|href|url\()\s*=?/i.test(html.replace(/<script.*?<\/script>/gs, "").replace(/(default|script|style)-src/g, "")), "nothing is loaded");
  assert.ok(!/\sstyle="|\son[a-z]+="/.test(html.replace(/<script.*?<\/script>/gs, "")), "no inline styles or handlers");
});

test("without data the page is under 500 KB, by far", (context) => {
  const html = pictureHtml(buildPicture({ title: "", source: "", devices: [], allocations: [] }));
  assert.ok(html.length < 100_000, `${html.length}`);
  context.diagnostic(`# the page without data: ${html.length} bytes`);
});

test("every total in the markup is the picture's, to the byte", () => {
  fc.assert(fc.property(pictureInputs, (input) => {
    const picture = buildPicture(input);
    const html = pictureHtml(picture);
    const total = (name: string) => Number(new RegExp(`data-total="${name}" data-bytes="(\\d+)"`).exec(html)?.[1]);
    assert.deepEqual([total("used"), total("free"), total("gap"), total("size")], [picture.totals.usedBytes, picture.totals.freeBytes, picture.totals.largestGapBytes, picture.totals.sizeBytes]);
    const rows = [...html.matchAll(/data-device="(\d+)" data-hbm="(\d+)" data-used="(\d+)" data-free="(\d+)" data-size="(\d+)"/g)].map((match) => match.slice(1).map(Number));
    assert.deepEqual(rows, picture.totals.hbms.map((sums) => [sums.device, sums.hbm, sums.usedBytes, sums.freeBytes, sums.sizeBytes]));
    const categories = [...html.matchAll(/data-category="(\w+)" data-bytes="(\d+)"/g)].map((match) => [match[1], Number(match[2])]);
    assert.deepEqual(Object.fromEntries(categories), picture.totals.byCategory);
  }), { numRuns: 20 });
});

test("the drawing holds every region and variable and the same sums", () => {
  fc.assert(fc.property(pictureInputs, (input) => {
    const picture = buildPicture(input);
    const drawing = toDrawing(picture);
    const used = drawing.hbms.flatMap((hbm) => hbm.regions).reduce((sum, row) => sum + (row[0] === "gap" ? 0 : row[2]), 0);
    const leaves = (node: Drawing["tree"]): number => node[6].reduce((sum, child) => sum + leaves(child), node[1]);
    assert.deepEqual([used, leaves(drawing.tree)], [picture.totals.usedBytes, picture.totals.usedBytes]);
    assert.equal(drawing.hbms.reduce((sum, hbm) => sum + hbm.variables.length, 0) + picture.unplaced.length, input.variables!.length);
    for (const hbm of drawing.hbms) for (const row of hbm.regions) assert.equal(hbm.variables.slice(row[14], row[14] + row[15]).length, row[15]);
  }), { numRuns: 30 });
});
