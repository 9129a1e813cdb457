import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { native, pinned, registerPinned, unregisterPinned } from "../ffi/mod.ts";
import { MemAllocV2MT64, MemFree, requests } from "../lib/abi/mod.ts";
import { createFake } from "../lib/fake/machine.ts";
import { shimObstacle } from "../lib/shim/seccomp.ts";
import { runUnderFake } from "../lib/shim/run.ts";
import type { Suite } from "./support/harness.ts";
import { slowMachine } from "./support/machine.ts";

const RUNS = 12;

/** The fake in this process, and programs under the shim, against a bare system call. */
export async function run(suite: Suite): Promise<void> {
  const limit = await inProcess(suite);
  const obstacle = shimObstacle();
  if (obstacle === undefined) await underShim(suite, limit);
  else process.stderr.write(`  the shim is not measured: ${obstacle}\n`);
}

/** Returns why times cannot be kept on this machine, if so. */
async function inProcess(suite: Suite): Promise<string | undefined> {
  const system = native();
  const out = pinned(64);
  const structs = pinned(128);
  for (const memory of [out, structs]) registerPinned(memory);
  const entry = await suite.row("bare ioctl, fails with EBADF", () => system.ioctl(-1, 0x5413, out.address), { label: "host" });
  using machine = createFake({ product: "trn2" });
  const kernel = machine.process();
  const fd = kernel.open("/dev/neuron0", 2);
  const alloc = MemAllocV2MT64.over(structs.view);
  const free = MemFree.over(structs.view, 64);
  Object.assign(alloc, { size: 4096, memType: 9, memHandle: out.address });
  await suite.row("COMPATIBLE_VERSION, in process", () => kernel.ioctl(fd, requests.COMPATIBLE_VERSION.request, out.address), { label: "fake" });
  await suite.row("alloc and free, in process", () => {
    kernel.ioctl(fd, requests.MEM_ALLOC_V2MT64.request, structs.address);
    free.memHandle = out.view.getUint32(0, true);
    return kernel.ioctl(fd, requests.MEM_FREE.request, structs.address + 64);
  }, { label: "fake", within: 1000 });
  for (const memory of [out, structs]) unregisterPinned(memory);
  return slowMachine(entry);
}

/** Median and 99th percentile of each batch, by operation. */
type Latencies = Readonly<Record<string, { readonly p50: readonly number[]; readonly p99: readonly number[] }>>;

async function underShim(suite: Suite, limit: string | undefined): Promise<void> {
  const latencies = JSON.parse(await outputUnderFake(ownScript("./support/shim_client.ts"))) as Latencies;
  for (const [name, { p50, p99 }] of Object.entries(latencies)) {
    // The best batch counts, as in the other rows; what other programs on this machine do is not the shim's.
    const requested = name === "COMPATIBLE_VERSION" || name === "MEM_GET_PA";
    suite.add(`${name}: p50 under the shim`, p50, { label: "fake", floor: "bare ioctl, fails with EBADF", ...(requested ? { within: 12_000, limit } : {}) });
    suite.add(`${name}: p99 under the shim`, p99, { label: "fake", ...(requested ? { within: 40_000, limit } : {}) });
  }
  const started = await samples(() => runUnderFake(["true"], { product: "trn2" }));
  suite.add("true, alone", await samples(() => plain(["true"])), { label: "host" });
  suite.add("true under the shim", started, { label: "fake" });
}

async function samples(action: () => Promise<unknown>): Promise<number[]> {
  const times: number[] = [];
  for (let i = 0; i < RUNS; i++) {
    const begun = performance.now();
    await action();
    times.push((performance.now() - begun) * 1e6);
  }
  return times;
}

function plain([file, ...words]: readonly string[]): Promise<unknown> {
  return new Promise((resolve) => spawn(file!, words).on("exit", resolve));
}

function ownScript(path: string): readonly string[] {
  const file = fileURLToPath(new URL(path, import.meta.url));
  return "Bun" in globalThis ? [process.execPath, file] : [process.execPath, "run", "-A", "--no-check", "--quiet", file];
}

async function outputUnderFake(command: readonly string[]): Promise<string> {
  const parts: Buffer[] = [];
  let closed: Promise<unknown> = Promise.resolve();
  const { exitCode, signal } = await runUnderFake(command, {
    product: "trn2", stdio: ["ignore", "pipe", "inherit"],
    started(child) {
      child.stdout!.on("data", (data: Buffer) => parts.push(data));
      closed = new Promise((resolve) => child.stdout!.on("close", resolve));
    },
  });
  await closed;
  if (exitCode !== 0) throw new Error(`the client under the shim ended with ${exitCode ?? signal}`);
  return Buffer.concat(parts).toString();
}

