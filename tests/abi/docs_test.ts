import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import * as abi from "../../lib/abi/mod.ts";
import { allStructs, golden, layoutOf, structOf } from "./support.ts";

const folder = new URL("../../lib/abi/", import.meta.url);
const text = readFileSync(new URL("../../docs/abi.md", import.meta.url), "utf8");
const headings = new Set([...text.matchAll(/^#+ (.+)$/gm)].map(([, heading]) => heading));

test("every layout line of docs/abi.md is the layout of the code, and every runtime struct has one", () => {
  const lines = [...text.matchAll(/^- `(.+)` \((\d+) bytes\): (.+)\.$/gm)];
  for (const [, cName, size, fields] of lines) {
    const struct = structOf(cName!);
    assert.equal(struct.byteLength, Number(size), cName!);
    assert.equal(fields, layoutOf(struct).map(([name, offset]) => `${name} ${offset}`).join(", "), cName!);
  }
  const driver = ["neuron_memcpy_batch_t", "nrt_tensor_batch_op_t"];
  assert.deepEqual(lines.map(([, cName]) => cName!).sort(), Object.keys(golden.structs).filter((cName) => !driver.includes(cName)).sort());
  assert.ok(lines.every(([, cName]) => allStructs.has(cName!)));
});

test("every section of docs/abi.md that the sources name exists", () => {
  const named = readdirSync(folder).flatMap((name) => {
    const code = readFileSync(new URL(name, folder), "utf8").replace(/\n \* ?/g, " ");
    return [...code.matchAll(/docs\/abi\.md`, "([^"]+)"/g)].map(([, section]) => section!);
  });
  assert.ok(named.length > 100, `only ${named.length} references`);
  assert.deepEqual([...new Set(named)].filter((section) => !headings.has(section)), []);
});

test("the table of driver versions is the one of the code", () => {
  const rows = [...text.matchAll(/^\| (2\.\d+\.\d+\.\d+) \| (\S+) \| (\d+) \| (yes|no) \| (\w+) \| (\w+) \| (yes|no) \| (\w+)/gm)];
  assert.deepEqual(
    rows.map(([, from, flags, bytes, batches, handle, bounds, wrap, timeout]) => [from, Number(flags), Number(bytes), batches, handle, bounds, wrap, timeout]),
    abi.driverProfiles.map((one) => [
      one.from, one.featureFlags, one.zeroCopyBytes, one.batches ? "yes" : "no", one.badHandle, one.outOfBounds, one.boundsWrap ? "yes" : "no", one.dmaTimeout,
    ]),
  );
});
