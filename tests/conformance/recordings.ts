// The recordings of the driver that travel with the tests.
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gunzipSync } from "node:zlib";
import { parseRecording, type Recording, type ScenarioResult } from "../../tools/conformance/run.ts";
import type { Product } from "../../lib/abi/architecture.ts";

const golden = fileURLToPath(new URL("../../data/recordings/", import.meta.url));

/** A shipped recording. */
export function goldenRecording(name: string): Recording {
  return parseRecording(readFileSync(`${golden}${name}.json.gz`), name);
}

/** Names of the shipped recordings that match, sorted. */
export function goldenNames(pattern: RegExp): string[] {
  return readdirSync(golden).map((file) => file.replace(".json.gz", "")).filter((name) => pattern.test(name)).sort();
}

/** What the driver's part of sysfs was on a fresh driver. */
export interface GoldenTree {
  /** Files of the device by path: octal mode and text. */
  readonly device: Readonly<Record<string, readonly [mode: string, text: string]>>;
  /** Files of the module by path. */
  readonly module: Readonly<Record<string, string>>;
  /** Files of the device class by path. */
  readonly class: Readonly<Record<string, string>>;
}

/** The recorded sysfs of a product. */
export function goldenTree(product: Product): GoldenTree {
  return JSON.parse(gunzipSync(readFileSync(`${golden}sysfs-2.24.7-${product}.json.gz`)).toString()) as GoldenTree;
}

/** The differences of a result that nothing explains, for messages. */
export function unexplained(results: Iterable<ScenarioResult>): string[] {
  return [...results].flatMap((result) =>
    result.differences.filter(({ status }) => status === "different").slice(0, 3)
      .map(({ index, difference }) => `${result.category}/${result.name} step ${index}: ${difference}`)
  );
}
