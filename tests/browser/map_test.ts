import assert from "node:assert/strict";
import { test } from "node:test";
import type { Page } from "playwright-core";
import { buildPicture } from "../../lib/map/build.ts";
import { pictureHtml } from "../../lib/map/html.ts";
import type { MemoryPicture, PictureVariable } from "../../lib/map/model.ts";
import { regionsOf } from "../../lib/map/totals.ts";
import { corpusPath, skipWithoutCorpus } from "../support/corpus.ts";
import { loadedPicture } from "../map/loaded.ts";
import { manyVariables } from "../map/pictures.ts";
import { skipWithoutBrowser, withPage } from "./page.ts";

interface MemoryMap {
  locate(name: string): { x: number; y: number } | null;
  boxes(): { x: number; y: number; width: number; height: number; name: string; bytes: number; leaf: string | null }[];
  open(name: string): void;
  window(): { from: number; to: number; slot: number; mode: string };
}

const skip = skipWithoutBrowser;
const skipLoaded = skipWithoutBrowser || skipWithoutCorpus;

/** A picture for which every expectation can be written down. */
function small(): MemoryPicture {
  const start = 2 ** 24;
  return buildPicture({
    title: "small", source: "made for a test",
    devices: [
      { index: 0, name: "fake trn1", hbms: [{ index: 0, base: 0, size: 2 ** 34, cores: [0] }, { index: 1, base: 2 ** 36, size: 2 ** 34, cores: [1] }], host: [{ owner: "core 0", usage: "DMA_RING", bytes: 65536 }] },
    ],
    allocations: [
      { device: 0, start, size: 2 ** 20, usage: "SCRATCHPAD", core: 0, hint: "scratchpad" },
      { device: 0, start: start + 2 ** 20, size: 300_000, isRequested: true, usage: "WEIGHT", model: "net", core: 0, hint: "constants" },
      { device: 0, start: 2 ** 36 + 2 ** 24, size: 2 ** 22, usage: "TENSOR", model: null, core: 1, hint: "other hbm" },
    ],
    variables: [
      { name: "alpha", device: 0, start, size: 600_000, type: "virtual", model: "net", subgraph: "sg00" },
      { name: "beta", device: 0, start: start + 300_000, size: 600_000, type: "virtual", model: "net", subgraph: "sg00" },
      { name: "gamma", device: 0, start: start + 2 ** 20, size: 300_000, type: "file", model: "net", subgraph: "sg00" },
    ],
    events: [100, 400, 250].map((usedAfter, sequence) => ({ sequence, time: sequence, action: sequence < 2 ? "alloc" as const : "free" as const, bytes: 150, device: 0, hbm: 0, usage: "TENSOR", category: "tensors" as const, owner: "x", usedAfter })),
  });
}

async function run<T>(page: Page, action: (map: MemoryMap, argument: string) => T, argument = ""): Promise<T> {
  return await page.evaluate(`(${action.toString()})(globalThis.memoryMap, ${JSON.stringify(argument)})`) as T;
}

async function hoverOn(page: Page, name: string): Promise<string> {
  const at = await run(page, (map, wanted) => map.locate(wanted), name);
  assert.ok(at !== null, name);
  const box = await page.locator("#map").boundingBox();
  await page.mouse.move(box!.x + at.x, box!.y + at.y);
  return await page.locator("#tip").innerText();
}

/** All bytes a page shows, by what they are of. */
async function totalsOf(page: Page): Promise<Readonly<Record<string, number>>> {
  const shown: Record<string, number> = {};
  for (const element of await page.locator("[data-total]").all()) shown[(await element.getAttribute("data-total"))!] = Number(await element.getAttribute("data-bytes"));
  return shown;
}

test("the page shows the picture's totals to the byte, in the figures, the rows, the treemap and the peak", { skip }, async () => {
  const picture = small();
  await withPage(pictureHtml(picture), async (page, { errors, requests }) => {
    const { totals } = picture;
    assert.deepEqual(await totalsOf(page), { used: totals.usedBytes, free: totals.freeBytes, gap: totals.largestGapBytes, size: totals.sizeBytes, peak: 400, host: 65536 });
    const rows = await page.locator("#hbms button").evaluateAll((buttons) => buttons.map((button) => Number((button as unknown as { dataset: { used: string } }).dataset.used)));
    assert.deepEqual(rows, totals.hbms.map(({ usedBytes }) => usedBytes));
    const boxes = await run(page, (map) => map.boxes());
    assert.equal(boxes.filter(({ leaf }) => leaf !== null).reduce((sum, { bytes }) => sum + bytes, 0), totals.usedBytes, "every byte in one rectangle of the treemap");
    assert.equal(await page.locator("#time").getAttribute("data-peak-bytes"), "400");
    assert.equal(await page.locator("#time").getAttribute("data-peak-event"), "1");
    assert.deepEqual([errors, requests], [[], []]);
  });
});

test("hovering tells name, type, range, bytes, usage and model", { skip }, async () => {
  await withPage(pictureHtml(small()), async (page, { errors }) => {
    const tip = await hoverOn(page, "gamma");
    for (const part of ["gamma", "file", "WEIGHT", "net", "sg00", "300\u2009000 bytes", "0x0001100000 – 0x00011493df", "HBM 0"]) assert.ok(tip.includes(part), `${part} in ${tip}`);
    const alias = await hoverOn(page, "beta");
    assert.ok(alias.includes("shares with") && alias.includes("1 other variable"), alias);
    const region = await hoverOn(page, "constants");
    assert.ok(region.includes("3.03 KiB of 293 KiB asked for"), region);
    await page.mouse.move(5, 5);
    assert.equal(await page.locator("#tip").isVisible(), false);
    assert.deepEqual(errors, []);
  });
});

test("variables that share memory are in different lanes", { skip }, async () => {
  await withPage(pictureHtml(small()), async (page) => {
    const [alpha, beta, gamma] = [await run(page, (map) => map.locate("alpha")), await run(page, (map) => map.locate("beta")), await run(page, (map) => map.locate("gamma"))];
    assert.notEqual(alpha!.y, beta!.y);
    assert.equal(alpha!.y, gamma!.y);
  });
});

test("search counts, selects and crosses to another HBM; Escape ends it", { skip }, async () => {
  await withPage(pictureHtml(small()), async (page, { errors }) => {
    await page.keyboard.press("/");
    await page.keyboard.type("net");
    assert.equal(await page.locator("#found").getAttribute("data-count"), "5", "three variables and the two regions of their model");
    await page.keyboard.press("Enter");
    assert.equal(await page.locator("#selection").getAttribute("data-selected"), "alpha");
    await page.keyboard.press("Enter");
    assert.equal(await page.locator("#selection").getAttribute("data-selected"), "beta");
    assert.equal(await page.locator("#found").innerText(), "2 of 5");
    await page.locator("#search").fill("other hbm");
    await page.locator("#results li").first().click();
    assert.equal((await run(page, (map) => map.window())).slot, 1);
    assert.equal(await page.locator("#hbms button[aria-pressed=true]").getAttribute("data-hbm"), "1");
    assert.match(await page.locator("#said").innerText(), /^other hbm, allocation, 4\.00 MiB/);
    await page.locator("#search").fill("0x1000010");
    await page.keyboard.press("Enter");
    assert.equal(await page.locator("#selection").getAttribute("data-selected"), "alpha", "found by address");
    await page.keyboard.press("Escape");
    assert.equal(await page.locator("#found").innerText(), "");
    assert.deepEqual(errors, []);
  });
});

test("zoom works by wheel, keys and buttons, and goes back to all", { skip }, async () => {
  await withPage(pictureHtml(small()), async (page, { errors }) => {
    const window = () => run(page, (map) => map.window());
    const span = async () => (await window()).to - (await window()).from;
    const box = (await page.locator("#map").boundingBox())!;
    await page.mouse.move(box.x + box.width / 4, box.y + 60);
    await page.mouse.wheel(0, -300);
    assert.ok(await span() < 0.6);
    const { from, to } = await window();
    assert.ok(from < 0.25 && to > 0.25, "the place under the pointer stays");
    await page.mouse.down();
    await page.mouse.move(box.x + box.width / 4 + 100, box.y + 60, { steps: 4 });
    await page.mouse.up();
    assert.ok((await window()).from < from, "dragging moves the map");
    await page.locator("#whole").click();
    assert.equal(await span(), 1);
    await page.locator("#closer").click();
    const closer = await span();
    assert.ok(closer < 0.7);
    await page.locator("#map").focus();
    await page.keyboard.press("+");
    assert.ok(await span() < closer);
    for (const key of ["-", "-", "-"]) await page.keyboard.press(key);
    assert.equal(await span(), 1);
    await page.keyboard.press("s");
    assert.equal((await window()).mode, "true");
    assert.equal(await page.locator("#true").getAttribute("aria-pressed"), "true");
    assert.deepEqual(errors, []);
  });
});

test("the keyboard alone reaches every region and variable", { skip }, async () => {
  await withPage(pictureHtml(small()), async (page, { errors }) => {
    const selected = () => page.locator("#selection").getAttribute("data-selected");
    await page.locator("#map").focus();
    const seen: (string | null)[] = [];
    for (let press = 0; press < 5; press++) {
      await page.keyboard.press("ArrowRight");
      seen.push(await selected());
    }
    assert.deepEqual(seen, ["driver carve-out", "scratchpad", "constants", "free gap 1 of the main pool", "free gap 1 of the small pool"]);
    for (const key of ["Home", "ArrowRight", "ArrowDown"]) await page.keyboard.press(key);
    assert.equal(await selected(), "alpha");
    await page.keyboard.press("ArrowDown");
    assert.equal(await selected(), "beta");
    for (const key of ["ArrowUp", "ArrowRight"]) await page.keyboard.press(key);
    assert.equal(await selected(), "gamma", "along a lane");
    await page.keyboard.press("Enter");
    const { from, to } = await run(page, (map) => map.window());
    assert.ok(to - from < 0.5, "Enter zooms to it");
    await page.keyboard.press("Escape");
    assert.equal(await selected(), "");
    assert.deepEqual(errors, []);
  });
});

test("the treemap opens owners, goes back, and selects what a rectangle stands for", { skip }, async () => {
  await withPage(pictureHtml(small()), async (page, { errors }) => {
    await run(page, (map) => map.open("net"));
    assert.deepEqual(await page.locator("#crumbs button").allInnerTexts(), ["in use", "net"]);
    await page.locator("#tree").scrollIntoViewIfNeeded();
    const gamma = (await run(page, (map) => map.boxes())).find(({ name }) => name === "gamma")!;
    const box = (await page.locator("#tree").boundingBox())!;
    await page.mouse.move(box.x + gamma.x + gamma.width / 2, box.y + gamma.y + gamma.height / 2);
    assert.match(await page.locator("#tip").innerText(), /gamma[\s\S]*net → WEIGHT/);
    await page.mouse.down();
    await page.mouse.up();
    assert.equal(await page.locator("#selection").getAttribute("data-selected"), "gamma");
    await page.locator("#crumbs button").first().click();
    assert.deepEqual(await page.locator("#crumbs button").allInnerTexts(), ["in use"]);
    assert.deepEqual(errors, []);
  });
});

test("the timeline tells each event", { skip }, async () => {
  await withPage(pictureHtml(small()), async (page, { errors }) => {
    await page.locator("#time").scrollIntoViewIfNeeded();
    const box = (await page.locator("#time").boundingBox())!;
    await page.mouse.move(box.x + box.width * 0.5, box.y + 80);
    const tip = await page.locator("#tip").innerText();
    assert.match(tip, /allocated[\s\S]*event 1[\s\S]*all HBMs then[\s\S]*400 bytes/);
    await page.locator("#time").focus();
    await page.keyboard.press("ArrowRight");
    assert.match(await page.locator("#tip").innerText(), /freed[\s\S]*event 2/);
    assert.deepEqual(errors, []);
  });
});

test("hostile names are shown as text and run nothing", { skip }, async () => {
  const hostile = `</script><img src=x onerror="document.title='owned'">`;
  const picture = buildPicture({
    title: hostile, source: hostile, devices: [{ index: 0, name: hostile, hbms: [{ index: 0, base: 0, size: 2 ** 30, cores: [0] }] }], notes: [hostile],
    allocations: [{ device: 0, start: 2 ** 24, size: 4096, usage: hostile, model: hostile, core: 0, hint: hostile }],
    variables: [{ name: hostile, device: 0, start: 2 ** 24, size: 4096, type: hostile, usage: hostile, model: hostile, subgraph: hostile }],
  });
  await withPage(pictureHtml(picture), async (page, { errors, requests }) => {
    assert.ok((await hoverOn(page, hostile)).includes(hostile));
    await page.locator("#search").fill("onerror");
    await page.keyboard.press("Enter");
    assert.equal(await page.locator("h1").innerText(), hostile);
    assert.equal(await page.locator("img").count(), 0);
    assert.equal(await page.title(), hostile);
    assert.deepEqual([errors, requests], [[], []]);
  });
});

test("light, dark and print have their own colours, and print leaves the controls out", { skip }, async () => {
  const html = pictureHtml(small());
  const paperOf = (page: Page) => page.evaluate("getComputedStyle(document.documentElement).backgroundColor");
  /** Colour of a region of constants, as drawn. */
  const drawn = (page: Page) => page.evaluate(`(() => {
    const { x } = memoryMap.locate("constants");
    return Array.from(document.getElementById("map").getContext("2d").getImageData(x, 86, 1, 1).data).join();
  })()`);
  await withPage(html, async (page) => {
    assert.equal(await paperOf(page), "rgb(252, 252, 249)");
    assert.equal(await drawn(page), "49,112,237,255");
    await page.emulateMedia({ colorScheme: "dark" });
    assert.equal(await paperOf(page), "rgb(20, 23, 27)");
    // The page hears of the change with its next frame.
    await page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))");
    assert.equal(await drawn(page), "40,108,165,255");
    await page.emulateMedia({ media: "print", colorScheme: "dark" });
    assert.equal(await paperOf(page), "rgb(255, 255, 255)");
    assert.equal(await page.locator(".tools").isVisible(), false);
    assert.equal(await page.locator("#search").isVisible(), false);
    assert.equal(await page.locator("#owners").isVisible(), true);
  });
});

test("on a narrow screen nothing is wider than the screen", { skip }, async () => {
  await withPage(pictureHtml(small()), async (page) => {
    assert.equal(await page.evaluate("document.documentElement.scrollWidth"), 420);
  }, { width: 420 });
});

test("ten thousand variables: all found, thin ones culled, every one can be reached", { skip }, async (context) => {
  const picture = buildPicture(manyVariables(10_000));
  const html = pictureHtml(picture);
  await withPage(html, async (page, { errors }) => {
    const times = await page.evaluate(`({ ready: Number(document.documentElement.dataset.ready), drawn: Number(document.getElementById("map").dataset.drawn),
      paint: Math.round(performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? NaN) })`) as { ready: number; drawn: number; paint: number };
    context.diagnostic(`# 10 000 variables: first paint after ${times.paint} ms, all drawn after ${Math.round(times.ready)} ms, ${times.drawn} rectangles, page ${(html.length / 1024).toFixed(0)} KiB`);
    assert.ok(times.drawn < 12_000, `${times.drawn} rectangles for 10 000 variables in 6 667 regions`);
    await page.locator("#search").fill("variable_9999");
    assert.equal(await page.locator("#found").getAttribute("data-count"), "2");
    await page.keyboard.press("Enter");
    assert.ok((await hoverOn(page, "variable_9999")).includes("variable_9999"), "brought into sight, wide enough to point at");
    assert.ok(Number(await page.locator("#map").getAttribute("data-drawn")) > 0);
    assert.deepEqual(errors, []);
  });
});

test("a real model's 228 scratch variables and two real models are drawn and found", { skip: skipLoaded }, async () => {
  const model = (file: string) => ({ path: corpusPath(`neff/${file}.neff`), name: file });
  const one = await loadedPicture([model("sunda-lnc1-ncc2.18-conv2d_pool_float32_228virtual")], "trn1");
  const virtual = regionsOf(one.devices[0]!.hbms[0]!).flatMap(({ variables }): readonly PictureVariable[] => variables).filter(({ type }) => type === "virtual");
  await withPage(pictureHtml(one), async (page, { errors }) => {
    await page.locator("#search").fill("virtual");
    const matches = Number(await page.locator("#found").getAttribute("data-count"));
    assert.ok(matches >= virtual.length && virtual.length === 228, `${matches}`);
    await page.locator("#search").fill(virtual[100]!.name);
    await page.keyboard.press("Enter");
    const tip = await hoverOn(page, virtual[100]!.name);
    assert.ok(tip.includes(`0x${virtual[100]!.start.toString(16).padStart(10, "0")}`), tip);
    assert.deepEqual(errors, []);
  });
  const two = await loadedPicture([model("cayman-lnc2-ncc2.23-nki_moe_v6b"), model("cayman-lnc2-ncc2.23-attn_fused_bf16_s512")], "trn2", { lnc: 2 });
  await withPage(pictureHtml(two), async (page, { errors }) => {
    assert.equal((await totalsOf(page))["used"], two.totals.usedBytes);
    assert.equal(await page.locator("#hbms button").count(), 4);
    assert.equal(await page.locator(`#owners tr[data-owner="cayman-lnc2-ncc2.23-nki_moe_v6b"]`).count(), 1);
    assert.deepEqual(errors, []);
  }, { colorScheme: "dark" });
});
