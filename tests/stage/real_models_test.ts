import assert from "node:assert/strict";
import { test } from "node:test";
import { dmaReferences, type Neff, readNeff } from "../../lib/neff/mod.ts";
import { planNeff } from "../../lib/plan/build.ts";
import { stageCores } from "../../lib/stage/stage_part.ts";
import { arenaPlaces, loadItems, planItems, tensorItems } from "../../lib/plan/footprint.ts";
import { stage, type StageOptions } from "../../lib/stage/stage.ts";
import type { StagedModel, StagedSubgraph } from "../../lib/stage/staged_model.ts";
import { corpusFacts, corpusModels, corpusPath, skipWithoutCorpus } from "../support/corpus.ts";
import { productOf, TestDevice } from "../plan/device.ts";

const skip = skipWithoutCorpus;

const neffs = new Map<string, Neff>();

/** A real model, read once. */
async function read(file: string): Promise<Neff> {
  const neff = neffs.get(file) ?? await readNeff(corpusPath(`neff/${file}`));
  neffs.set(file, neff);
  return neff;
}

/** Stages every real model on a fake of its own target. */
async function eachModel(check: (context: { file: string; neff: Neff; bench: TestDevice; staged: StagedModel }) => void, options: StageOptions = {}): Promise<void> {
  const benches = new Map<string, TestDevice>();
  try {
    for (const file of corpusModels()) {
      const neff = await read(file);
      const product = productOf(neff.target);
      const bench = benches.get(product) ?? new TestDevice(product);
      benches.set(product, bench);
      using staged = stage(planNeff(neff), neff, stageCores(bench.memory, 0, neff.subgraphs.length), options);
      check({ file, neff, bench, staged });
      staged.unload();
      assert.ok(bench.clean, `${file} left something on the device`);
    }
  } finally {
    for (const bench of benches.values()) bench.close();
  }
}

/** The references of a subgraph's transfers as arrays. */
function referencesOf(neff: Neff, staged: StagedSubgraph) {
  const subgraph = neff.subgraphs.find(({ name }) => name === staged.name)!;
  const all = [...dmaReferences(subgraph)];
  return {
    all,
    ids: Uint32Array.from(all, ({ variable }) => variable!.varId),
    offsets: Float64Array.from(all, ({ reference }) => reference.offset),
    lengths: Float64Array.from(all, ({ reference }) => reference.extent),
  };
}

test("all variable references of the real models' transfers resolve inside their variables, one at a time and many at once (P-124, P-126)", { skip }, async () => {
  let references = 0;
  const counted = new Set<string>();
  await eachModel(({ file, neff, staged }) => {
    for (const subgraph of staged.subgraphs) {
      const { all, ids, offsets, lengths } = referencesOf(neff, subgraph);
      const into = new Float64Array(all.length);
      subgraph.resolveMany(ids, { offsets, lengths }, into);
      all.forEach(({ reference, variable }, index) => {
        const base = subgraph.resolve(variable!.varId);
        assert.equal(into[index], base + reference.offset);
        assert.equal(subgraph.resolve(variable!.varId, reference.offset, reference.extent), into[index]);
        assert.ok(into[index]! + reference.extent <= base + subgraph.variable(variable!.varId).sizeBytes);
      });
      // The wrapped model is in the collection twice, plain and in its container.
      if (!file.endsWith(".hlo")) references += all.length;
    }
    counted.add(file);
  }, { io: "tensors" });
  console.log(`${references} references of ${counted.size} real models resolve inside their variables`);
  assert.equal(references, 69_651);
});

test("every variable of every real model resolves at 0, 1 and its last byte, and not beyond (P-119)", { skip }, async () => {
  let variables = 0;
  await eachModel(({ staged }) => {
    for (const subgraph of staged.subgraphs) {
      for (const { varId, address, sizeBytes, type } of subgraph.variables()) {
        if (type === "dge-table") {
          assert.throws(() => subgraph.resolve(varId), /no single address/);
          continue;
        }
        for (const offset of [0, 1, sizeBytes - 1]) assert.equal(subgraph.resolve(varId, offset, 1), address! + offset);
        assert.equal(subgraph.resolve(varId, sizeBytes, 0), address! + sizeBytes);
        assert.throws(() => subgraph.resolve(varId, sizeBytes, 1), /invalid offset/);
        variables++;
      }
    }
  });
  console.log(`${variables} variables of real models`);
});

test("the two-subgraph mariana model's remotes are 0x3000000000 and 0x2000000000 (P-109)", { skip }, async () => {
  const seen: string[] = [];
  await eachModel(({ staged }) => {
    for (const subgraph of staged.subgraphs) {
      for (const { name, type, address } of subgraph.variables()) if (type === "remote") seen.push(`${subgraph.name} ${name} 0x${address!.toString(16)}`);
    }
  });
  assert.deepEqual([...new Set(seen)], ["sg00 SB{1} 0x3000000000", "sg01 SB{0} 0x2000000000"]);
});

test("real scratch: the two overlapping variables of the attention model share an address, and 278 variables lie at their planned offsets (P-094, P-054)", { skip }, async () => {
  let placed = 0;
  await eachModel(({ file, neff, staged }) => {
    staged.subgraphs.forEach((subgraph, index) => {
      const virtual = neff.subgraphs[index]!.byId.filter((variable) => variable.type === "virtual");
      const page = subgraph.scratchpad.memories[0];
      for (const { varId, backingOffset } of virtual) {
        assert.equal(subgraph.resolve(varId), page!.address + backingOffset);
        if (!file.endsWith(".hlo")) placed++;
      }
      if (file.includes("attn_baseline_bf16_s1024") && index === 0) assert.equal(new Set(virtual.map(({ varId }) => subgraph.resolve(varId))).size, 1);
    });
  });
  assert.equal(placed, 278);
});

test("every constant of every real model is on the device byte for byte (P-098)", { skip }, async () => {
  let constants = 0;
  await eachModel(({ neff, bench, staged }) => {
    for (const { payload, memory } of staged.constants) {
      const { bytes } = neff.members.get(payload!.member)!;
      assert.deepEqual(bench.peek(memory.address, payload!.size), bytes!.slice(payload!.offset, payload!.offset + payload!.size));
      constants++;
    }
  });
  console.log(`${constants} constants compared`);
});

test("the real models' pointer tables hold the resolved addresses of their variables in device memory, in list order (P-063, P-064)", { skip }, async () => {
  let entries = 0;
  await eachModel(({ bench, staged }) => {
    for (const subgraph of staged.subgraphs) {
      for (const table of subgraph.tables()) {
        table.ids.forEach((varId, index) => {
          assert.equal(bench.peekAddress(table.address! + 8 * index), BigInt(subgraph.resolve(varId)));
          entries++;
        });
      }
    }
  });
  console.log(`${entries} table entries read back`);
});

test("what the footprint lists is what the ledger counts, for every real model, both ways of placing inputs and outputs", { skip }, async () => {
  for (const io of ["tensors", "plan"] as const) {
    await eachModel(({ file, neff, staged }) => {
      const plans = planNeff(neff);
      const mode = { pageBytes: staged.subgraphs[0]!.scratchpad.pageBytes, contiguous: false, note: null };
      const places = arenaPlaces(mode, plans);
      const sums: Record<string, number> = {};
      const add = (usage: string, size: number) => (sums[usage] = (sums[usage] ?? 0) + size);
      plans.forEach((plan, index) => {
        for (const { usage, size } of planItems(plan, { mode, place: places[index]!, placeIo: io === "plan" })) add(usage, size);
        if (places[index]!.localPages > 0) add("SCRATCHPAD", places[index]!.localPages * mode.pageBytes);
      });
      if (io === "tensors") for (const { size } of tensorItems(plans)) add("TENSOR", size);
      assert.deepEqual(sums, staged.memory().byUsage, file);
    }, { io });
  }
});

test("the code a load allocates is the sum of a subgraph's binaries, and the ring estimate gives the published values", { skip }, async () => {
  const rings = new Map<number, number>();
  const facts = new Map(corpusFacts().map((fact) => [fact["file"], fact["subgraphs"] as Record<string, { bin_bytes: number }>]));
  for (const file of corpusModels()) {
    const neff = await read(file);
    for (const subgraph of neff.subgraphs) {
      const items = loadItems(neff, subgraph);
      const sum = (ring: boolean) => items.filter(({ kind }) => (kind === "rings") === ring).reduce((total, { size }) => total + size, 0);
      const fact = facts.get(file)?.[subgraph.name];
      if (fact !== undefined) assert.equal(sum(false), fact.bin_bytes, file);
      rings.set(subgraph.dmaDescriptors, sum(true));
      assert.ok(items.filter(({ kind }) => kind === "instructions").every(({ alignment, usage }) => alignment === 0x8000 && usage.startsWith("INSTR_")));
    }
  }
  assert.deepEqual([6, 897, 8232].map((entries) => rings.get(entries)), [27_648, 4_149_760, 37_933_056]);
});
