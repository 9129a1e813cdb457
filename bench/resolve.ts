import { STATE_BUFFER_BYTES } from "../lib/abi/architecture.ts";
import { buildNeff } from "../lib/neff_write/build.ts";
import { dmaReferences, parseNeff, readNeff, type ResolvedReference } from "../lib/neff/mod.ts";
import { planNeff } from "../lib/plan/build.ts";
import { type MemRefTable, memRefTable, setPlace, setSize, sizeOf } from "../lib/stage/mem_ref_table.ts";
import { resolveAddress, resolveAddresses } from "../lib/stage/resolve.ts";
import { corpusModels, corpusPath } from "../tests/support/corpus.ts";
import { compileC } from "./support/c.ts";
import type { Suite } from "./support/harness.ts";

const REFERENCES = 65_536;
/** How much longer than C a reference may take. V8 keeps the bounds checks that JavaScriptCore proves away. */
const MANY = "Bun" in globalThis ? 1.5 : 2.5;
const ONE = "Bun" in globalThis ? 3 : 4;

/** The runtime's resolve (`mem_ref_to_addr`) over the same 208-byte records, as its disassembly reads. */
const REFERENCE = `
#include <assert.h>
#include <stdint.h>
struct mem_ref { const char *name; uint32_t type; uint64_t size; uint32_t var_id; uint8_t remote, shared; uint64_t physical_address; char rest[208 - 40]; };
_Static_assert(sizeof(struct mem_ref) == 208, "layout");
static int to_addr(const struct mem_ref *mr, uint64_t offset, uint64_t size, uint64_t *addr) {
  if (mr->size < offset + size) return 2;
  if (mr->type == 7) { assert(offset == 0); *addr = mr->physical_address; return 0; }
  if (mr->physical_address == ~0ull) return 2;
  *addr = offset + mr->physical_address;
  return 0;
}
int resolve_many(const struct mem_ref *all, const uint32_t *ids, const uint64_t *offsets, const uint64_t *sizes, uint64_t *out, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) if (to_addr(&all[ids[i]], offsets[i], sizes[i], &out[i])) return 2;
  return 0;
}
`;

/** Turning variables and offsets into addresses: many at once, and one at a time, against C over the same records. */
export async function run(suite: Suite): Promise<void> {
  const c = compileC(REFERENCE, { resolve_many: ["ptr", "ptr", "ptr", "ptr", "ptr", "u32"] });
  for (const variables of [1000, 100_000]) {
    const table = madeTable(variables);
    const references = madeReferences(table);
    const { ids, offsets, lengths, into } = references;
    const wide = { offsets: BigUint64Array.from(offsets, BigInt), lengths: BigUint64Array.from(lengths, BigInt), into: new BigUint64Array(REFERENCES) };
    const of = `${variables} variables`;
    const floor = c === undefined ? `typed array sum, ${of}` : `C loop, ${of}`;
    if (c === undefined) await suite.row(floor, () => sumOf(offsets, lengths, into), { operations: REFERENCES });
    else await suite.row(floor, () => c["resolve_many"]!(table.records.view, ids, wide.offsets, wide.lengths, wide.into, REFERENCES), { operations: REFERENCES });
    await suite.row(`many, ${of}`, () => resolveAddresses(table, ids, { offsets, lengths }, into), { operations: REFERENCES, floor, atMost: MANY, garbageAtMost: 0 });
    await suite.row(`one at a time, ${of}`, () => oneByOne(table, references), { operations: REFERENCES, floor, atMost: ONE, garbageAtMost: 0 });
    if (c !== undefined && into.some((address, index) => BigInt(address) !== wide.into[index])) throw new Error("C and TypeScript disagree");
  }
  await realReferences(suite, c);
}

/** The references of all transfers of the real models, where the collection is at hand. */
async function realReferences(suite: Suite, c: ReturnType<typeof compileC>): Promise<void> {
  const sets: ReturnType<typeof realSet>[] = [];
  for (const file of corpusModels()) {
    const neff = await readNeff(corpusPath(`neff/${file}`));
    planNeff(neff).forEach((plan, index) => sets.push(realSet(memRefTable(plan), [...dmaReferences(neff.subgraphs[index]!)])));
  }
  const operations = sets.reduce((sum, { ids }) => sum + ids.length, 0);
  if (operations === 0) return;
  const floor = `C loop, ${operations} references of real models`;
  if (c === undefined) return;
  await suite.row(floor, () => {
    for (const { table, ids, wide } of sets) c["resolve_many"]!(table.records.view, ids, wide.offsets, wide.lengths, wide.into, ids.length);
  }, { operations });
  await suite.row(`many, ${operations} references of real models`, () => {
    for (const { table, ids, ranges, into } of sets) resolveAddresses(table, ids, ranges, into);
  }, { operations, floor, atMost: MANY, garbageAtMost: 0 });
  await suite.row(`one at a time, ${operations} references of real models`, () => {
    for (const { table, ids, ranges, into } of sets) oneByOne(table, { ids, ...ranges, into });
  }, { operations, floor, atMost: ONE, garbageAtMost: 0 });
}

/** A subgraph's references; its variables lie end to end, without a device. */
function realSet(table: MemRefTable, references: readonly ResolvedReference[]) {
  let next = 0x4000000000;
  for (let varId = 0; varId < table.count; varId++) {
    const size = Math.max(sizeOf(table, varId), STATE_BUFFER_BYTES);
    setSize(table, varId, size);
    setPlace(table, varId, { address: next });
    next += size;
  }
  const offsets = Float64Array.from(references, ({ reference }) => reference.offset);
  const lengths = Float64Array.from(references, ({ reference }) => reference.extent);
  return {
    table,
    ids: Uint32Array.from(references, ({ variable }) => variable!.varId),
    ranges: { offsets, lengths },
    into: new Float64Array(references.length),
    wide: { offsets: BigUint64Array.from(offsets, BigInt), lengths: BigUint64Array.from(lengths, BigInt), into: new BigUint64Array(references.length) },
  };
}

interface References {
  readonly ids: Uint32Array;
  readonly offsets: Float64Array;
  readonly lengths: Float64Array;
  readonly into: Float64Array;
}

function oneByOne(table: MemRefTable, { ids, offsets, lengths, into }: References): void {
  for (let index = 0; index < ids.length; index++) into[index] = resolveAddress(table, ids[index]!, offsets[index]!, lengths[index]!);
}

function sumOf(offsets: Float64Array, lengths: Float64Array, into: Float64Array): void {
  for (let index = 0; index < REFERENCES; index++) into[index] = offsets[index]! + lengths[index]!;
}

/** A table of variables with addresses, without a device. */
function madeTable(count: number): MemRefTable {
  const variables = Array.from({ length: count - 1 }, (_, index) => ({ name: `v${index}`, type: "virtual" as const, size: 4096 + 64 * (index % 1000), offset: 4096 * index }));
  const neff = parseNeff(buildNeff({ compression: "none", packager: 1, subgraphs: [{ variables: [{ name: "out", type: "output", size: 4096 }, ...variables] }] }));
  const table = memRefTable(planNeff(neff)[0]!);
  for (let varId = 0; varId < count; varId++) setPlace(table, varId, { address: 0x4000000000 + 4096 * varId });
  return table;
}

function madeReferences(table: MemRefTable): References {
  let state = 1;
  const random = (limit: number) => (state = (state * 48271) % 2147483647) % limit;
  return {
    ids: Uint32Array.from({ length: REFERENCES }, () => random(table.count)),
    offsets: Float64Array.from({ length: REFERENCES }, () => random(2048)),
    lengths: Float64Array.from({ length: REFERENCES }, () => random(2048)),
    into: new Float64Array(REFERENCES),
  };
}
