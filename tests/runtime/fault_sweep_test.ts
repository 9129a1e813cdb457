import assert from "node:assert/strict";
import { test } from "node:test";
import type { Kernel } from "../../ffi/kernel.ts";
import { NeuronError } from "../../ffi/error.ts";
import { resetAlignmentSupport } from "../../lib/dmem/allocation.ts";
import { withRequestFaults, withRequestLog } from "../../lib/driver/layers.ts";
import type { Model } from "../../lib/runtime/model.ts";
import { chunksOn, ledgerDifference, ledgers, machineOf, MiB, open, smallModel } from "./support.ts";

/** The requests a load issues; frees are left out: the original ignores their result too. */
const REQUESTS = ["MEM_ALLOC_V2MT64", "MEM_ALLOC_V2MT", "MEM_GET_PA", "MEM_GET_EXTENDED_INFO", "MEM_COPY_ASYNC64", "MEM_COPY_ASYNC_WAIT", "MEM_BUF_COPY64", "MEM_COPY64", "MEM_GET_INFO"] as const;

const FIRST = smallModel({ name: "first", subgraphs: 2, engines: false, virtuals: [[0, 4096]] });
const SECOND = smallModel({ name: "second", subgraphs: 2, weights: 20_000, virtuals: [[0, MiB], [511 * MiB, 2 * MiB]], more: [{ name: "tmp", type: "tmp-buf", size: 5000 }] });

/** A kernel whose calls go through `faulty` once it is armed. */
function armable(kernel: Kernel, faulty: Kernel): Kernel & { armed: boolean } {
  const switching = {
    kind: kernel.kind,
    armed: false,
    open: (path: string, flags: number) => kernel.open(path, flags),
    close: (fd: number) => kernel.close(fd),
    ioctl: (fd: number, request: number, address: number) => (switching.armed ? faulty : kernel).ioctl(fd, request, address),
    mmap: (fd: number, length: number, protection: number, flags: number, offset: number) => (switching.armed ? faulty : kernel).mmap(fd, length, protection, flags, offset),
    readText: (path: string) => kernel.readText(path),
    list: (path: string) => kernel.list(path),
  };
  return switching;
}

for (const errno of ["ENOMEM", "EIO", "EINVAL"] as const) {
  test(`whichever request of a load of two models answers ${errno}, each model is there whole or not at all`, { timeout: 120_000 }, async () => {
    let failures = 0;
    let nth = 1;
    for (; ; nth += 1) {
      resetAlignmentSupport();
      using machine = machineOf({ product: "trn2" });
      const plain = machine.kernel();
      const faulty = withRequestFaults(plain, [{ request: REQUESTS, errno, nth }]);
      const kernel = armable(plain, faulty);
      const neuron = open({ kernel, env: { NEURON_RT_VISIBLE_CORES: "0" } });
      const resident = await neuron.logicalCore(0).load(smallModel({ name: "resident", virtuals: [[0, 4096]] }));
      const before = { ledgers: ledgers(neuron), chunks: chunksOn(machine), address: resident.resolve("weights0"), rows: resident.memory() };
      kernel.armed = true;
      const models: Model[] = [];
      for (const neff of [FIRST, SECOND]) {
        const held = ledgers(neuron);
        try {
          models.push(await neuron.logicalCore(0).load(neff));
        } catch (error) {
          assert.ok(error instanceof NeuronError, `${errno} ${nth}: ${error}`);
          assert.deepEqual(ledgerDifference(held, ledgers(neuron)), {}, `${errno} at request ${nth} left bytes behind`);
          failures += 1;
        }
      }
      const { fired } = faulty;
      kernel.armed = false;
      for (const model of models) {
        assert.equal(model.state, "loaded");
        for (const part of model.parts) assert.equal(part.core.models.has(part.handle), true);
      }
      assert.equal(neuron.core(0).models.count, 1 + models.length);
      assert.equal(resident.resolve("weights0"), before.address);
      assert.deepEqual(resident.memory(), before.rows);
      for (const model of models) await model.unload();
      assert.deepEqual(ledgerDifference(before.ledgers, ledgers(neuron)), {});
      assert.deepEqual(chunksOn(machine), before.chunks, `${errno} at request ${nth} left chunks in the driver`);
      neuron.close();
      assert.deepEqual(chunksOn(machine), { count: 0, bytes: 0 });
      if (fired === 0) break;
    }
    resetAlignmentSupport();
    console.log(`# fault sweep, ${errno}: ${nth - 1} requests failed one by one, ${failures} loads refused`);
    assert.ok(failures > 10, `only ${failures} loads were refused`);
  });
}

test("a load issues only requests the sweep knows, and frees", async () => {
  using machine = machineOf({ product: "trn2" });
  const names = new Set<string>();
  const plain = machine.kernel();
  const kernel = armable(plain, withRequestLog(plain, ({ call, name }) => void (call === "ioctl" && names.add(name))));
  using neuron = open({ kernel });
  kernel.armed = true;
  const model = await neuron.logicalCore(0).load(SECOND);
  await model.unload();
  kernel.armed = false;
  const unknown = [...names].filter((name) => name !== "MEM_FREE" && !(REQUESTS as readonly string[]).includes(name));
  assert.deepEqual(unknown, []);
});
