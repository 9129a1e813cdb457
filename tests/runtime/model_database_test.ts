import assert from "node:assert/strict";
import { test } from "node:test";
import { NrtError } from "../../lib/runtime/errors.ts";
import { createHandleMinter, ModelDatabase, Resident } from "../../lib/runtime/model_database.ts";
import { runAsHolder } from "../../lib/runtime/process_state.ts";

const status = (code: number, text: RegExp) => (error: unknown) => error instanceof NrtError && error.status === code && text.test(error.message);

function database(): ModelDatabase<string> {
  return new ModelDatabase<string>({ device: 0, core: 3 });
}

/** Whether a promise has settled once everything that can run has run. */
async function settled(promise: Promise<unknown>): Promise<boolean> {
  let done = false;
  promise.then(() => (done = true), () => (done = true));
  await new Promise((resolve) => setTimeout(resolve, 5));
  return done;
}

test("handles 1001 and 1002 are found on the core they were added to, others are not (C-063, C-069)", () => {
  const models = database();
  models.add(new Resident("a", 1001, "a.neff"));
  models.add(new Resident("b", 1002, "b.neff"));
  assert.equal(models.has(1001), true);
  assert.equal(models.has(1003), false);
  assert.deepEqual(models.models.map((one) => one.model), ["a", "b"]);
  assert.equal(models.count, 2);
});

test("a handle is inserted once; a refused insert leaves the core usable (C-066, C-067, C-068)", async () => {
  const models = database();
  const [first, second] = [new Resident("first", 7, "m"), new Resident("second", 7, "m")];
  const outcomes = await Promise.allSettled([first, second].map(async (one) => models.add(one)));
  assert.deepEqual(outcomes.map((one) => one.status), ["fulfilled", "rejected"]);
  assert.throws(() => models.add(second), status(3, /Model: 7 already in the DB of nd0:nc3/));
  using reference = models.retain(7);
  assert.equal(reference.model, "first");
  models.add(new Resident("third", 8, "m"));
  assert.equal(models.count, 2);
});

test("a lookup takes a reference and a release drops it (C-070, C-079)", () => {
  const models = database();
  const resident = new Resident("m", 1001, "m");
  models.add(resident);
  assert.equal(resident.refCount, 0, "a fresh model has none");
  const references = [models.retain(1001), models.retain(1001), models.retain(1001)];
  assert.equal(resident.refCount, 3);
  references.forEach((reference, index) => {
    reference.release();
    reference.release();
    assert.equal(resident.refCount, 2 - index);
  });
});

test("an unknown handle is refused, also a second time (C-071, C-077)", async () => {
  const models = database();
  assert.throws(() => models.retain(1001), status(1, /nd0:nc3: Unknown model 1001/));
  await assert.rejects(models.remove(1001), status(1, /Unknown model: 1001/));
  models.add(new Resident("m", 1001, "m"));
  assert.equal((await models.remove(1001)).model, "m");
  await assert.rejects(models.remove(1001), status(1, /Unknown model: 1001/));
});

test("removal unlinks at once and completes when the last reference drops (C-073, C-074, C-076)", async () => {
  const models = database();
  const resident = new Resident("m", 1001, "m");
  models.add(resident);
  const [a, b] = [models.retain(1001), models.retain(1001)];
  const removal = models.remove(1001);
  assert.throws(() => models.retain(1001), status(1, /Unknown model/));
  assert.equal(a.model, "m", "the holder keeps it");
  assert.equal(await settled(removal), false);
  a.release();
  assert.equal(await settled(removal), false);
  b.release();
  assert.equal(await removal, resident);
  assert.equal(resident.refCount, 0);
});

test("while one model drains, others are added, used and removed on the same core (C-075)", async () => {
  const models = database();
  models.add(new Resident("slow", 1, "slow"));
  const held = models.retain(1);
  const removal = models.remove(1);
  models.add(new Resident("other", 2, "other"));
  models.retain(2).release();
  assert.equal((await models.remove(2)).model, "other");
  assert.equal(await settled(removal), false);
  held.release();
  await removal;
});

test("removing a model whose reference the caller holds itself is refused and changes nothing", async () => {
  const models = database();
  const resident = new Resident("m", 1001, "m.neff");
  models.add(resident);
  await runAsHolder("the execution of m.neff", async (holder) => {
    using reference = models.retain(1001);
    assert.equal(reference.holder, holder);
    const text = /the execution of m.neff holds a reference to it itself.*never end \(1 held\)/;
    await assert.rejects(models.remove(1001), status(1, text));
    await runAsHolder("an inner execution", async () => {
      await assert.rejects(models.remove(1001), status(1, text), "an execution inside of it as well");
    });
    assert.equal(models.has(1001), true);
  });
  assert.equal((await models.remove(1001)).model, "m", "afterwards it goes");
});

test("a removal with a time limit reports who holds the model and can be taken up again", async () => {
  const models = database();
  const resident = new Resident("m", 1001, "m.neff");
  models.add(resident);
  const held = runAsHolder("a slow reader", () => models.retain(1001));
  await assert.rejects(models.remove(1001, { timeoutMs: 5 }), status(5, /1 references are still held after 5 ms \(a slow reader\)/));
  assert.equal(models.has(1001), false);
  const again = resident.drained();
  held.release();
  await again;
});

test("the database holds 2^32 + 1 under the 32 bits a record stores", () => {
  const minter = createHandleMinter(2n ** 32n - 1n);
  const models = database();
  const handle = minter.next();
  models.add(new Resident("m", handle, "m"));
  assert.equal(models.retain(handle).handle, handle);
});
