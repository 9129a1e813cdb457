import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import type { FailureOutput } from "../../lib/cli/failure.ts";
import { command } from "../support/cli.ts";

const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-failure-"));
after(() => rmSync(folder, { recursive: true }));
const text = join(folder, "text.neff");
writeFileSync(text, "this is text\n".repeat(200));

/** What goes wrong, the exit code, and the word of its kind. */
const FAILURES: readonly (readonly [argv: readonly string[], code: number, word: string])[] = [
  [["inspect", join(folder, "nothing.neff")], 3, "neff"],
  [["inspect", text], 3, "neff"],
  [["plan", folder], 3, "neff"],
  [["load", text], 3, "neff"],
  [["diff", text, text], 3, "neff"],
  [["replay", text, "--hbm-size", "1GiB"], 3, "log-format"],
  [["replay", join(folder, "nothing"), "--hbm-size", "1GiB"], 3, "file"],
  [["load", "samples/mlp.neff", "--device", "31"], 4, "device-open"],
  [["copy", "--device", "31"], 4, "device-open"],
  [["fit", "samples/mlp.neff", "--device", "31"], 4, "no-device"],
  [["resolve", "samples/mlp.neff", "nothing"], 1, "resolve"],
  [["load", "samples/mlp.neff", "--fake", "trn2"], 1, "nrt"],
  [["load", "samples/mlp.neff", "--core", "5"], 2, "usage"],
  [["fit"], 2, "usage"],
  [["fit", "samples/mlp.neff", "--cores", "3-1"], 2, "usage"],
  [["devices", "--fake", "trn2", "--devices", "99"], 2, "argument"],
  [["load"], 2, "usage"],
  [["load", "samples/mlp.neff", "--fkae"], 2, "usage"],
  [["explain", "no-such-code"], 2, "usage"],
];

test("a failure ends with the code of its kind: 1 no, 2 wrong usage, 3 unreadable file, 4 no device; with --json it is JSON on standard output", async () => {
  for (const [argv, code, word] of FAILURES) {
    const plain = await command(...argv);
    assert.equal(plain.code, code, argv.join(" "));
    assert.equal(plain.out, "", argv.join(" "));
    const json = await command(...argv, "--json");
    assert.deepEqual([json.code, json.err], [code, ""], argv.join(" "));
    const { error } = JSON.parse(json.out) as FailureOutput;
    assert.deepEqual(Object.keys(error), ["code", "message", "hint", "details"]);
    assert.equal(error.code, word, argv.join(" "));
    assert.ok(!/undefined|\n/.test(error.message), error.message);
    assert.ok(plain.err.startsWith(`error: ${error.message}`), `${plain.err}\n${error.message}`);
  }
});
