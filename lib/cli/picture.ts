/** From open devices, or a recorded log, to a picture of their memory, and its bars on a terminal. */
import { NeuronError } from "../../ffi/error.ts";
import { type Geometry, geometries, type Product } from "../abi/architecture.ts";
import type { LogEvent } from "../dmem/allocation_log.ts";
import type { NeuronDevice } from "../driver/types.ts";
import type { FitHbm } from "../fit/fit_trial.ts";
import { allowsUnicode, type BarOptions, drawBars } from "../map/bars.ts";
import { buildPicture } from "../map/build.ts";
import { chunkInputs, deviceInput, hbmInputs, variableInputs } from "../map/from_memory.ts";
import { entriesOfLog, replayRecord } from "../map/from_record.ts";
import type { MemoryPicture } from "../map/model.ts";
import type { Model } from "../runtime/model.ts";
import type { Neuron } from "../runtime/neuron.ts";
import type { Terminal } from "./terminal.ts";
import { drawFitBars } from "./text/fit_report.ts";

/** What stands over a picture. */
export interface PictureHeading {
  readonly title: string;
  /** Where the data is from, for people. */
  readonly source: string;
}

/** Pictures what this process holds: allocations by owner, the models' variables, what happened over time. */
export function neuronPicture(neuron: Neuron, models: readonly Model[], heading: PictureHeading): MemoryPicture {
  const parts = neuron.devices.map(({ memory, index }) => {
    const { entries, dropped } = memory.ledger.snapshot();
    return { ...deviceInput(memory), record: replayRecord(entries, { device: index, dropped }) };
  });
  return buildPicture({
    ...heading,
    devices: parts.map(({ device }) => device),
    allocations: parts.flatMap(({ allocations }) => allocations),
    variables: models.flatMap((model) => model.parts.flatMap((_, index) => {
      const subgraph = model.subgraph(index);
      return variableInputs(subgraph.variables(), { device: model.logicalCore.device, model: model.name, subgraph: subgraph.name });
    })),
    events: parts.flatMap(({ record }) => record.events),
    notes: [...new Set(parts.flatMap(({ record }) => record.notes))],
  });
}

/** Pictures the chunks the driver lists, of all processes: what memory is for, but not whose it is. */
export function devicePicture(devices: readonly NeuronDevice[], heading: PictureHeading): MemoryPicture {
  return buildPicture({
    ...heading,
    devices: devices.map(({ index, geometry }) => ({ index, name: geometry.product, hbms: hbmInputs(geometry) })),
    allocations: devices.flatMap((device) => device.geometry.hbms.flatMap((_, hbm) => chunkInputs(device.dumpChunks(hbm), device.index))),
    notes: ["The driver lists what memory is for, not which process holds it."],
  });
}

/** What a picture of a log needs to know besides the log. */
export interface LogPictureOptions extends PictureHeading {
  /** Product the log is from; default the first whose HBMs contain all addresses. */
  readonly product?: Product | undefined;
  /** Bytes of each HBM where it is not the product's. */
  readonly hbmSize?: number | undefined;
  /** Entries that were overwritten before the first one. */
  readonly dropped?: number | undefined;
}

/**
 * Pictures a recorded log: what is alive at its end, and the timeline.
 *
 * @throws {NeuronError} for addresses that lie in no product's HBMs
 */
export function logPicture(log: readonly LogEvent[], options: LogPictureOptions): MemoryPicture {
  const { title, source, product, hbmSize, dropped } = options;
  const geometry = product === undefined ? geometryOfLog(log) : geometries[product];
  const { entries, leftOut } = entriesOfLog(log);
  const { events, allocations, host, notes } = replayRecord(entries, { device: 0, ...(dropped === undefined ? {} : { dropped }) });
  const left = leftOut === 0 ? [] : [`${leftOut} events without an address are left out: refused allocations, or a log that does not tell.`];
  return buildPicture({
    title, source, devices: [{ index: 0, name: geometry.product, hbms: hbmInputs(geometry, hbmSize), host }], allocations, events, notes: [...notes, ...left],
  });
}

function geometryOfLog(log: readonly LogEvent[]): Geometry {
  const placed = log.filter(({ location, address }) => location === "device" && address !== null);
  const found = Object.values(geometries).find(({ hbms }) =>
    placed.every(({ address, size }) => hbms.some((hbm) => address! >= hbm.base && address! + size <= hbm.base + hbm.size)));
  if (found !== undefined) return found;
  throw new NeuronError("Cannot draw the log: its addresses lie in the HBMs of no known product", { hint: "Name the product with --fake, or the instance with --instance." });
}

/** A picture's bars as this terminal can show them. */
export function barsText(terminal: Terminal, picture: MemoryPicture): string {
  return drawBars(picture, barOptions(terminal));
}

/** The bars of a prediction as this terminal can show them. */
export function fitBarsText(terminal: Terminal, hbms: readonly FitHbm[]): string {
  return drawFitBars(hbms, barOptions(terminal));
}

function barOptions(terminal: Terminal): BarOptions {
  return { columns: terminal.columns, unicode: allowsUnicode(process.env), colour: terminal.bold("x") !== "x", onlyUsed: true };
}
