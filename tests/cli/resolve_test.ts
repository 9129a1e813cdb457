import assert from "node:assert/strict";
import { test } from "node:test";
import type { LoadReport } from "../../lib/cli/text/load_report.ts";
import { command, commandJson } from "../support/cli.ts";

interface Answer {
  readonly variable: string;
  readonly varId: number;
  readonly offset: number;
  readonly size: number;
  readonly address: string;
}

test("resolve prints the address load shows, plus the offset", async () => {
  const { subgraphs } = await commandJson<LoadReport>("load", "samples/mlp.neff");
  for (const variable of subgraphs[0]!.variables) {
    const base = await commandJson<Answer>("resolve", "samples/mlp.neff", variable.name);
    assert.equal(base.address, variable.address, variable.name);
    const last = await commandJson<Answer>("resolve", "samples/mlp.neff", `${variable.name}+${variable.sizeBytes - 1}`, "--size", "1");
    assert.equal(Number(last.address), Number(variable.address) + variable.sizeBytes - 1, variable.name);
    assert.deepEqual({ variable: last.variable, varId: last.varId, offset: last.offset, size: last.size }, { variable: variable.name, varId: variable.varId, offset: variable.sizeBytes - 1, size: 1 });
  }
});

test("a name may begin with a dash, with options before and after it", async () => {
  const name = "-logits-i0_sg0000";
  const plain = await commandJson<Answer>("resolve", "samples/mlp.neff", name);
  assert.equal(plain.variable, name);
  assert.equal((await commandJson<Answer>("resolve", "samples/mlp.neff", `${name}+0x10`, "--size", "4")).offset, 16);
  assert.equal((await commandJson<Answer>("resolve", "--size", "4", "samples/mlp.neff", name)).size, 4);
});

test("resolve prints just the address, so that a script can use it", async () => {
  const { code, out } = await command("resolve", "samples/mlp.neff", "x+4096");
  assert.equal(code, 0);
  assert.match(out, /^0x[0-9a-f]+$/);
});

test("a name that does not exist, a range outside and a table without one address end with 1", async () => {
  for (const [name, size] of [["nothing", "0"], ["x", "99999999"], ["x+99999999", "0"]] as const) {
    const { code, err } = await command("resolve", "samples/mlp.neff", name, "--size", size);
    assert.equal(code, 1, name);
    assert.match(err, /^error: Cannot /, name);
  }
  const table = await command("resolve", "samples/attention_lnc2.neff", "DGETable0");
  assert.equal(table.code, 1);
  assert.equal((await command("resolve", "samples/mlp.neff", "x", "--subgraph", "sg07")).code, 1);
  assert.equal((await command("resolve", "samples/mlp.neff")).code, 2);
  assert.equal((await command("resolve", "samples/mlp.neff", "x", "y")).code, 2);
});

test("--subgraph chooses between variables of the same name", async () => {
  const [first, second] = await Promise.all(["sg00", "sg01"].map((subgraph) => commandJson<Answer>("resolve", "samples/attention_lnc2.neff", "SB", "--subgraph", subgraph)));
  assert.equal(first?.address, "0x2000000000");
  assert.equal(second?.address, "0x3000000000");
});
