import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import type { CodeExplanation } from "../../lib/explain/codes.ts";
import { explainLog } from "../../lib/explain/log.ts";
import { NrtStatus } from "../../lib/abi/runtime_dmem.ts";
import { explainableCodes, explainCode } from "../../lib/explain/codes.ts";
import { command, commandJson } from "../support/cli.ts";

const STAMP = "2023-Nov-28 12:00:00.000001 100:100 ERROR  TDRV:log_dev_mem                             ";

test("every runtime status and every errno of the driver is explained with what to try", () => {
  for (const value of Object.values(NrtStatus)) {
    const code = explainCode(String(value));
    assert.equal(code?.code, value);
    assert.ok(code.meaning.length > 10, code.name);
    assert.notEqual(code.meaning, "A runtime status.", code.name);
  }
  assert.equal(explainCode("enomem")?.code, 12);
  assert.equal(explainCode("8"), undefined);
  assert.ok(explainableCodes().includes("NRT_RESOURCE"));
});

test("explain 4 says that memory is exhausted and how to find out what does not fit", async () => {
  const code = await commandJson<CodeExplanation>("explain", "4");
  assert.equal(code.name, "NRT_RESOURCE");
  assert.match(code.advice.join(" "), /neuron-dmem fit/);
  assert.equal((await command("explain", "eleventy")).code, 2);
});

test("the flat out-of-memory report is read back with its numbers", () => {
  const log = [
    `${STAMP}Failed to allocate 172.000MB (usage: tensors) on ND 0:NC 0, current utilization:`,
    "\t* total: 15.855GB", "\t* tensors: 15.855GB", "\t* runtime: 1.062KB", "\t* dma rings: 32.000KB", "",
    `${STAMP}Failed to allocate 180355072 bytes on DEVICE for tensor UNKNOWN.`,
  ].join("\n");
  const { cause, usage, findings } = explainLog(log);
  assert.equal(cause?.cause, "out-of-hbm");
  assert.equal(cause.status, 4);
  assert.deepEqual(cause.details, { size: "172.000MB", usage: "tensors", device: 0, core: 0 });
  assert.equal(usage?.["total"], Math.round(15.855 * 2 ** 30));
  assert.equal(usage["dma rings"], 32 * 1024);
  assert.deepEqual(findings.map((finding) => finding.role), ["cause", "consequence"]);
});

// R01
test("explain - reads a log from standard input and names the cause", () => {
  const log = `${STAMP}Failed to allocate 172.000MB (usage: tensors) on ND 0:NC 0, current utilization:\n\t* total: 15.855GB\n\t* tensors: 15.855GB\n\t* runtime: 1.062KB\n\t* dma rings: 32.000KB\n`;
  const deno = "Deno" in globalThis;
  const { status, stdout } = spawnSync(process.execPath, [...deno ? ["run", "-A", "--no-check"] : [], "lib/cli/main.ts", "explain", "-"], { input: log, encoding: "utf8" });
  assert.equal(status, 0);
  assert.match(stdout, /^cause {2}Device memory is exhausted: 172\.000MB for tensors/);
  assert.match(stdout, /usage: total 15\.9 GiB/);
});

test("unsupported features are named, also when the lines of many cores are interleaved", () => {
  const log = Array.from({ length: 24 }, (_, core) =>
    `2024-Jan-18 01:49:40.97${core} 39717:${39880 + core} ERROR  NEFF:neff_parse   NEFF version: 2.0, features: 0x100 are not supported.  Currently supporting: 0x80000000000000ff\n` +
    `39717:39881 ERROR  NMGR:kmgr_load_nn_post_metrics   Failed to load NN: a/model.neff, err: 10`).join("\n");
  const { cause, codes, findings } = explainLog(log, { featureNames: (mask) => [`mask ${mask}`] });
  assert.equal(cause?.cause, "unsupported-features");
  assert.equal(cause.count, 24);
  assert.equal(cause.details["missing"], "0x100");
  assert.match(cause.meaning, /mask 256/);
  assert.equal(findings.length, 2);
  assert.deepEqual(codes.map((code) => code.code), [10]);
});

test("harmless lines are ignored and exhausted rings are told apart from exhausted HBM", () => {
  const { findings, lines } = explainLog([
    "[NEFF:neff_get_file_content] file not found cpu.so in NEFF",
    "ERROR  TDRV:notification_destroy   Notifications not initialized!",
    "2024-Jul-30 14:22:31.2 1:1   INFO  NRT:nrt_init   Neuron Runtime 2.22.14.0",
    "ERROR  TDRV:dma_ring_alloc   No more pages for ring type: 1",
    "ERROR  TDRV:tdrv_destroy                            TDRV not initialized",
  ].join("\n"));
  assert.deepEqual(findings.map((finding) => finding.cause), ["dma-rings-exhausted"]);
  assert.equal(lines.harmless, 4);
  assert.equal(explainLog("all is well").cause, null);
});
