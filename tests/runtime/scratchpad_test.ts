import assert from "node:assert/strict";
import { test } from "node:test";
import { DriverFeature } from "../../lib/abi/driver_enums.ts";
import type { OpenNeuronOptions } from "../../lib/runtime/open_neuron.ts";
import type { Model } from "../../lib/runtime/model.ts";
import { ledgerDifference, ledgers, machineOf, MiB, open, smallModel, status } from "./support.ts";

const GiB = 1024 * MiB;
/** Pages of 512 MiB, as runtimes before the contiguous scratchpad had them. */
const PAGED: OpenNeuronOptions = { env: { NEURON_RT_CONTIGUOUS_SCRATCHPAD: "0" } };
/** The documented pair: (0, 512), (512, 1024) and (0, 100), (100, 1536), in MiB. */
const A = (target = "cayman") => smallModel({ name: "A", target, engines: false, virtuals: [[0, 512 * MiB], [512 * MiB, 1024 * MiB]] });
const B = (target = "cayman") => smallModel({ name: "B", target, engines: false, virtuals: [[0, 100 * MiB], [100 * MiB, 1536 * MiB]] });

/** Private bytes: usage 16. */
const privateBytes = (model: Model) => model.memory().filter((row) => row.usage === "SCRATCHPAD_NOT_SHARED").reduce((sum, row) => sum + row.bytes, 0);

test("the documented pair with 512 MiB pages: references 2, 2, 2, 1, 2048 shared, 2560 private (C-142, C-143)", async () => {
  using neuron = open(PAGED);
  const core = neuron.logicalCore(0);
  const { scratchpad } = core.owner;
  const start = ledgers(neuron);
  const a = await core.load(A());
  assert.deepEqual(scratchpad.references, [1, 1, 1]);
  const b = await core.load(B());
  assert.deepEqual(scratchpad.references, [2, 2, 2, 1]);
  assert.equal(scratchpad.byteLength, 2048 * MiB);
  assert.equal(privateBytes(a), 1024 * MiB);
  assert.equal(privateBytes(b), 1536 * MiB);
  assert.equal(neuron.devices[0]!.memory.ledger.used(0, 11), 2048 * MiB);
  assert.equal(neuron.devices[0]!.memory.ledger.used(0, 16), 2560 * MiB);
  assert.equal(a.resolve("v0_sg0"), b.resolve("v0_sg0"), "A1 and B1 share page 0");
  assert.equal(b.advice()?.pageMebibytes, 1536);
  assert.deepEqual(b.advice()?.settings, ['NEURON_CC_FLAGS="--hbm-scratchpad-page-size=1536"', "NEURON_SCRATCHPAD_PAGE_SIZE=1536"]);
  const fourth = scratchpad.addresses[3];
  await b.unload();
  assert.deepEqual(scratchpad.references, [1, 1, 1]);
  assert.equal(scratchpad.addresses.includes(fourth!), false, "the fourth page went with B");
  await a.unload();
  assert.deepEqual(scratchpad.references, []);
  assert.deepEqual(ledgerDifference(start, ledgers(neuron)), {});
});

test("the documented pair with 2 GiB pages: one page, references 2, nothing private", async () => {
  using neuron = open({ env: { ...PAGED.env, NEURON_SCRATCHPAD_PAGE_SIZE: "2048" } });
  const core = neuron.logicalCore(0);
  const [a, b] = [await core.load(A()), await core.load(B())];
  assert.deepEqual(core.owner.scratchpad.references, [2]);
  assert.equal(core.owner.scratchpad.byteLength, 2 * GiB);
  assert.equal(privateBytes(a) + privateBytes(b), 0);
  assert.equal(a.advice(), null);
});

const CONTIGUOUS: OpenNeuronOptions = { fake: "trn2", env: { NEURON_RT_CONTIGUOUS_SCRATCHPAD: "1" } };

test("the documented pair in contiguous mode: 24 and 26 pages of 64 MiB, each model affine over its own (C-141)", async () => {
  using neuron = open(CONTIGUOUS);
  const core = neuron.logicalCore(0);
  const { scratchpad } = core.owner;
  const a = await core.load(A());
  assert.equal(scratchpad.references.length, 24);
  const pages = [...scratchpad.addresses];
  assert.ok(pages.every((page, index) => index === 0 || page === pages[index - 1]! - 64 * MiB), "pages grow downwards");
  assert.equal(a.resolve("v0_sg0"), pages[23], "offset 0 lies in the last page");
  assert.equal(a.resolve("v1_sg0", 1023 * MiB), pages[0]! + 63 * MiB, "offset 1535 MiB lies in the first");
  const before = ["v0_sg0", "v1_sg0"].map((name) => a.resolve(name));
  const b = await core.load(B());
  assert.equal(scratchpad.references.length, 26);
  assert.equal(b.resolve("v0_sg0"), scratchpad.addresses[25]);
  assert.equal(b.resolve("v1_sg0", 1535 * MiB) - b.resolve("v0_sg0"), 1635 * MiB);
  assert.deepEqual(["v0_sg0", "v1_sg0"].map((name) => a.resolve(name)), before, "A did not move");
  assert.equal(privateBytes(a) + privateBytes(b), 0);
  await b.unload();
  assert.deepEqual(["v0_sg0", "v1_sg0"].map((name) => a.resolve(name)), before);
  assert.equal(scratchpad.references.length, 24);
});

test("a big model unloaded before a small one leaves the small one's pages where they are", async () => {
  using neuron = open(CONTIGUOUS);
  const core = neuron.logicalCore(0);
  const big = await core.load(A());
  const small = await core.load(smallModel({ engines: false, virtuals: [[0, MiB], [60 * MiB, 8 * MiB]] }));
  const address = small.resolve("v0_sg0");
  assert.equal(address, core.owner.scratchpad.addresses[1], "it resolves against its own two pages");
  await big.unload();
  assert.deepEqual(core.owner.scratchpad.references, [1, 1]);
  assert.equal(small.resolve("v0_sg0"), address);
  assert.equal(small.resolve("v1_sg0"), address + 60 * MiB, "a variable may cross a page");
});

test("contiguous pages are mapped into the host: the mapping shows what lies at the device address", async () => {
  using neuron = open(CONTIGUOUS);
  const core = neuron.logicalCore(0);
  const model = await core.load(smallModel({ engines: false, virtuals: [[0, MiB], [100 * MiB, MiB]] }));
  const { va, memories } = model.parts[0]!.staged.scratchpad;
  assert.ok(va > 0);
  const page = memories[0]!;
  page.write(Uint8Array.from([7, 8, 9]), { at: (100 - 64) * MiB });
  using mapping = neuron.devices[0]!.device.mapAddress(model.resolve("v0_sg0"), 2 * 64 * MiB);
  assert.deepEqual(mapping.bytes(100 * MiB, 3), Uint8Array.from([7, 8, 9]));
});

test("contiguous mode needs the driver and no switch against it, and is off on trn2 and trn3 with logical cores of one (C-139)", () => {
  const mode = (options: OpenNeuronOptions) => {
    using neuron = open({ ...CONTIGUOUS, ...options });
    return { ...neuron.core(0).scratchpad.mode, notes: neuron.notes.map((note) => note.message) };
  };
  assert.deepEqual(mode({}), { pageBytes: 64 * MiB, contiguous: true, note: null, notes: [] });
  assert.equal(mode({ fake: "trn1" }).contiguous, true, "architecture 2 qualifies");
  const single = mode({ lnc: 1 });
  assert.equal(single.contiguous, false);
  assert.deepEqual(single.notes, ["Contiguous Scratchpad feature is disabled on LNC 1"]);
  assert.deepEqual(mode({ env: {} }), { pageBytes: 64 * MiB, contiguous: true, note: null, notes: [] }, "current runtimes switch it on by themselves");
  assert.deepEqual(mode({ env: {}, lnc: 1 }), { pageBytes: 512 * MiB, contiguous: false, note: null, notes: [] }, "what nobody asked for is not reported");
  assert.equal(mode({ env: { NEURON_RT_CONTIGUOUS_SCRATCHPAD: "0" } }).contiguous, false);
  assert.equal(mode({ env: {}, scratchpad: { pageBytes: 512 * MiB } }).contiguous, false, "a page size that a program gives is meant");
  assert.deepEqual(mode({ env: { NEURON_SCRATCHPAD_PAGE_SIZE: "1024" } }).notes, [
    "NEURON_SCRATCHPAD_PAGE_SIZE=1024 is set and has no effect: the scratchpad is contiguous (NEURON_RT_CONTIGUOUS_SCRATCHPAD=0 makes it paged)",
  ]);
  assert.deepEqual(mode({ fake: "trn1", env: { NEURON_LOGICAL_NC_CONFIG: "2" } }).notes, ["NEURON_LOGICAL_NC_CONFIG=2 is set and has no effect: trn1 has logical cores of 1 physical core"]);
  assert.equal(mode({ env: { NEURON_RT_DBG_EXPERIMENTAL_CONTIGUOUS_SCRATCHPAD: "1" } }).contiguous, true);
  assert.equal(mode({ env: { NEURON_RT_DBG_EXPERIMENTAL_CONTIGUOUS_SCRATCHPAD: "1", NEURON_RT_CONTIGUOUS_SCRATCHPAD: "0" } }).contiguous, false);
  assert.equal(mode({ env: { NEURON_RT_CONTIGUOUS_SCRATCHPAD: "1", NEURON_SCRATCHPAD_PAGE_SIZE: "512" } }).pageBytes, 64 * MiB, "the page size is given");
  const machine = machineOf({ product: "trn2" });
  using neuron = open({ kernel: machine.kernel(), env: {} });
  assert.equal(neuron.devices[0]!.device.hasFeature(DriverFeature.CONTIGUOUS_SCRATCHPAD), true);
});

test("a paged variable lies in page offset/size at offset mod size; one that would straddle is private (C-140)", async () => {
  using neuron = open(PAGED);
  const core = neuron.logicalCore(0);
  const model = await core.load(smallModel({ engines: false, virtuals: [[0, MiB], [512 * MiB + 4096, MiB], [511 * MiB, 2 * MiB]] }));
  const { addresses } = core.owner.scratchpad;
  assert.equal(model.resolve("v0_sg0"), addresses[0]);
  assert.equal(model.resolve("v1_sg0"), addresses[1]! + 4096);
  assert.equal(model.memory().find((row) => row.usage === "SCRATCHPAD_NOT_SHARED")?.bytes, 2 * MiB);
});

test("a page two models use is counted in the page, not on its memory, and survives the first one's unload (C-050, C-157)", async () => {
  using neuron = open();
  const core = neuron.logicalCore(0);
  const first = await core.load(smallModel({ virtuals: [[0, MiB]] }));
  const second = await core.load(smallModel({ virtuals: [[0, 2 * MiB]] }));
  const { scratchpad } = core.owner;
  const page = second.parts[0]!.staged.scratchpad.memories[0]!;
  assert.deepEqual(scratchpad.references, [2]);
  assert.equal(page.refCount, 1);
  const address = second.resolve("v0_sg0");
  await first.unload();
  assert.equal(second.resolve("v0_sg0"), address);
  assert.equal(page.closed, false);
  await second.unload();
  assert.equal(page.closed, true);
});

test("1024 pages are accepted and 1025 refused, with the runtime's numbers", async () => {
  using neuron = open({ fake: "trn3", env: {}, scratchpad: { pageBytes: MiB } });
  const core = neuron.logicalCore(0);
  const start = ledgers(neuron);
  const model = await core.load(smallModel({ target: "mariana", engines: false, virtuals: [[1023 * MiB, MiB]] }));
  assert.equal(core.owner.scratchpad.references.length, 1024);
  await assert.rejects(core.load(smallModel({ target: "mariana", engines: false, virtuals: [[1024 * MiB, 4096]] })), status(4, /requested: 1025, max: 1024/));
  assert.equal(core.owner.scratchpad.references.length, 1024);
  await model.unload();
  assert.deepEqual(ledgerDifference(start, ledgers(neuron)), {});
});

test("a scratchpad that does not fit leaves nothing behind", async () => {
  using neuron = open({ ...PAGED, fake: { product: "trn2", hbmSize: 5 * GiB } });
  const core = neuron.logicalCore(0);
  const first = await core.load(A());
  const before = ledgers(neuron);
  await assert.rejects(core.load(smallModel({ virtuals: [[4 * GiB, MiB]] })), status(4, /./));
  assert.deepEqual(ledgerDifference(before, ledgers(neuron)), {});
  assert.deepEqual(core.owner.scratchpad.references, [1, 1, 1]);
  await first.unload();
});
