/** Every example runs on the fake, under the runtime that runs this test, and says what it promises. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../", import.meta.url));
const isBun = process.versions["bun"] !== undefined;

/** What an example's output must contain, in this order. */
const PROMISES: Readonly<Record<string, readonly RegExp[]>> = {
  "device_memory.ts": [/^address 0x[0-9a-f]+ on HBM 0$/m, /^read back \[ 1, 2, 3 \]$/m, /^charged to nd0:nc0 67109952 bytes$/m],
  "model.ts": [
    /^cayman, compiled by 0\.0\.0\+neuron-dmem, 2 subgraphs, 11 variables in the first$/m,
    /^SB \(state-buffer, 33554432 bytes\) 0x2000000000$/m, /^SB\{1\} \(remote, 33554432 bytes\) 0x3000000000$/m,
    /^byte 4096 of q is at 0x[0-9a-f]+$/m, /INSTR_PE/, /WEIGHT/, /DMA_RING_IO/,
  ],
  "tensors.ts": [/^streamed in 32768 bytes$/m, /^after the unload \[ 0, 2, 4, 6 \] completed 1 time$/m],
  "structs.ts": [/^0x80384E66 56 bytes \{/m, /dramChannel: 20/, /memHandle: 40/, /^first 24 bytes 00 10 00 00 (00 ){16}01 00 00 00$/m],
  "two_models.ts": [
    /encoder = 1001\+1002, decoder = 1003\+1004/, /^scratchpad pages of nd0:nc0: 1, used by 2 models$/m,
    /^encoder gave back (\d+) bytes, it owned \1$/m, /same address true, same bytes true/, /^after both: 0 bytes more than before$/m,
  ],
  "unload_under_load.ts": [
    /busy loaded, other loaded\] busy runs/, /busy unloading.*1 execution holds it/, /Unknown model 1001/, /1 references are still held after 10 ms/,
    /^\[other loaded\] unloaded$/m, /^\[other loaded\] other runs$/m,
  ],
  "every_request.ts": [
    /^the load made \d+ allocations, \d+\.\d MiB$/m, /^Cannot allocate 9\.000GB for core 0: it holds .* of its limit of 8\.000GB$/m, /^peak \d+\.\d MiB, 1 refused$/m,
    /^\d+ lines in the log/m, /^seq,action,id,core,hbm,/m, /^\d+,alloc,\d+,0,0,device,WEIGHT,/m,
  ],
  "fit.ts": [/^fits \d+ \[\]$/m, /^does-not-fit -\d+ \[/m, /^first that finds no room: kv cache$/m],
  "kv_cache.ts": [/24 GiB, 129 MiB used/, /32 tensors, first at 0x[0-9a-f]+, all on HBM 0/, /^status 4 \(NRT_RESOURCE\): Cannot allocate tensor one layer too many/m, /^hint: ./m, /^after closing the cache: 129 MiB$/m],
  "shared_hbm.ts": [/lnc 0 \(nd0:nc0\) is on HBM 0; so is lnc 1 \(nd0:nc1\)/, /HBM 0: 512\.0 of 24576 MiB, cores 0 1 \(device-relative\)/, /most: core 1 \(global 1\), 512\.0 MiB/],
};

for (const name of readdirSync(`${root}examples`).filter((file) => file.endsWith(".ts")).sort()) {
  test(`examples/${name} runs and says what it promises`, { timeout: 60_000 }, () => {
    const promises = PROMISES[name];
    assert.ok(promises !== undefined, `${name} has no promise in this test`);
    const [code, output] = run(name);
    assert.equal(code, 0, output);
    let from = 0;
    for (const promise of promises) {
      const found = promise.exec(output.slice(from));
      assert.ok(found !== null, `${promise} is not in the output from here on:\n${output.slice(from)}`);
      from += found.index;
    }
  });
}

test("every promise belongs to an example, and every example says in its first lines what it shows", () => {
  const files = readdirSync(`${root}examples`).filter((file) => file.endsWith(".ts"));
  assert.deepEqual(Object.keys(PROMISES).sort(), files.sort());
  for (const file of files) assert.match(readFileSync(`${root}examples/${file}`, "utf8"), /^\/\*\*\n \* .+/, file);
});

test("importing the package does nothing by itself: no output, no device, no variable read", () => {
  const script = 'const before = Object.keys(globalThis).length; await import("neuron-dmem"); await import("neuron-dmem/abi"); if (Object.keys(globalThis).length !== before) throw new Error("globals changed"); console.log("quiet");';
  const [code, output] = evaluate(script);
  assert.equal(code, 0, output);
  assert.equal(output.trim(), "quiet");
});

function run(name: string): readonly [code: number | null, output: string] {
  return spawn(isBun ? [`examples/${name}`] : ["run", "-A", "--quiet", `examples/${name}`]);
}

function evaluate(script: string): readonly [code: number | null, output: string] {
  return spawn(isBun ? ["-e", script] : ["eval", "--quiet", script]);
}

function spawn(args: readonly string[]): readonly [code: number | null, output: string] {
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { cwd: root, encoding: "utf8", env: { ...process.env, NO_COLOR: "1" } });
  return [status, `${stdout}${stderr}`];
}
