import assert from "node:assert/strict";
import { test } from "node:test";
import { commandJson } from "../support/cli.ts";
import { explainLog } from "../../lib/explain/log.ts";

test("a number is a runtime status; one that is none, or negative, an errno", async () => {
  for (const [code, name] of [["4", "NRT_RESOURCE"], ["-12", "ENOMEM"], ["12", "ENOMEM"], ["-2", "ENOENT"], ["2", "NRT_INVALID"], ["22", "EINVAL"], ["101", "NRT_EXEC_UNIT_UNRECOVERABLE"]] as const) {
    assert.equal((await commandJson<{ name: string }>("explain", code)).name, name, code);
  }
});

test("logs tell a missing permission, a missing device and a missing remote variable apart", () => {
  for (const [line, cause] of [
    ["Could not open /dev/neuron3: Permission denied", "no-permission"],
    ["open /dev/neuron0 failed: EACCES", "no-permission"],
    ["/dev/neuron0: No such file or directory", "no-device"],
    ["neuron-ls: No neuron device found", "no-device"],
    ["Failed to resolve remote variables for subgraphs 0 to 1", "remote-variables"],
    ["everything is fine", undefined],
  ] as const) assert.equal(explainLog(line, { featureNames: () => [] }).cause?.cause, cause, line);
});
