/** The live view over a fake device whose memory grows and shrinks; with the argument `fail` the device goes away after three samples. */
import { openDeviceMemory } from "../../../lib/dmem/mod.ts";
import { openDevice } from "../../../lib/driver/mod.ts";
import { createFake } from "../../../lib/fake/machine.ts";
import { readSysfsMemory } from "../../../lib/host/sysfs_memory.ts";
import { processTopTerminal, TopLoop } from "../../../lib/cli/text/top_loop.ts";

const kernel = createFake({ product: "trn1" }).process();
const memory = openDeviceMemory(openDevice({ kernel }));
const held: { release(): void }[] = [];
let samples = 0;
const loop = new TopLoop({
  terminal: processTopTerminal(),
  interval: 0.25,
  sample() {
    if (process.argv[2] === "fail" && ++samples > 3) throw new Error("the device went away");
    if (held.length < 5) held.push(memory.core(0).alloc({ size: 2 ** 20 * 7, usage: "TENSOR" }));
    else for (const one of held.splice(0)) one.release();
    return { time: Date.now() / 1000, memory: readSysfsMemory(kernel), processes: [{ device: 0, pid: process.pid, name: "top_live", cores: [0], deviceBytes: null, hostBytes: null }] };
  },
});
try {
  await loop.run();
  console.log("ended well");
} catch (error) {
  console.log(`ended with: ${(error as Error).message}`);
}
