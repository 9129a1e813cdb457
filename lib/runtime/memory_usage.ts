import { type UsageName, usageNames } from "../abi/runtime_dmem.ts";
import type { Dmem } from "../dmem/types.ts";
import type { ContextDevice, NeuronCore } from "./core.ts";

/** Bytes by usage; usages without any are left out. */
export type UsageBytes = Readonly<Partial<Record<UsageName, number>>>;

/** A line of a memory table: what one core holds on one HBM for one usage. */
export interface MemoryRow {
  /** Core on the device. */
  readonly core: number;
  /** HBM. */
  readonly hbm: number;
  /** What it is for. */
  readonly usage: UsageName;
  /** Bytes charged. */
  readonly bytes: number;
}

/** What one model holds on one core. */
export interface ModelUsage {
  /** Its handle on this core. */
  readonly handle: number;
  /** Its name. */
  readonly name: string;
  /** Bytes of its own; shared scratchpad pages are not among them. */
  readonly bytes: number;
  /** The same by usage. */
  readonly usages: UsageBytes;
}

/** What one core holds. */
export interface CoreUsage {
  /** Core on the device (device-relative). */
  readonly core: number;
  /** Core over all devices of the host (global). */
  readonly globalCore: number;
  /** Logical core, relative to the process. */
  readonly logicalCore: number;
  /** HBM its allocations go to by default. */
  readonly hbm: number;
  /** Bytes charged to it: the ledger's total. */
  readonly usedBytes: number;
  /** The same by usage. */
  readonly usages: UsageBytes;
  /** Of these, bytes of the core itself: tensors, scratchpad pages, shared libraries. */
  readonly globalBytes: number;
  /** Of these, bytes of its models. */
  readonly models: readonly ModelUsage[];
}

/** One HBM. */
export interface HbmUsage {
  /** Its number on the device. */
  readonly hbm: number;
  /** Its size in bytes. */
  readonly capacityBytes: number;
  /** Bytes this process uses on it. Other processes are not counted. */
  readonly usedBytes: number;
  /** Cores of this process that go to it by default (device-relative). */
  readonly cores: readonly number[];
}

/** One device. */
export interface DeviceUsage {
  /** Device index. */
  readonly device: number;
  /** Its HBMs. */
  readonly hbms: readonly HbmUsage[];
  /** Cores of this process on it. */
  readonly cores: readonly CoreUsage[];
}

/**
 * What this process holds, per device, HBM, core and model. Other processes' memory is not in it.
 *
 * @example
 * using neuron = openNeuron({ fake: "trn2" });
 * using weights = neuron.core(1).alloc(1 * MiB, { usage: "WEIGHT" });
 * const [device] = neuron.memory(); // the same as memoryUsage(neuron.context)
 * console.log(device?.cores.find(({ core }) => core === 1)?.usages.WEIGHT === weights.size); // → true
 */
export function memoryUsage(context: { readonly devices: readonly ContextDevice[]; readonly cores: readonly NeuronCore[] }): readonly DeviceUsage[] {
  return context.devices.map((device) => {
    const cores = context.cores.filter((core) => core.device === device.index);
    return { device: device.index, hbms: hbmUsage(device, cores), cores: cores.map(coreUsage) };
  });
}

/** Device memory added up by HBM and usage, charged to a core. */
export function memoryRows(core: number, memories: Iterable<Dmem>): readonly MemoryRow[] {
  const bytes = new Map<string, { hbm: number; usage: UsageName; bytes: number }>();
  for (const memory of memories) {
    if (memory.location !== "device") continue;
    const key = `${memory.hbm} ${memory.usage}`;
    const row = bytes.get(key) ?? { hbm: memory.hbm, usage: memory.usage, bytes: 0 };
    row.bytes += memory.allocatedSize;
    bytes.set(key, row);
  }
  const order = (row: { hbm: number; usage: UsageName }) => row.hbm * usageNames.length + usageNames.indexOf(row.usage);
  return [...bytes.values()].sort((a, b) => order(a) - order(b)).map((row) => ({ core, ...row }));
}

/** The cells of a core's ledger row that are not 0. */
export function coreUsages(core: NeuronCore): UsageBytes {
  const { ledger } = core.deviceMemory;
  return Object.fromEntries(usageNames.map((name, usage) => [name, ledger.used(core.core, usage)] as const).filter(([, bytes]) => bytes > 0));
}

function hbmUsage({ device, memory }: ContextDevice, cores: readonly NeuronCore[]): readonly HbmUsage[] {
  return device.geometry.hbms.map(({ size }, hbm) => ({
    hbm,
    capacityBytes: size,
    usedBytes: memory.ledger.hbmUsed(hbm),
    cores: cores.filter((core) => core.hbm === hbm).map((core) => core.core),
  }));
}

function coreUsage(core: NeuronCore): CoreUsage {
  const models = core.models.models.map(({ handle, name, model }): ModelUsage => {
    const rows = memoryRows(core.core, model.staged.allocator.live);
    return { handle, name, bytes: sum(rows), usages: byUsage(rows) };
  });
  return {
    core: core.core,
    globalCore: core.globalCore,
    logicalCore: core.logicalCore.index,
    hbm: core.hbm,
    usedBytes: core.usedBytes,
    usages: coreUsages(core),
    globalBytes: sum(memoryRows(core.core, core.global.live)),
    models,
  };
}

function sum(rows: readonly MemoryRow[]): number {
  return rows.reduce((total, row) => total + row.bytes, 0);
}

/** Rows added up by usage. */
export function byUsage(rows: readonly MemoryRow[]): UsageBytes {
  const usages: Partial<Record<UsageName, number>> = {};
  for (const { usage, bytes } of rows) usages[usage] = (usages[usage] ?? 0) + bytes;
  return usages;
}
