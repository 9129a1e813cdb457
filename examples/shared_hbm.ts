/**
 * What shares my HBM? Cores by memory bank, and who holds how much of it.
 *
 *     bun examples/shared_hbm.ts [1|2]     physical cores per logical core
 */
import { MiB, openNeuron } from "neuron-dmem";

const lnc = Number(process.argv[2] ?? 1);
using neuron = openNeuron({ fake: "trn2", lnc });
const mine = neuron.logicalCore(0);
const neighbours = mine.sharesHbmWith();
console.log(`${mine} is on HBM ${mine.hbm}; ${neighbours.length === 0 ? "no other logical core uses it" : `so ${neighbours.length === 1 ? "is" : "are"} ${neighbours.join(", ")}`}`);

// A noisy neighbour: another core's allocation on the same bank.
using noise = neuron.core(1).alloc(512 * MiB, { hint: "noisy neighbour", hbm: mine.hbm });
for (const { device, hbms, cores } of neuron.memory()) {
  for (const { hbm, usedBytes, capacityBytes, cores: here } of hbms) {
    console.log(`device ${device} HBM ${hbm}: ${(usedBytes / MiB).toFixed(1)} of ${capacityBytes / MiB} MiB, cores ${here.join(" ")} (device-relative)`);
  }
  const [most] = [...cores].sort((a, b) => b.usedBytes - a.usedBytes);
  console.log(`most: core ${most?.core} (global ${most?.globalCore}), ${((most?.usedBytes ?? 0) / MiB).toFixed(1)} MiB`);
}
console.log(`my own ${mine.memoryStats().usedBytes} bytes; the neighbour's ${noise.size} are not in it`);
