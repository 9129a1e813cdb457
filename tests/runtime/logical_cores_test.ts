import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { geometries } from "../../lib/abi/architecture.ts";
import type { Environment } from "../../lib/runtime/environment.ts";
import { NrtError } from "../../lib/runtime/errors.ts";
import {
  coresOnHbm, logicalCoreCount, logicalCoreHbm, logicalCoreSize, logicalCoresOnHbm, logicalPlaceOf, physicalCoreAt, physicalCoresOf,
} from "../../lib/runtime/logical_cores.ts";

const size = (product: "trn1" | "inf2" | "trn2" | "trn3", env: Environment = {}, requested?: number) =>
  logicalCoreSize({ architecture: geometries[product].architecture, coresPerDevice: geometries[product].coresPerDevice, env, requested });

function refused(pattern: RegExp): (error: unknown) => boolean {
  return (error) => error instanceof NrtError && error.status === 2 && pattern.test(error.message);
}

test("a logical core has two physical cores by default: 4 per trn2 device, 8 with size 1 (C-008)", () => {
  assert.equal(size("trn2"), 2);
  assert.equal(logicalCoreCount(8, size("trn2")), 4);
  assert.equal(logicalCoreCount(8, size("trn2", { NEURON_LOGICAL_NC_CONFIG: "1" })), 8);
});

test("architecture 2 forces size 1, whatever the environment says (C-146)", () => {
  for (const product of ["trn1", "inf2"] as const) {
    assert.equal(size(product), 1);
    assert.equal(size(product, { NEURON_RT_VIRTUAL_CORE_SIZE: "2" }), 1);
    assert.equal(size(product, { NEURON_LOGICAL_NC_CONFIG: "nonsense" }), 1);
    assert.equal(size(product, {}, 2), 1);
  }
});

test("else a variable decides, the documented one first, else 2 (C-147)", () => {
  assert.equal(size("trn2", { NEURON_RT_VIRTUAL_CORE_SIZE: "1" }), 1);
  assert.equal(size("trn2", { NEURON_LOGICAL_NC_CONFIG: "2", NEURON_RT_VIRTUAL_CORE_SIZE: "1" }), 2);
  assert.equal(size("trn3", { NEURON_LOGICAL_NC_CONFIG: "1", NEURON_RT_VIRTUAL_CORE_SIZE: "2" }), 1);
  assert.equal(size("trn2", { NEURON_LOGICAL_NC_CONFIG: "1" }, 2), 2, "the caller's wish comes first");
  assert.equal(logicalCoreSize({ architecture: 3, coresPerDevice: 1, env: {} }), 1, "a device with a single core");
});

test("a size of 0, or one that does not divide the cores, is refused (C-148)", () => {
  assert.throws(() => size("trn2", { NEURON_LOGICAL_NC_CONFIG: "0" }), refused(/logical core of 0/));
  assert.throws(() => size("trn2", {}, 3), refused(/3/));
  assert.throws(() => logicalCoreSize({ architecture: 3, coresPerDevice: 5, env: {}, requested: 2 }), refused(/5 cores cannot be divided into logical cores of 2/));
  for (const text of ["-1", "1.5", "two", ""]) {
    assert.throws(() => size("trn2", { NEURON_LOGICAL_NC_CONFIG: text }), refused(/not a whole number/));
  }
});

test("a size must be a power of two up to the cores of the device (C-149)", () => {
  for (const wrong of [3, 16]) {
    assert.throws(() => size("trn2", { NEURON_RT_VIRTUAL_CORE_SIZE: String(wrong) }),
      refused(new RegExp(`Logical core size \\(${wrong}\\) must be a power of two and less than or equal to 8`)));
  }
});

test("sizes 4 and 8 are refused: only 2 is supported beyond 1 (C-150, C-151)", () => {
  for (const wrong of [4, 8]) {
    assert.throws(() => size("trn2", {}, wrong),
      refused(new RegExp(`Only LNC Size of 2 is supported at this moment on this instance type. Requested LNC Size ${wrong}`)));
  }
});

test("numbering logical cores needs their size", () => {
  for (const wrong of [() => logicalPlaceOf(0, 0), () => physicalCoreAt(0, 0, 0), () => logicalCoreCount(8, 0), () => physicalCoresOf(0, 0)]) {
    assert.throws(wrong, refused(/lnc context has not been initialized yet/));
  }
});

test("a position outside the logical core is refused", () => {
  assert.throws(() => physicalCoreAt(0, 2, 2), refused(/Invalid sg id 2 for LNC size 2/));
  assert.throws(() => physicalCoreAt(0, -1, 2), refused(/Invalid sg id -1/));
});

test("physical to logical and back is the identity, and the logical cores partition a device", () => {
  fc.assert(fc.property(fc.nat(511), fc.constantFrom(1, 2), (physical, lnc) => {
    const { logical, position } = logicalPlaceOf(physical, lnc);
    assert.ok(position < lnc);
    assert.equal(physicalCoreAt(logical, position, lnc), physical);
  }));
  for (const lnc of [1, 2]) {
    const all = Array.from({ length: logicalCoreCount(8, lnc) }, (_, logical) => physicalCoresOf(logical, lnc)).flat();
    assert.deepEqual(all, [0, 1, 2, 3, 4, 5, 6, 7]);
  }
});

test("the default HBM of core i is i on trn1 and i/2 later; logical cores share it accordingly (C-154)", () => {
  assert.deepEqual(coresOnHbm(geometries.trn1, 1), [1]);
  assert.deepEqual(coresOnHbm(geometries.trn2, 1), [2, 3]);
  assert.deepEqual(logicalCoresOnHbm(geometries.trn2, 1, 1), [2, 3], "with size 1 two logical cores share one HBM");
  assert.deepEqual(logicalCoresOnHbm(geometries.trn2, 3, 2), [3]);
  assert.equal(logicalCoreHbm(geometries.trn3, 3, 2), 3);
  assert.equal(logicalCoreHbm(geometries.trn3, 3, 1), 1);
});
