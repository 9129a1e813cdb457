import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { NeuronError } from "../../ffi/error.ts";
import { KbinMemRef } from "../../lib/abi/runtime_kbin.ts";
import { readNeff } from "../../lib/neff/mod.ts";
import { planNeff } from "../../lib/plan/build.ts";
import { type Plan, planDebug, planIds, planName, planPayload, recordAt } from "../../lib/plan/plan.ts";
import { decodePlanFile, encodePlanFile, openPlan } from "../../lib/plan/plan_file.ts";
import { corpusModels, corpusPath, skipWithoutCorpus } from "../support/corpus.ts";
import { everyType, model } from "./support.ts";

const neff = model(everyType());
const plans = planNeff(neff);
const file = encodePlanFile({ target: "cayman", plans });

test("a plan file gives the same plans back, byte for byte, and the same bytes again (P-007)", () => {
  const back = decodePlanFile(file);
  assert.equal(back.target, "cayman");
  assert.deepEqual(back.plans.map(({ name }) => name), ["sg00", "sg01"]);
  back.plans.forEach((plan, index) => assert.deepEqual(plan.bytes, plans[index]?.bytes));
  assert.deepEqual(encodePlanFile(back), file);
});

test("the first plan stands at byte 0, so that a program with the structs reads it directly", () => {
  const view = new DataView(file.buffer);
  assert.equal(view.getUint32(16, true), plans[0]?.count);
  assert.deepEqual(file.subarray(0, plans[0]?.setBytes), plans[0]?.bytes.subarray(0, plans[0].setBytes));
});

test("the plans of all real models go through a file unchanged", { skip: skipWithoutCorpus }, async () => {
  for (const name of corpusModels()) {
    const real = await readNeff(corpusPath(`neff/${name}`));
    const before = planNeff(real);
    const after = decodePlanFile(encodePlanFile({ target: real.target, plans: before })).plans;
    assert.deepEqual(after.map(({ bytes }) => bytes), before.map(({ bytes }) => bytes), name);
  }
});

/** Prints every record of a plan file's plans as the C structs see them. */
const C_SOURCE = `
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct mem_ref { uint32_t type; uint64_t name; uint64_t size, alignment; uint32_t var_id; char dtype[16]; uint64_t shape[8];
  uint64_t debug, buffer;
  union { struct { uint32_t id; uint8_t io; } ptr; struct { uint64_t offset; uint32_t backing; } virt;
          struct { uint32_t length; uint64_t list; } list; struct { uint32_t subgraph, id; } remote; } u; };
struct set { uint64_t local, shared; uint32_t nmem; struct mem_ref mem[]; };
struct payload { uint64_t offset, size, member; };
struct debug { char prefix[512]; uint32_t pipe; };
struct entry { uint64_t offset, set_bytes, bytes, name; };
struct footer { uint64_t directory; uint32_t count, version; char target[8], magic[8]; };
_Static_assert(sizeof(struct mem_ref) == 152 && sizeof(struct set) == 24 && sizeof(struct footer) == 32, "layout");
int main(int argc, char **argv) {
  FILE *f = fopen(argv[1], "rb"); fseek(f, 0, SEEK_END); long n = ftell(f); rewind(f);
  char *all = malloc(n); if (fread(all, 1, n, f) != (size_t)n) return 1;
  struct footer *footer = (struct footer *)(all + n - 32);
  printf("%.8s %u %u %.8s\\n", footer->magic, footer->version, footer->count, footer->target);
  for (uint32_t p = 0; p < footer->count; p++) {
    struct entry *e = (struct entry *)(all + footer->directory) + p;
    char *base = all + e->offset; struct set *s = (struct set *)base;
    printf("%s %lu %lu %u %lu\\n", base + e->name, s->local, s->shared, s->nmem, e->set_bytes);
    for (uint32_t i = 0; i < s->nmem; i++) {
      struct mem_ref *m = &s->mem[i];
      printf("%u|%s|%lu|%lu|%u|%s|", m->type, base + m->name, m->size, m->alignment, m->var_id, m->dtype);
      for (int d = 0; d < 8; d++) printf("%lu,", m->shape[d]);
      if (m->debug) printf("|%s:%u", ((struct debug *)(base + m->debug))->prefix, ((struct debug *)(base + m->debug))->pipe);
      if (m->buffer) { struct payload *b = (struct payload *)(base + m->buffer); printf("|%lu+%lu %s", b->offset, b->size, base + b->member); }
      if (m->type == 7) printf("|%u %u", m->u.ptr.id, m->u.ptr.io);
      if (m->type == 8) printf("|%lu %u", m->u.virt.offset, m->u.virt.backing);
      if (m->type == 9 || m->type == 10) for (uint32_t k = 0; k < m->u.list.length; k++) printf("|%u", ((uint32_t *)(base + m->u.list.list))[k]);
      if (m->type == 11) printf("|%u %u", m->u.remote.subgraph, m->u.remote.id);
      printf("\\n");
    }
  }
  return 0;
}
`;

const compiler = ["gcc", "cc", "clang"].find((name) => spawnSync(name, ["--version"]).status === 0);

test("a C program with the structs reads the same values from a plan file (P-046, P-047, P-048, P-049, P-050)", { skip: compiler === undefined ? "no C compiler" : false }, () => {
  const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-plan-"));
  try {
    writeFileSync(join(folder, "read.c"), C_SOURCE);
    writeFileSync(join(folder, "plan.kbin"), file);
    const built = spawnSync(compiler as string, ["-O1", "-o", join(folder, "read"), join(folder, "read.c")], { encoding: "utf8" });
    assert.equal(built.status, 0, built.stderr);
    const { stdout } = spawnSync(join(folder, "read"), [join(folder, "plan.kbin")], { encoding: "utf8" });
    assert.equal(stdout, ["KBINPLAN 1 2 cayman", ...plans.flatMap(linesOf)].join("\n") + "\n");
    console.log(`C program: ${plans.reduce((sum, { count }) => sum + count, 0)} records read`);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

/** What the C program should print for a plan. */
function linesOf(plan: Plan): string[] {
  const records = Array.from({ length: plan.count }, (_, varId) => {
    const record = KbinMemRef.over(plan.view, recordAt(varId));
    const shape = Array.from({ length: 8 }, (_, index) => `${record.$get("shape", index)},`).join("");
    const debug = planDebug(plan, varId);
    const payload = planPayload(plan, varId);
    const u32 = (at: number) => plan.view.getUint32(recordAt(varId) + at, true);
    const union = record.mrType === 7 ? `|${u32(136)} ${u32(140) & 0xff}`
      : record.mrType === 8 ? `|${plan.view.getBigUint64(recordAt(varId) + 136, true)} ${u32(144)}`
      : record.mrType === 9 || record.mrType === 10 ? [...planIds(plan, varId)].map((id) => `|${id}`).join("")
      : record.mrType === 11 ? `|${u32(136)} ${u32(140)}`
      : "";
    return `${record.mrType}|${planName(plan, varId)}|${record.size}|${record.alignment}|${record.varId}|${record.dtype}|${shape}` +
      (debug === null ? "" : `|${debug.prefix}:${debug.pipe}`) +
      (payload === null ? "" : `|${payload.offset}+${payload.size} ${payload.member}`) + union;
  });
  return [`${plan.name} ${plan.localScratchpadBytes} ${plan.sharedScratchpadBytes} ${plan.count} ${plan.setBytes}`, ...records];
}

test("a file that is cut, empty or something else is refused with one line", () => {
  for (const bytes of [new Uint8Array(0), new Uint8Array(31), new Uint8Array(4096), file.subarray(0, file.length - 1), file.subarray(8), new TextEncoder().encode("not a plan ".repeat(50))]) {
    assert.throws(() => decodePlanFile(bytes), (error: unknown) => error instanceof NeuronError && /^Cannot read the plan: [^\n]+$/.test(error.message));
  }
});

test("a file with any byte changed is read or refused, never read outside itself", () => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  console.log(`seed ${seed}`);
  let refused = 0;
  fc.assert(fc.property(fc.nat(file.length - 1), fc.nat(255), fc.nat(3), (at, value, spread) => {
    const bytes = file.slice();
    for (let index = 0; index <= spread; index++) bytes[(at + index * 8) % bytes.length] = value;
    try {
      for (const plan of decodePlanFile(bytes).plans) {
        for (let varId = 0; varId < plan.count; varId++) {
          planName(plan, varId);
          planPayload(plan, varId);
          planDebug(plan, varId);
          if ([9, 10].includes(plan.view.getUint32(recordAt(varId), true))) planIds(plan, varId);
        }
      }
    } catch (error) {
      assert.ok(error instanceof NeuronError, String(error));
      refused++;
    }
  }), { numRuns: 3000, seed });
  assert.ok(refused > 100, `only ${refused} refused`);
});

test("a record that contradicts the set is refused: type, id, scratchpad area, list, remote", () => {
  const broken = (change: (view: DataView) => void, index = 0): (() => unknown) => () => {
    const bytes = plans[index]!.bytes.slice();
    change(new DataView(bytes.buffer));
    return openPlan(bytes, plans[index]!.nameAt);
  };
  openPlan(plans[0]!.bytes, plans[0]!.nameAt);
  assert.throws(broken((view) => view.setUint32(recordAt(0), 12, true)), /type 12/);
  assert.throws(broken((view) => view.setUint32(recordAt(0), 0, true)), /type 0/);
  assert.throws(broken((view) => view.setUint32(recordAt(1) + 32, 5, true)), /record 1 has id 5/);
  assert.throws(broken((view) => view.setUint32(recordAt(5) + 136, 4096, true)), /ends at 8192 of a scratchpad area of 4096/);
  assert.throws(broken((view) => view.setUint32(recordAt(10) + 136, 2 ** 20, true)), /list of record 10 leads outside/);
  assert.throws(broken((view) => view.setUint32(16, 10 ** 6, true)), /1000000 records do not fit/);
  assert.throws(broken((view) => view.setUint32(recordAt(4) + 24, 3, true)), /alignment 3/);
});
