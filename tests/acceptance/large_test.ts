import assert from "node:assert/strict";
import { test } from "node:test";
import { readModel } from "../../lib/cli/read_model.ts";
import { readNeff, summarizeNeff } from "../../lib/neff/mod.ts";
import { commandJson } from "../support/cli.ts";
import { modelByHand, npyByHand } from "./by_hand.ts";
import { testFolder } from "./folder.ts";

const put = testFolder();

test("a large model is inspected and planned without its payloads in memory, with the same result", async () => {
  const bytes = new Uint8Array(33 * 2 ** 20);
  const variables = { SB: { type: "state-buffer", var_id: 0 }, w: { type: "file", var_id: 1, size: bytes.length, file_name: "w.npy" }, y: { type: "output", var_id: 2, size: 64 } };
  const path = put("large.neff", modelByHand({ subgraphs: [variables], files: [["sg00/w.npy", npyByHand(bytes)]] }, { gzip: false, packager: 1 }));
  const model = await readModel(path, { verifyHash: true });
  assert.equal(model.members.get("sg00/w.npy")?.bytes, null);
  const whole = summarizeNeff(await readNeff(path), path);
  assert.deepEqual(summarizeNeff(model, path), whole);
  assert.equal(whole.archive.hashMatches, true);
  const { subgraphs } = await commandJson<{ subgraphs: { records: { name: string; size: number }[] }[] }>("plan", path);
  assert.deepEqual(subgraphs[0]!.records.map(({ name, size }) => [name, size]), [["SB", 0], ["w", bytes.length], ["y", 64]]);
});
