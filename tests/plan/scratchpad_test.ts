import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { PlanError } from "../../lib/plan/error.ts";
import { arenaLayout, packPiece, pageAdvice, pageOf, pagesFor, type PageClaim, Scratchpad, type ScratchpadMode, scratchpadMode } from "../../lib/plan/scratchpad.ts";

const MIB = 2 ** 20;
const paged = (pageBytes: number): ScratchpadMode => ({ pageBytes, contiguous: false, note: null });
const contiguous: ScratchpadMode = { pageBytes: 64 * MIB, contiguous: true, note: null };

/** A page of the test's HBM. */
interface TestPage {
  readonly address: number;
  release(): void;
}

/** An HBM that gives out pages: independent ones upwards, contiguous ones downwards, and remembers what is out. */
class Hbm {
  readonly out = new Set<number>();
  readonly freed: number[] = [];
  requests = 0;
  failAt = Infinity;
  failure: Error = Object.assign(new Error("no room"), { status: 4 });
  mapped = 0;
  #next = 2 ** 32;
  #lowest = 2 ** 40;
  skew = 0;

  page = (bytes: number): TestPage => this.#give((this.#next += bytes) + this.skew);
  contiguousPage = (bytes: number): TestPage => {
    while (this.#lowest < 2 ** 40 && !this.out.has(this.#lowest)) this.#lowest += bytes;
    const page = this.#give(this.#lowest - bytes);
    this.#lowest -= bytes;
    return page;
  };
  map = (lowest: TestPage) => {
    this.mapped++;
    return { address: lowest.address + 2 ** 45, close: () => void this.mapped-- };
  };

  #give(address: number): TestPage {
    if (++this.requests >= this.failAt) throw this.failure;
    this.out.add(address);
    return {
      address,
      release: () => {
        assert.ok(this.out.delete(address), "a page is freed twice");
        this.freed.push(address);
      },
    };
  }
}

test("the packer's table: a piece starts at the total unless it would cross a page it could have started on", () => {
  const rows: [number, number, boolean, number, number][] = [[0, 250, false, 0, 250], [50, 40, false, 50, 90], [50, 50, false, 50, 100], [50, 51, false, 100, 151], [50, 51, true, 50, 101], [50, 0, false, 50, 50]];
  for (const [current, size, isContiguous, offset, next] of rows) {
    assert.deepEqual(packPiece({ pageBytes: 100, contiguous: isContiguous, note: null }, current, size), { offset, next });
  }
});

test("a packed piece no larger than a page never crosses one, never lies before the total, and wastes less than a page", () => {
  const size = fc.integer({ min: 0, max: 1000 });
  fc.assert(fc.property(fc.integer({ min: 1, max: 300 }), size, size, fc.boolean(), (pageBytes, current, bytes, isContiguous) => {
    const { offset, next } = packPiece({ pageBytes, contiguous: isContiguous, note: null }, current, bytes);
    assert.equal(next, offset + bytes);
    assert.ok(offset >= current && offset - current < pageBytes);
    if (isContiguous) assert.equal(offset, current);
    else if (bytes > 0 && bytes <= pageBytes) assert.equal(Math.floor(offset / pageBytes), Math.floor((next - 1) / pageBytes));
  }), { numRuns: 5000 });
});

test("the mode follows switch, architecture, logical core size and driver, and says why not", () => {
  const base = { architecture: 3, lncSize: 2, driverContiguous: true };
  assert.deepEqual(scratchpadMode(base), { pageBytes: 512 * MIB, contiguous: false, note: null });
  assert.deepEqual(scratchpadMode({ ...base, contiguous: true, pageBytes: 2048 * MIB }), { pageBytes: 64 * MIB, contiguous: true, note: null });
  assert.deepEqual(scratchpadMode({ ...base, contiguous: true, architecture: 2, lncSize: 1 }).contiguous, true);
  for (const architecture of [3, 4]) assert.equal(scratchpadMode({ ...base, architecture, lncSize: 1, contiguous: true }).note, "Contiguous Scratchpad feature is disabled on LNC 1");
  assert.equal(scratchpadMode({ ...base, contiguous: true, driverContiguous: false }).note, "Contiguous Scratchpad feature is disabled due to incompatible driver");
  for (const pageBytes of [0, 2 ** 32, -1, 1.5]) assert.throws(() => scratchpadMode({ ...base, pageBytes }), (error: unknown) => error instanceof PlanError && error.status === 2 && /Invalid scratchpad page size/.test(error.message));
  assert.equal(scratchpadMode({ ...base, pageBytes: 2 ** 32 - 1 }).pageBytes, 2 ** 32 - 1);
});

test("1024 pages are accepted, 1025 refused before anything is allocated", () => {
  assert.equal(pagesFor(paged(100), 102_400), 1024);
  assert.throws(() => pagesFor(paged(100), 102_401), /requested: 1025, max: 1024/);
  const hbm = new Hbm();
  assert.throws(() => new Scratchpad(hbm, paged(4096)).reserve(4096 * 1024 + 1), (error: unknown) => error instanceof PlanError && error.status === 4);
  assert.equal(hbm.requests, 0);
});

test("arenas: the shared part is the largest, first, on the first core; local parts on their own cores", () => {
  assert.deepEqual(arenaLayout(paged(100), [{ localBytes: 60, sharedBytes: 30 }, { localBytes: 80, sharedBytes: 50 }]), {
    sharedBytes: 50,
    cores: [{ localOffset: 100, totalBytes: 160 }, { localOffset: 0, totalBytes: 80 }],
  });
  assert.deepEqual(arenaLayout(contiguous, [{ localBytes: 60, sharedBytes: 30 }]).cores, [{ localOffset: 30, totalBytes: 90 }]);
});

test("a range lies in one page of the paged mode, anywhere in the contiguous one, and never beyond the arena", () => {
  assert.deepEqual([[0, 100], [99, 1], [99, 2], [100, 100], [199, 1], [200, 1], [150, 60]].map(([offset, size]) => pageOf(paged(100), 2, offset!, size!)), [0, 0, -1, 1, 1, -1, -1]);
  const mode = { ...contiguous, pageBytes: 100 };
  assert.deepEqual([[0, 100], [99, 2], [100, 100], [0, 200], [0, 201], [199, 1], [200, 0]].map(([offset, size]) => pageOf(mode, 2, offset!, size!)), [1, 1, 0, 1, -1, 0, -1]);
});

/** The documented example: two models with two variables each, in MiB. */
const A = { need: 1536, variables: [[0, 512], [512, 1024]] as const };
const B = { need: 1636, variables: [[0, 100], [100, 1536]] as const };
const privates = (reservation: PageClaim<TestPage>, variables: readonly (readonly [number, number])[]) =>
  variables.filter(([offset, size]) => reservation.find(offset * MIB, size * MIB) === undefined).map(([, size]) => size);

test("the documented example with pages of 512 MiB: 2048 shared, 1024 and 1536 private, the fourth page goes with B", () => {
  const hbm = new Hbm();
  const arena = new Scratchpad(hbm, paged(512 * MIB));
  const a = arena.reserve(A.need * MIB);
  const b = arena.reserve(B.need * MIB);
  assert.deepEqual(arena.references, [2, 2, 2, 1]);
  assert.equal(arena.byteLength, 2048 * MIB);
  assert.deepEqual([privates(a, A.variables), privates(b, B.variables)], [[1024], [1536]]);
  assert.equal(a.find(0, 512 * MIB), b.find(0, 100 * MIB));
  b.release();
  assert.deepEqual(arena.references, [1, 1, 1]);
  a.release();
  assert.deepEqual([arena.references, hbm.out.size], [[], 0]);
});

test("the documented example with one page of 2048 MiB: nothing private, one page for both", () => {
  const arena = new Scratchpad(new Hbm(), paged(2048 * MIB));
  const [a, b] = [arena.reserve(A.need * MIB), arena.reserve(B.need * MIB)];
  assert.deepEqual([arena.references, arena.byteLength, privates(a, A.variables), privates(b, B.variables)], [[2], 2048 * MIB, [], []]);
});

test("the documented example with contiguous pages: 24 and 26 pages, each model resolves against its own number", () => {
  const hbm = new Hbm();
  const arena = new Scratchpad(hbm, contiguous);
  const a = arena.reserve(A.need * MIB);
  const addresses = arena.addresses;
  const b = arena.reserve(B.need * MIB);
  assert.deepEqual([a.pages, b.pages, arena.byteLength], [24, 26, 1664 * MIB]);
  assert.equal(a.find(0, 1)?.address, addresses[23]);
  assert.equal(a.find(1535 * MIB, MIB)?.address, addresses[0]);
  assert.equal(b.find(0, 1)?.address, arena.addresses[25]);
  assert.deepEqual([privates(a, A.variables), privates(b, B.variables)], [[], []]);
  b.release();
  assert.equal(a.find(0, 1)?.address, addresses[23]);
  assert.deepEqual(hbm.freed, [...hbm.freed].sort((x, y) => x - y));
});

test("the advice rounds the largest private variable up to 512 MiB, in the runtime's words", () => {
  assert.deepEqual(pageAdvice(1536 * MIB), { pageMebibytes: 1536, settings: ['NEURON_CC_FLAGS="--hbm-scratchpad-page-size=1536"', "NEURON_SCRATCHPAD_PAGE_SIZE=1536"] });
  assert.deepEqual([1, 512 * MIB, 512 * MIB + 1].map((bytes) => pageAdvice(bytes).pageMebibytes), [512, 512, 1024]);
});

test("a page that is not 4 KiB aligned is given back and refused", () => {
  const hbm = new Hbm();
  hbm.skew = 512;
  const arena = new Scratchpad(hbm, paged(4096));
  assert.throws(() => arena.reserve(1), /Page needs to be 4K aligned/);
  assert.deepEqual([hbm.out.size, arena.references], [0, []]);
});

test("a failed reservation leaves pages and references as they were; a failed mapping too", () => {
  const hbm = new Hbm();
  const arena = new Scratchpad(hbm, paged(4096));
  const first = arena.reserve(2 * 4096);
  hbm.failAt = hbm.requests + 3;
  assert.throws(() => arena.reserve(9 * 4096), /no room/);
  assert.deepEqual([arena.references, hbm.out.size], [[1, 1], 2]);
  first.release();
  const other = new Hbm();
  other.map = () => {
    throw new Error("no mapping");
  };
  const down = new Scratchpad(other, contiguous);
  assert.throws(() => down.reserve(3 * 64 * MIB), /no mapping/);
  assert.deepEqual([down.references, other.out.size], [[], 0]);
});

test("a contiguous arena that cannot grow keeps what it has: exhausted memory and a taken neighbour are ceilings, other failures are not", () => {
  const hbm = new Hbm();
  const arena = new Scratchpad(hbm, contiguous);
  hbm.failAt = 3;
  const cut = arena.reserve(4 * 64 * MIB);
  assert.deepEqual([cut.pages, cut.cut, arena.references], [2, true, [1, 1]]);
  assert.equal(cut.find(127 * MIB, MIB) === undefined, false);
  assert.equal(cut.find(127 * MIB, 2 * MIB), undefined);
  hbm.failure = Object.assign(new Error("broken"), { status: 1 });
  assert.throws(() => arena.reserve(4 * 64 * MIB), /broken/);
  assert.deepEqual(arena.references, [1, 1]);

  const shared = new Hbm();
  const [one, two] = [new Scratchpad(shared, contiguous), new Scratchpad(shared, contiguous)];
  const [r1, r2] = [one.reserve(64 * MIB), two.reserve(64 * MIB)];
  const grown = one.reserve(2 * 64 * MIB);
  assert.deepEqual([grown.pages, grown.cut, shared.out.size], [1, true, 2]);
  for (const reservation of [r1, r2, grown]) reservation.release();
  assert.equal(shared.out.size, 0);
});

test("the host sees contiguous pages from the model's own lowest page on, and no pages of the paged mode", () => {
  const hbm = new Hbm();
  const arena = new Scratchpad(hbm, contiguous);
  const small = arena.reserve(64 * MIB);
  const large = arena.reserve(3 * 64 * MIB);
  assert.equal(small.va - 2 ** 45, arena.addresses[0]);
  assert.equal(large.va - 2 ** 45, arena.addresses[2]);
  assert.equal(hbm.mapped, 2);
  large.release();
  large.release();
  assert.equal(hbm.mapped, 1);
  small.release();
  assert.equal(hbm.mapped, 0);
  assert.equal(new Scratchpad(new Hbm(), paged(4096)).reserve(1).va, 0);
});

/** One step of the property below: load a model of so many bytes, or unload one of those loaded. */
const steps = fc.array(fc.oneof(fc.record({ load: fc.integer({ min: 0, max: 12 * 4096 }) }), fc.record({ unload: fc.nat(20) })), { maxLength: 40 });

for (const isContiguous of [false, true]) {
  test(`any interleaving of loads and unloads keeps the arena's invariants (${isContiguous ? "contiguous" : "paged"})`, () => {
    const seed = Math.floor(Math.random() * 2 ** 31);
    console.log(`seed ${seed}`);
    const mode = { pageBytes: 4096, contiguous: isContiguous, note: null };
    fc.assert(fc.property(steps, (sequence) => {
      const hbm = new Hbm();
      const arena = new Scratchpad(hbm, mode);
      const loaded: { reservation: PageClaim<TestPage>; places: (number | undefined)[] }[] = [];
      const placesOf = (reservation: PageClaim<TestPage>) => Array.from({ length: 13 }, (_, page) => reservation.find(page * 4096, 1)?.address);
      for (const step of sequence) {
        if ("load" in step) {
          const reservation = arena.reserve(step.load);
          assert.equal(reservation.pages, Math.ceil(step.load / 4096));
          loaded.push({ reservation, places: placesOf(reservation) });
        } else {
          loaded.splice(step.unload % Math.max(1, loaded.length), 1)[0]?.reservation.release();
        }
        const most = Math.max(0, ...loaded.map(({ reservation }) => reservation.pages));
        assert.deepEqual(arena.references, Array.from({ length: most }, (_, index) => loaded.filter(({ reservation }) => reservation.pages > index).length));
        assert.deepEqual(hbm.out, new Set(arena.addresses));
        for (const { reservation, places } of loaded) {
          assert.deepEqual(placesOf(reservation), places);
          assert.ok(places.every((place) => place === undefined || hbm.out.has(place)));
          if (isContiguous) places.slice(0, reservation.pages).forEach((place, page) => assert.equal(place, places[0]! + page * 4096));
        }
      }
      for (const { reservation } of loaded) reservation.release();
      assert.deepEqual([hbm.out.size, arena.references, hbm.mapped], [0, [], 0]);
    }), { numRuns: 500, seed });
  });
}

test("the order in which models are loaded does not change what the arena holds, nor what is private", () => {
  const models = fc.array(fc.record({ size: fc.integer({ min: 1, max: 50_000 }), variables: fc.array(fc.tuple(fc.nat(50_000), fc.integer({ min: 1, max: 9000 })), { maxLength: 6 }) }), { minLength: 1, maxLength: 6 });
  fc.assert(fc.property(models, fc.integer({ min: 1, max: 12 }), (set, pages) => {
    const load = (order: typeof set) => {
      const arena = new Scratchpad(new Hbm(), paged(pages * 1024 * 4));
      const lost = order.map(({ size, variables }) => {
        const reservation = arena.reserve(size);
        return [size, variables.filter(([offset, length]) => offset + length <= size && reservation.find(offset, length) === undefined)] as const;
      });
      return [arena.references, lost.map((entry) => JSON.stringify(entry)).sort()];
    };
    assert.deepEqual(load(set), load(set.toReversed()));
  }), { numRuns: 300 });
});

test("a multiple of a page size makes no more variables private, and wastes less than a page more", () => {
  const variables = fc.array(fc.tuple(fc.nat(100_000), fc.integer({ min: 1, max: 30_000 })), { minLength: 1, maxLength: 20 });
  fc.assert(fc.property(variables, fc.integer({ min: 1, max: 8 }), (list, factor) => {
    const need = Math.max(...list.map(([offset, size]) => offset + size));
    const privateBytes = (pageBytes: number) => {
      const reservation = new Scratchpad(new Hbm(), paged(pageBytes)).reserve(need);
      return list.filter(([offset, size]) => reservation.find(offset, size) === undefined).reduce((sum, [, size]) => sum + size, 0);
    };
    assert.ok(privateBytes(4096 * factor) <= privateBytes(4096));
    assert.ok(pagesFor(paged(4096 * factor), need) * 4096 * factor - need < 4096 * factor);
  }), { numRuns: 300 });
});
