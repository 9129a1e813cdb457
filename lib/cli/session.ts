import { existsSync } from "node:fs";
import { basename } from "node:path";
import { type Product, productOfTarget } from "../abi/architecture.ts";
import { formatVersion, type NeuronDevice } from "../driver/types.ts";
import type { PassingNeff } from "../neff/open_neff.ts";
import { type Neff, readNeff } from "../neff/mod.ts";
import type { LogicalCore } from "../runtime/logical_core.ts";
import { LARGEST_LOGICAL_SIZE, LNC_VARIABLE, LNC_VARIABLE_OLD } from "../runtime/logical_cores.ts";
import type { Model } from "../runtime/model.ts";
import type { Neuron } from "../runtime/neuron.ts";
import { openNeuron } from "../runtime/open_neuron.ts";
import { UsageError } from "./failure.ts";
import type { Progress } from "./progress.ts";
import { isLarge } from "./read_model.ts";

/** The device a command uses, for people and for `--json`. */
export interface DeviceLabel {
  /** `fake`, or `device` for a real one. */
  readonly kind: "fake" | "device";
  /** For example `fake trn2` or `/dev/neuron0 (trn1)`. */
  readonly label: string;
  readonly product: string;
  readonly index: number;
  readonly path: string;
  readonly driverVersion: string;
}

/** How a session is opened. */
export interface SessionOptions {
  readonly fake?: Product | undefined;
  readonly device?: number | undefined;
  /** Device-relative; default the first this process has. */
  readonly core?: number | undefined;
  readonly io: "tensors" | "plan";
  /** Told how far reading and copying are. */
  readonly progress?: Progress | undefined;
}

/** A model of a session. */
export interface LoadedFile {
  readonly file: string;
  readonly neff: Neff;
  readonly model: Model;
}

/** Models loaded for one command, with what they took. */
export interface Session extends AsyncDisposable {
  /** In the order of their files. */
  readonly loaded: readonly LoadedFile[];
  /** The first one. */
  readonly neff: Neff;
  readonly model: Model;
  readonly neuron: Neuron;
  readonly logicalCore: LogicalCore;
  readonly device: DeviceLabel;
  /** Device bytes per HBM and per usage that the loads added. */
  readonly usage: { readonly byHbm: Readonly<Record<string, number>>; readonly byUsage: Readonly<Record<string, number>>; readonly totalBytes: number };
  /** Unloads the models; returns the device bytes the driver still holds more than before. */
  release(): Promise<number>;
}

/**
 * Reads models, opens the device and loads them on one logical core with their inputs and outputs.
 *
 * @throws {NeffError} for a file that cannot be read
 * @throws {NeuronError} for a device that cannot be used or has too little memory; nothing stays allocated
 */
export async function openSession(files: readonly string[], options: SessionOptions): Promise<Session> {
  const sources: (PassingNeff | undefined)[] = [];
  const neffs: Neff[] = [];
  try {
    for (const file of files) {
      options.progress?.phase(`reading ${basename(file)}`);
      const passing = isLarge(file) ? await (await import("../neff/open_neff.ts")).openNeff(file, { onProgress: options.progress?.update }) : undefined;
      sources.push(passing);
      neffs.push(passing?.neff ?? await readNeff(file));
    }
    return await loadAll(files, neffs, sources, options);
  } finally {
    for (const source of sources.toReversed()) await source?.[Symbol.asyncDispose]();
  }
}

/** @param sources the files that are still being read, where one is large */
async function loadAll(files: readonly string[], neffs: readonly Neff[], sources: readonly (PassingNeff | undefined)[], options: SessionOptions): Promise<Session> {
  const { progress } = options;
  const chosen = chooseDevice(neffs[0]!, options);
  // What a variable says is the user's; else the size the models were compiled for.
  const isSet = [LNC_VARIABLE, LNC_VARIABLE_OLD].some((name) => process.env[name] !== undefined);
  const lnc = isSet ? undefined : Math.min(LARGEST_LOGICAL_SIZE, Math.max(1, ...neffs.map(({ subgraphs }) => subgraphs.length)));
  // A fake made for this command has one device: nothing needs to be looked for.
  const neuron = openNeuron({ ...chosen, device: chosen.device ?? 0, lnc });
  try {
    const logicalCore = coreOf(neuron, options.core);
    const before = snapshot(neuron, logicalCore);
    const loaded: LoadedFile[] = [];
    for (const [index, file] of files.entries()) {
      progress?.phase(`loading ${basename(file)}`);
      const model = await logicalCore.load(neffs[index]!, {
        name: basename(file), io: options.io, source: sources[index], onProgress: progress?.update,
      });
      loaded.push({ file, neff: neffs[index]!, model });
    }
    const release = async (): Promise<number> => {
      for (const { model } of loaded.toReversed()) await model.unload();
      return driverBytes(neuron) - before.driverBytes;
    };
    return {
      loaded, neff: neffs[0]!, model: loaded[0]!.model, neuron, logicalCore, device: labelOf(neuron.devices[0]!.device, chosen.fake),
      usage: difference(before, snapshot(neuron, logicalCore)), release, [Symbol.asyncDispose]: async () => void neuron.close(),
    };
  } catch (error) {
    neuron.close();
    throw error;
  }
}

/** A real device if one was asked for or is there; else a fake of the model's own target. */
function chooseDevice(neff: Neff, options: SessionOptions): { readonly fake?: Product; readonly device?: number } {
  if (options.fake !== undefined) return { fake: options.fake };
  if (options.device !== undefined) return { device: options.device };
  if (existsSync("/dev/neuron0")) return { device: 0 };
  return { fake: neff.target === "*" ? "trn2" : productOfTarget[neff.target] };
}

function coreOf(neuron: Neuron, core: number | undefined): LogicalCore {
  const found = neuron.logicalCores.find((logicalCore) => core === undefined || logicalCore.owner.core === core);
  if (found !== undefined) return found;
  const possible = neuron.logicalCores.map((logicalCore) => logicalCore.owner.core).join(", ");
  throw new UsageError(`Cannot load on core ${core}: no logical core of size ${neuron.logicalSize} begins there`, { hint: `Use --core ${possible}.` });
}

interface Snapshot {
  readonly byHbm: Readonly<Record<string, number>>;
  readonly byUsage: Readonly<Record<string, number>>;
  readonly driverBytes: number;
}

function snapshot(neuron: Neuron, logicalCore: LogicalCore): Snapshot {
  const [device] = neuron.memory().filter((one) => one.device === logicalCore.device);
  const byUsage: Record<string, number> = {};
  for (const core of device?.cores ?? []) {
    for (const [usage, bytes] of Object.entries(core.usages)) byUsage[usage] = (byUsage[usage] ?? 0) + bytes;
  }
  return { byHbm: Object.fromEntries((device?.hbms ?? []).map((hbm) => [hbm.hbm, hbm.usedBytes])), byUsage, driverBytes: driverBytes(neuron) };
}

/** Bytes in chunks of all HBMs, as the driver counts them. */
function driverBytes(neuron: Neuron): number {
  let bytes = 0;
  for (const { device } of neuron.devices) {
    device.geometry.hbms.forEach((_, hbm) => {
      for (const chunk of device.dumpChunks(hbm)) bytes += chunk.size;
    });
  }
  return bytes;
}

function difference(before: Snapshot, after: Snapshot): Session["usage"] {
  const minus = (a: Readonly<Record<string, number>>, b: Readonly<Record<string, number>>) =>
    Object.fromEntries(Object.entries(a).map(([key, bytes]) => [key, bytes - (b[key] ?? 0)] as const).filter(([, bytes]) => bytes !== 0));
  const byHbm = minus(after.byHbm, before.byHbm);
  return { byHbm, byUsage: minus(after.byUsage, before.byUsage), totalBytes: Object.values(byHbm).reduce((sum, bytes) => sum + bytes, 0) };
}

/** The label of an open device. @param fake the product a fake was asked to be, undefined for a real one */
export function labelOf(device: NeuronDevice, fake: Product | undefined): DeviceLabel {
  const path = `/dev/neuron${device.index}`;
  const { product } = device.geometry;
  return {
    kind: fake === undefined ? "device" : "fake",
    label: fake === undefined ? `${path} (${product})` : `fake ${fake}`,
    product: fake ?? product, index: device.index, path, driverVersion: device.driverVersion === null ? "unknown" : formatVersion(device.driverVersion),
  };
}
