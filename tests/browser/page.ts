/** A browser for tests, where there is one. */
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";
import { pathToFileURL } from "node:url";
import playwright from "playwright-core";
import type { Browser, Page } from "playwright-core";

/** Path of Chromium; `NEURON_DMEM_CHROMIUM` overrides it. */
const executablePath = process.env["NEURON_DMEM_CHROMIUM"] ?? ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync) ?? "";

/** Why browser tests are skipped, or `false`. */
export const skipWithoutBrowser: string | false = existsSync(executablePath) ? false : "no Chromium on this machine (set NEURON_DMEM_CHROMIUM)";

/** How a page is opened. */
export interface OpenOptions {
  readonly colorScheme?: "light" | "dark";
  readonly width?: number;
  readonly height?: number;
}

/** What happened in the page besides what the test did. */
export interface Watched {
  readonly errors: readonly string[];
  /** URLs asked for, the page itself not among them. */
  readonly requests: readonly string[];
}

let browser: Promise<Browser> | undefined;
after(async () => await (await browser)?.close());

function launch(): Promise<Browser> {
  browser ??= playwright.chromium.launch({
    executablePath,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
  return browser;
}

/** Opens an HTML text as a file in a new page of Chromium, runs `action`, and closes the page. */
export async function withPage(html: string, action: (page: Page, watched: Watched) => Promise<void>, options: OpenOptions = {}): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-page-"));
  const file = join(folder, "map.html");
  writeFileSync(file, html);
  const context = await (await launch()).newContext({
    viewport: { width: options.width ?? 1360, height: options.height ?? 900 }, colorScheme: options.colorScheme ?? "light",
  });
  try {
    const page = await context.newPage();
    const errors: string[] = [];
    const requests: string[] = [];
    const url = pathToFileURL(file).href;
    page.on("pageerror", (error) => errors.push(String(error)));
    page.on("console", (message) => {
      if (message.type() === "error") errors.push(message.text());
    });
    page.on("request", (request) => {
      if (request.url() !== url) requests.push(request.url());
    });
    await page.goto(url);
    await page.waitForSelector("html[data-ready]");
    await action(page, { errors, requests });
  } finally {
    await context.close();
    rmSync(folder, { recursive: true, force: true });
  }
}
