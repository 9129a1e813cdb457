/** Models, tables and files the tests of sharding share. */
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { type ModelShape, modelShape } from "../../lib/sharding/model_config.ts";
import { type JsonTable, tableOf } from "../../lib/sharding/model_file.ts";

/** Text of a file that travels with the tests. */
export function golden(name: string): string {
  return readFileSync(fileURLToPath(new URL(`../golden/${name}`, import.meta.url)), "utf8");
}

/** The `config.json` of a published model, as far as sizes depend on it. */
export function configOf(model: string): Record<string, unknown> {
  const configs = JSON.parse(golden("model_configs.json")) as Record<string, Record<string, unknown>>;
  const config = configs[model];
  if (config === undefined) throw new Error(`no configuration of ${model} in tests/golden/model_configs.json`);
  return config;
}

/** The dimensions of a published model. */
export function shapeOf(model: string): ModelShape {
  return modelShape(jsonTable(configOf(model)));
}

/** An object as a reader finds it in a file. */
export function jsonTable(value: unknown): JsonTable {
  return tableOf(jsonBytes(value), "config.json");
}

/** A value as the bytes of a JSON file. */
export function jsonBytes(value: unknown): Uint8Array {
  return new TextEncoder().encode(JSON.stringify(value));
}

/** Rows of a table with a line of names. */
export function csvRows(text: string): Record<string, string>[] {
  const [head = "", ...lines] = text.trim().split("\n");
  const names = head.split(",");
  return lines.map((line) => {
    const cells = line.split(",");
    return Object.fromEntries(names.map((name, index) => [name, cells[index] ?? ""]));
  });
}

/** A safetensors file of a header and as many zero bytes of data. */
export function safetensorsBytes(header: unknown, dataBytes: number): Uint8Array {
  const text = typeof header === "string" ? new TextEncoder().encode(header) : jsonBytes(header);
  const file = new Uint8Array(8 + text.length + dataBytes);
  new DataView(file.buffer).setBigUint64(0, BigInt(text.length), true);
  file.set(text, 8);
  return file;
}

/** A header whose tensors lie one behind the other. @param tensors name, element type, shape and bytes of each */
export function headerOf(
  tensors: readonly (readonly [name: string, dtype: string, shape: readonly number[], bytes: number])[],
): Record<string, unknown> {
  let at = 0;
  return Object.fromEntries(tensors.map(([name, dtype, shape, bytes]) => {
    const begin = at;
    at += bytes;
    return [name, { dtype, shape, data_offsets: [begin, at] }];
  }));
}
