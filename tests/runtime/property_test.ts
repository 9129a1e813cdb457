import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { Model } from "../../lib/runtime/model.ts";
import type { Neuron } from "../../lib/runtime/neuron.ts";
import type { Tensor } from "../../lib/runtime/tensor.ts";
import { ledgerDifference, ledgers, MiB, open, smallModel } from "./support.ts";

/** Runs per mode, and steps per run. */
const RUNS = Number(process.env["NEURON_DMEM_RUNS"] ?? 12);
const STEPS = 40;
const SEED = Number(process.env["NEURON_DMEM_SEED"] ?? Date.now() % 2 ** 31);

/** Models of different weight, subgraphs and scratchpad; every variable's place is checked at each step. */
const MODELS = [
  smallModel({ name: "tiny", virtuals: [] }),
  smallModel({ name: "one page", virtuals: [[0, MiB], [4 * MiB, 2 * MiB]] }),
  smallModel({ name: "three pages", virtuals: [[0, 512 * MiB], [512 * MiB, 1024 * MiB]] }),
  smallModel({ name: "both cores", subgraphs: 2, weights: 3 * MiB, virtuals: [[0, 600 * MiB]] }),
  smallModel({ name: "straddler", subgraphs: 2, virtuals: [[100 * MiB, 700 * MiB]], more: [{ name: "tmp", type: "tmp-buf", size: 5000 }] }),
];

type Step =
  | { readonly kind: "load"; readonly core: number; readonly model: number }
  | { readonly kind: "unload" | "execute" | "finish" | "close" | "write" | "check"; readonly which: number }
  | { readonly kind: "tensor"; readonly core: number; readonly size: number }
  | { readonly kind: "slice"; readonly which: number; readonly part: number };

const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("load" as const), core: fc.nat(15), model: fc.nat(MODELS.length - 1) }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("unload" as const), which: fc.nat(20) }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("tensor" as const), core: fc.nat(15), size: fc.integer({ min: 1, max: 40_000 }) }) },
  { weight: 6, arbitrary: fc.record({ kind: fc.constantFrom("execute", "finish", "close", "write", "check") as fc.Arbitrary<"execute">, which: fc.nat(20) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("slice" as const), which: fc.nat(20), part: fc.nat(100) }) },
);

interface Loaded {
  readonly model: Model;
  readonly addresses: ReadonlyMap<string, number>;
  /** Ends of executions that hold it. */
  readonly runs: { readonly end: () => void; readonly done: Promise<unknown> }[];
  unloading: Promise<void> | undefined;
}

interface View {
  readonly tensor: Tensor;
  /** Bytes of the storage, shared by all its views. */
  readonly bytes: Uint8Array;
}

/** The program under test and the plain model of it. */
class World {
  readonly neuron: Neuron;
  readonly start;
  readonly loaded: Loaded[] = [];
  readonly views: View[] = [];
  lastHandle = 1000;

  constructor(neuron: Neuron) {
    this.neuron = neuron;
    this.start = ledgers(neuron);
  }

  async run(step: Step): Promise<void> {
    switch (step.kind) {
      case "load":
        return this.load(step.core, step.model);
      case "tensor": {
        const core = this.neuron.logicalCores[step.core % this.neuron.logicalCores.length]!;
        const view = { tensor: core.tensor({ name: "t", size: step.size }), bytes: new Uint8Array(step.size) };
        await view.tensor.fill(0);
        this.views.push(view);
        return;
      }
      case "slice": {
        const view = this.pick(this.views, step.which);
        if (view === undefined) return;
        const offset = Math.floor(view.tensor.size * step.part / 101);
        this.views.push({ tensor: view.tensor.slice(offset, Math.ceil((view.tensor.size - offset) / 2)), bytes: view.bytes });
        return;
      }
      case "close": {
        const view = this.pick(this.views, step.which);
        if (view !== undefined) this.views.splice(this.views.indexOf(view), 1)[0]!.tensor.close();
        return;
      }
      case "write": {
        const view = this.pick(this.views, step.which);
        if (view === undefined || !view.tensor.storage!.idle("write")) return;
        const bytes = Uint8Array.from({ length: Math.min(100, view.tensor.size) }, (_, index) => (index * 7 + step.which) & 255);
        await view.tensor.write(bytes);
        view.bytes.set(bytes, view.tensor.offset);
        return;
      }
      case "check": {
        const view = this.pick(this.views, step.which);
        if (view === undefined || !view.tensor.storage!.idle("read")) return;
        const { offset, size } = view.tensor;
        assert.deepEqual(new Uint8Array(await view.tensor.read()), view.bytes.subarray(offset, offset + size));
        return;
      }
      case "execute":
        return this.execute(this.pick(this.loaded.filter((one) => one.unloading === undefined), step.which));
      case "finish": {
        const found = this.pick(this.loaded.flatMap((one) => one.runs.map((run) => ({ one, run }))), step.which);
        found?.run.end();
        if (found?.one.runs.length === 0) await found.one.unloading;
        return;
      }
      case "unload":
        return this.unload(this.pick(this.loaded.filter((one) => one.unloading === undefined), step.which));
    }
  }

  pick<T>(from: readonly T[], which: number): T | undefined {
    return from[which % Math.max(1, from.length)];
  }

  async load(core: number, index: number): Promise<void> {
    const logical = this.neuron.logicalCores[core % this.neuron.logicalCores.length]!;
    const neff = MODELS[index]!;
    const before = ledgers(this.neuron);
    let model: Model;
    try {
      model = await logical.load(neff, { io: index % 2 === 0 ? "bind" : "tensors" });
    } catch (error) {
      const full = (error as { status?: number }).status === 4;
      const tooFew = neff.subgraphs.length > logical.cores.length;
      assert.ok(full || tooFew, String(error));
      assert.deepEqual(ledgerDifference(before, ledgers(this.neuron)), {}, "a failed load leaves nothing");
      return;
    }
    for (const handle of model.handles) {
      assert.ok(handle > this.lastHandle, "handles rise and are never used again");
      this.lastHandle = handle;
    }
    this.loaded.push({ model, addresses: addressesOf(model), runs: [], unloading: undefined });
  }

  execute(one: Loaded | undefined): void {
    if (one === undefined) return;
    const reference = one.model.parts.map((part) => part.core.models.retain(part.handle, undefined));
    const { promise, resolve } = Promise.withResolvers<void>();
    const run = {
      end: () => {
        for (const held of reference) held.release();
        one.runs.splice(one.runs.indexOf(run), 1);
        resolve();
      },
      done: promise,
    };
    one.runs.push(run);
  }

  async unload(one: Loaded | undefined): Promise<void> {
    if (one === undefined) return;
    const others = this.loaded.filter((other) => other !== one).map((other) => other.model.memory());
    one.unloading = one.model.unload().then(() => void this.loaded.splice(this.loaded.indexOf(one), 1));
    if (one.runs.length === 0) await one.unloading;
    else {
      for (const part of one.model.parts) assert.equal(part.core.models.has(part.handle), false, "unlinked before the drain");
      assert.equal(one.model.state, "unloading");
    }
    assert.deepEqual(this.loaded.filter((other) => other !== one).map((other) => other.model.memory()), others, "other models keep their bytes");
  }

  /** The invariants; checked after every step. */
  check(): void {
    this.checkModels();
    this.checkScratchpads();
    this.checkTensors();
    this.checkLedgers();
  }

  checkModels(): void {
    for (const core of this.neuron.cores) {
      const expected = this.loaded.filter((one) => one.unloading === undefined).flatMap((one) => one.model.parts).filter((part) => part.core === core).map((part) => part.handle);
      assert.deepEqual(core.models.models.map((resident) => resident.handle), expected.sort((a, b) => a - b));
    }
    for (const { model, addresses, runs } of this.loaded) {
      assert.deepEqual(addressesOf(model), addresses, "addresses of a loaded model never change");
      assert.equal(model.refCount, runs.length * model.parts.length);
    }
  }

  checkScratchpads(): void {
    for (const { scratchpad, ...core } of this.neuron.cores) {
      const claims = this.loaded.flatMap((one) => one.model.parts).filter((part) => part.core.globalCore === core.globalCore).map((part) => part.staged.scratchpad.pages);
      const most = Math.max(0, ...claims);
      assert.deepEqual(scratchpad.references, Array.from({ length: most }, (_, page) => claims.filter((pages) => pages > page).length));
      for (const address of scratchpad.addresses) assert.equal(address % 4096, 0);
      if (scratchpad.mode.contiguous) scratchpad.addresses.forEach((address, page) => page > 0 && assert.equal(address, scratchpad.addresses[page - 1]! - scratchpad.mode.pageBytes));
    }
  }

  checkTensors(): void {
    const storages = new Map(this.views.map(({ tensor }) => [tensor.storage!, 0]));
    for (const { tensor } of this.views) {
      const storage = tensor.storage!;
      storages.set(storage, storages.get(storage)! + 1);
      assert.ok(tensor.offset >= 0 && tensor.offset + tensor.size <= storage.allocatedSize);
      assert.equal(tensor.address, storage.memory!.address + tensor.offset);
    }
    for (const [storage, views] of storages) assert.equal(storage.refCount, views);
    for (const logical of this.neuron.logicalCores) {
      const made = this.loaded.flatMap(({ model }) => [model.bound("input0")?.storage ?? [], model.bound("output0")?.storage ?? []].flat());
      const bytes = [...storages.keys(), ...made].filter((storage) => storage.logicalCore === logical.index).reduce((sum, storage) => sum + storage.allocatedSize, 0);
      const { ledger } = logical.owner.deviceMemory;
      assert.equal(ledger.used(logical.owner.core, 12), bytes, "tensors are charged to the owner");
      for (const other of logical.cores.slice(1)) assert.equal(ledger.used(other.core, 12), 0);
    }
  }

  checkLedgers(): void {
    for (const core of this.neuron.cores) {
      const live = [core.global, ...this.loaded.flatMap((one) => one.model.parts).filter((part) => part.core === core).map((part) => part.staged.allocator)];
      const bytes = live.flatMap((allocator) => [...allocator.live]).reduce((sum, memory) => sum + memory.allocatedSize, 0);
      assert.equal(core.usedBytes, bytes, "the ledger's total is what the lists hold");
    }
    for (const logical of this.neuron.logicalCores) {
      assert.equal(logical.memoryStats().usedBytes, logical.cores.reduce((sum, core) => sum + core.usedBytes, 0));
    }
  }

  async end(): Promise<void> {
    for (const one of this.loaded.slice()) while (one.runs.length > 0) one.runs[0]!.end();
    for (const { tensor } of this.views) tensor.close();
    for (const one of this.loaded.slice()) await (one.unloading ?? one.model.unload());
    assert.deepEqual(ledgerDifference(this.start, ledgers(this.neuron)), {}, "everything ends where it began");
  }
}

function addressesOf(model: Model): ReadonlyMap<string, number> {
  const found = new Map<string, number>();
  model.parts.forEach((part, index) => {
    for (const { name, address } of part.staged.variables()) if (address !== null) found.set(`${index} ${name}`, address);
  });
  return found;
}

for (const mode of ["paged, logical cores of two", "paged, logical cores of one", "contiguous"] as const) {
  test(`whatever is loaded, run, unloaded and allocated on 2 devices of 8 cores, every invariant holds (${mode})`, { timeout: 120_000 }, async () => {
    console.log(`# runtime property, ${mode}: seed ${SEED}, ${RUNS} runs of up to ${STEPS} steps`);
    await fc.assert(fc.asyncProperty(fc.array(step, { minLength: STEPS / 2, maxLength: STEPS }), async (steps) => {
      using neuron = open({
        fake: { product: "trn2", devices: 2, hbmSize: 6 * 1024 * MiB },
        lnc: mode === "paged, logical cores of one" ? 1 : 2,
        env: mode === "contiguous" ? { NEURON_RT_CONTIGUOUS_SCRATCHPAD: "1" } : {},
      });
      const world = new World(neuron);
      for (const one of steps) {
        await world.run(one);
        world.check();
      }
      await world.end();
    }), { seed: SEED, numRuns: RUNS });
  });
}
