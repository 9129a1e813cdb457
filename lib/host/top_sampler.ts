/** Samples of a host's device memory and of the processes that hold it, for live views. */
import type { Kernel } from "../../ffi/kernel.ts";
import { NeuronError } from "../../ffi/error.ts";
import { openDevice } from "../driver/device.ts";
import type { NeuronDevice } from "../driver/types.ts";
import { readSysfsMemory, type SysfsMemoryOptions } from "./sysfs_memory.ts";
import { type TopProcess, topProcesses, type TopSample } from "./top.ts";

/** Takes samples. */
export interface TopSampler extends Disposable {
  /** Counters and processes now. */
  sample(): TopSample;
}

/** What a sampler reads. */
export interface TopSamplerOptions extends SysfsMemoryOptions {
  /** Whether processes are asked for: it takes a slot of each device while the sampler is open. Default true. */
  readonly processes?: boolean | undefined;
  /** The process that asks, left out of the lists; default this one. */
  readonly ownPid?: number | undefined;
}

/** Opens a sampler. A device that cannot be opened shows no processes. */
export function topSampler(kernel: Kernel, options: TopSamplerOptions = {}): TopSampler {
  const { root, expected, processes = true, ownPid = process.pid } = options;
  const read = () => readSysfsMemory(kernel, { root, expected });
  // A device that is being reset would keep the open waiting.
  const open = processes ? read().devices.filter(({ state }) => state !== "resetting").flatMap(({ device }) => attempt(() => openDevice({ kernel, index: device, access: "readonly" }))) : [];
  return {
    sample: () => ({
      time: Date.now() / 1000,
      memory: read(),
      processes: open.flatMap((device) => attempt(() => processesOf(kernel, device)).flat().filter(({ pid }) => pid !== ownPid)),
    }),
    [Symbol.dispose]: () => open.forEach((device) => device.close()),
  };
}

function processesOf(kernel: Kernel, device: NeuronDevice): readonly TopProcess[] {
  return topProcesses(device.index, device.apps(), (pid) => {
    const command = kernel.kind === "fake" ? -1 : kernel.readText(`/proc/${pid}/comm`);
    return typeof command === "string" ? command.trim() : null;
  });
}

function attempt<T>(action: () => T): T[] {
  try {
    return [action()];
  } catch (error) {
    if (error instanceof NeuronError) return [];
    throw error;
  }
}
