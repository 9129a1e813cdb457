import assert from "node:assert/strict";
import { test } from "node:test";
import { readModel } from "../../lib/cli/read_model.ts";
import { openNeff } from "../../lib/neff/open_neff.ts";
import { readNeff, summarizeNeff } from "../../lib/neff/mod.ts";
import { openNeuron } from "../../mod.ts";
import { commandJson } from "../support/cli.ts";
import { membersOf, modelByHand, neffByHand, npyByHand } from "./by_hand.ts";
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

test("whatever is wrong with a model that is loaded as it passes by, the error names the file and nothing stays on the device", async () => {
  const big = new Uint8Array(33 * 2 ** 20);
  const variables = { SB: { type: "state-buffer", var_id: 0 }, w: { type: "file", var_id: 1, size: big.length, file_name: "w.bin" }, y: { type: "output", var_id: 2, size: 64 } };
  const members = (content: Uint8Array) => [...membersOf({ subgraphs: [variables] }), ["sg00/w.bin", content] as const];
  const whole = neffByHand(members(big), { gzip: false });
  const cut = neffByHand(members(big), { gzip: false }).subarray(0, whole.length - 20 * 2 ** 20);
  new DataView(cut.buffer, cut.byteOffset).setBigUint64(0x10, BigInt(cut.length - 1024), true);
  using neuron = openNeuron({ fake: "trn1" });
  const { device } = neuron.devices[0]!;
  const used = () => device.geometry.hbms.reduce((sum, _, hbm) => sum + device.dumpChunks(hbm).reduce((all, { size }) => all + size, 0), 0);
  const before = used();
  for (const [name, bytes, why] of [
    ["cut.neff", cut, /the archive is damaged: member "sg00\/w\.bin" needs 34603008 bytes/],
    ["short.neff", neffByHand(members(big.subarray(1)), { gzip: false }), /the payload of variable "w" has 34603007 bytes, its size is 34603008/],
  ] as const) {
    const path = put(name, bytes);
    await using passing = await openNeff(path);
    await assert.rejects(() => neuron.logicalCore(0).load(passing.neff, { source: passing }), (error: Error) => {
      assert.ok(error.message.startsWith(`Cannot read ${path}: `), error.message);
      assert.match(error.message, why);
      return true;
    });
    assert.equal(used(), before, name);
  }
});
