// One long random workload, on the fake in this process and by a foreign client under the shim: every answer must be the same.
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  DumpMemChunks, GetAppsInfo, MemAllocV2MT64, MemBufCopy64, MemCopy64, MemCopyAsync64, MemCopyAsyncWait, MemFree, MemGetExtendedInfo,
  MemGetInfo, MemGetMcMmapInfoV2, MemGetPa, Memset64,
} from "../../lib/abi/mod.ts";
import { createFake } from "../../lib/fake/machine.ts";
import { ARENA, BASE } from "./interpreter.ts";
import { AT, request, struct } from "./scripts.ts";
import { compile, type Local, localClient, machineOptions, ready, runCaptured, runtimeCommand, skipC, skipShim } from "./support.ts";

const REQUESTS = Number(process.env["NEURON_DMEM_DIFFERENTIAL_REQUESTS"] ?? 24_000);
const SEED = Number(process.env["NEURON_DMEM_SEED"] ?? Date.now() % 2 ** 31);
const MiB = 2 ** 20;
const TEMPORARY = AT.info;

/** A small generator of random numbers: mulberry32. */
function random(seed: number): (limit: number) => number {
  let state = seed >>> 0;
  return (limit) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return Math.floor(((t ^ (t >>> 14)) >>> 0) / 2 ** 32 * limit);
  };
}

/** Writes a script while carrying it out, so that it can use handles and addresses. */
class Workload {
  readonly script: string[] = [];
  readonly output: string[] = [];
  requests = 0;
  readonly #client: Local;
  readonly #random: (limit: number) => number;
  readonly #living: { handle: number; pa: number; size: number; device: number; mapped: number | undefined }[] = [];
  #maps = 0;

  constructor(client: Local, seed: number) {
    this.#client = client;
    this.#random = random(seed);
  }

  run(requests: number): void {
    for (const line of ["o 0 /dev/neuron0 2", "o 1 /dev/neuron1 2"]) this.#do(line);
    while (this.requests < requests) {
      this.#step();
      if (this.requests % 500 < 2) this.#ledger();
    }
    this.#ledger();
  }

  #do(line: string): string | undefined {
    if (line.startsWith("i ")) this.requests++;
    this.script.push(line);
    const result = this.#client.step(line);
    if (result === undefined) return undefined;
    this.output.push(String(result));
    return String(result);
  }

  #pick<T>(values: readonly T[]): T {
    return values[this.#random(values.length)]!;
  }

  #step(): void {
    const kind = this.#random(100);
    if (kind < 22) this.#allocate();
    else if (kind < 40) this.#free();
    else if (kind < 60) this.#copyBuffer();
    else if (kind < 68) this.#copy();
    else if (kind < 75) this.#set();
    else if (kind < 82) this.#async();
    else if (kind < 90) this.#ask();
    else this.#map();
  }

  #size(): number {
    return this.#pick([1, 4095, 4096, 4097, 65536, 524288, 524289, MiB, 5 * MiB, 1 + this.#random(3 * MiB), 2 ** 40, 0]);
  }

  #allocate(): void {
    const device = this.#random(2);
    const size = this.#size();
    const host = this.#random(6) === 0;
    this.#do(struct(MemAllocV2MT64, {
      size, align: this.#pick([0, 0, 0, 4096, 65536, 12288, MiB]), hostMemory: host ? 1 : 0, dramChannel: this.#pick([0, 1, 2, 3, 4]),
      ncId: this.#random(9), memType: this.#pick([0, 2, 5, 9, 10, 12, 13, 19, 21]), memHandle: this.#random(40) === 0 ? 65536 : BASE + AT.handle,
    }, AT.argument));
    if (this.#do(request("MEM_ALLOC_V2MT64", device)) !== "0") return;
    const handle = Number(BigInt.asUintN(64, Buffer.from(this.#do(`r ${AT.handle} 8`)!, "hex").readBigUInt64LE()));
    this.#do(struct(MemGetPa, { memHandle: handle, pa: BASE + AT.pa }));
    this.#do(request("MEM_GET_PA", device));
    const pa = Number(Buffer.from(this.#do(`r ${AT.pa} 8`)!, "hex").readBigUInt64LE());
    this.#living.push({ handle, pa, size: Math.ceil(size / 4096) * 4096, device, mapped: undefined });
  }

  #free(): void {
    const index = this.#random(this.#living.length + 2);
    const chunk = this.#living[index];
    if (chunk !== undefined) this.#living.splice(index, 1);
    this.#do(struct(MemFree, { memHandle: chunk?.handle ?? this.#random(60) }));
    this.#do(request("MEM_FREE", chunk?.device ?? this.#random(2)));
    if (chunk?.mapped !== undefined) this.#do(`u ${chunk.mapped}`);
    if (chunk === undefined) this.#forget();
  }

  /** A stray handle may have freed a chunk we know: it is not ours any more. */
  #forget(): void {
    for (let index = this.#living.length - 1; index >= 0; index--) {
      const { handle, device } = this.#living[index]!;
      this.#do(struct(MemGetPa, { memHandle: handle, pa: BASE + AT.pa }));
      if (this.#do(request("MEM_GET_PA", device)) !== "0") this.#living.splice(index, 1);
    }
  }

  #chunk() {
    return this.#living[this.#random(this.#living.length)] ?? { handle: this.#random(9), pa: 0, size: 8192, device: 0, mapped: undefined };
  }

  #copyBuffer(): void {
    const { handle, size, device } = this.#chunk();
    const length = Math.min(this.#random(200_000), ARENA - AT.data, this.#random(5) === 0 ? 2 ** 32 : size);
    const toDevice = this.#random(2) === 1;
    if (toDevice) this.#do(`p ${AT.data} ${length} ${this.#random(256)}`);
    const buffer = this.#random(30) === 0 ? BASE + ARENA - Math.ceil(length / 2) : BASE + AT.data;
    const offset = this.#random(Math.max(1, size - length + this.#pick([0, 0, 1, 4096])));
    this.#do(struct(MemBufCopy64, { memHandle: handle, buffer, size: length, offset, copyToMemHandle: toDevice ? 1 : 0 }));
    this.#do(request("MEM_BUF_COPY64", device));
    if (!toDevice) this.#do(`h ${AT.data} ${Math.min(length, ARENA - AT.data)}`);
  }

  #copy(): void {
    const [from, to] = [this.#chunk(), this.#chunk()];
    const size = 1 + this.#random(Math.min(from.size, to.size, 100_000));
    this.#do(struct(MemCopy64, { srcMemHandle: from.handle, dstMemHandle: to.handle, size, srcOffset: this.#random(8192), dstOffset: this.#random(8192) }));
    this.#do(request("MEM_COPY64", from.device));
  }

  #set(): void {
    const { handle, size, device } = this.#chunk();
    this.#do(struct(Memset64, { memHandle: handle, offset: this.#random(size), value: this.#random(256), size: 1 + this.#random(9000) }));
    this.#do(request("MEMSET64", device));
  }

  #async(): void {
    const [from, to] = [this.#chunk(), this.#chunk()];
    const handles = { srcMemHandle: from.handle, dstMemHandle: to.handle };
    this.#do(struct(MemCopyAsync64, {
      ...handles, size: 1 + this.#random(4096), srcOffset: this.#random(4096), dstOffset: this.#random(4096), pwaitHandle: this.#pick([0xffffffff, 1, 2, 0, 7]) | 0,
    }));
    this.#do(request("MEM_COPY_ASYNC64", from.device));
    this.#do(`r ${AT.argument} ${MemCopyAsync64.byteLength}`);
    this.#do(struct(MemCopyAsyncWait, { ...handles, pwaitHandle: this.#pick([1, 1, 2, 3]) }));
    this.#do(request("MEM_COPY_ASYNC_WAIT", from.device));
  }

  #ask(): void {
    const { handle, pa, device } = this.#chunk();
    const asked = this.#random(4);
    if (asked === 0) {
      this.#do(struct(MemGetExtendedInfo, { memHandle: handle, version: 1 }));
      this.#do(request("MEM_GET_EXTENDED_INFO", device));
    } else if (asked === 1) {
      this.#do(struct(MemGetMcMmapInfoV2, { pa: pa + this.#pick([0, 1, 4096, 2 ** 30]) }));
      this.#do(request("MEM_MC_GET_INFO_V2", device));
    } else if (asked === 2) {
      this.#do(struct(MemGetInfo, { memHandle: handle, mmapOffset: BASE + TEMPORARY, pa: BASE + TEMPORARY + 8 }));
      this.#do(request("MEM_GET_INFO", device));
      this.#do(`r ${TEMPORARY} 16`);
    } else this.#do(`i ${device} ${this.#random(2 ** 16) * 65536 + 0x4e00 + this.#pick([0, 99, 200, 255])} ${AT.argument} 64`);
    this.#do(`r ${AT.argument} 64`);
  }

  #map(): void {
    const chunk = this.#chunk();
    if (chunk.mapped === undefined) {
      const name = this.#maps++ % 4000;
      if (this.#living.some(({ mapped }) => mapped === name)) return;
      const length = this.#pick([chunk.size, chunk.size, chunk.size, 4096, chunk.size + 4096]);
      const result = this.#do(`m ${name} ${chunk.device} ${length} 3 ${chunk.pa + this.#pick([0, 0, 0, 4096])}`);
      this.requests++;
      if (result === "0" && length === chunk.size) chunk.mapped = name;
      else if (result === "0") this.#do(`u ${name}`);
      return;
    }
    const at = this.#random(chunk.size - 64);
    if (this.#random(2) === 0) this.#do(`s ${chunk.mapped} ${at} ${Buffer.from([this.#random(256), this.#random(256)]).toString("hex")}`);
    this.#do(`l ${chunk.mapped} ${at} 64`);
  }

  /** Everything the driver knows: the chunks of each HBM, the sums of the processes. */
  #ledger(): void {
    for (const device of [0, 1]) {
      for (let hbm = 0; hbm < 4; hbm++) {
        this.#do(struct(DumpMemChunks, { hbmIndex: hbm, numEntriesIn: 4000, data: BASE + AT.data }));
        this.#do(request("DUMP_MEM_CHUNKS", device));
        this.#do(`r ${AT.argument} ${DumpMemChunks.byteLength}`);
        this.#do(`h ${AT.data} 96000`);
      }
      this.#do(`w ${TEMPORARY} ${"00".repeat(4096)}`);
      this.#do(struct(GetAppsInfo, { appsInfoFlags: 2, capacity: 16 }, TEMPORARY));
      this.#do(request("DEVICE_GET_ALL_APPS_INFO", device, TEMPORARY));
      this.#do(`r ${TEMPORARY} 600`);
    }
  }
}

const client = skipC === false ? undefined : runtimeCommand("Bun" in globalThis ? "bun" : "deno", "clients/client.ts");

test(`${REQUESTS} random requests get the same answers under the shim as in this process (seed ${SEED})`, { skip: skipShim, timeout: 120_000 }, async () => {
  const options = { ...machineOptions, hbmSize: 2 ** 31 };
  using machine = createFake(options);
  let workload: Workload | undefined;
  using foreign = client === undefined ? compile("clients/client.c") : ready(client as readonly string[]);
  const { stdout, stderr, exitCode } = await runCaptured(foreign.command, options, (pid) => {
    workload = new Workload(localClient(machine, pid), SEED);
    workload.run(REQUESTS);
    return `${workload.script.join("\n")}\n`;
  });
  assert.equal(stderr, "");
  assert.equal(exitCode, 0);
  assert.ok(workload !== undefined);
  const output = stdout.trimEnd().split("\n");
  assert.equal(output.length, workload.output.length);
  const expected = workload.output;
  const different = output.findIndex((line, index) => line !== expected[index]);
  assert.equal(different, -1, `seed ${SEED}, answer ${different}: ${output[different]} instead of ${expected[different]}`);
  assert.ok(workload.requests >= REQUESTS);
  const results = expected.filter((line) => line === "0").length;
  assert.ok(results > REQUESTS / 3, `only ${results} results were success`);
});
