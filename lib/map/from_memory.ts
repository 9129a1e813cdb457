/** From what the layers below hold to what a picture is built from. Reads only, through their public shapes. */
import type { Geometry } from "../abi/architecture.ts";
import type { DeviceMemory, Dmem } from "../dmem/types.ts";
import type { ChunkListEntry } from "../driver/types.ts";
import { categoryNames } from "../host/sysfs_memory.ts";
import type { AllocationInput, DeviceInput, HbmInput, PictureHost, VariableInput } from "./model.ts";

/** A variable with its place, as a staged subgraph lists it. */
export interface PlacedInput {
  /** Its name. */
  readonly name: string;
  /** Type word. */
  readonly type: string;
  /** Bytes. */
  readonly sizeBytes: number;
  /** Device address, or null. */
  readonly address: number | null;
  /** HBM, or null on chip. */
  readonly hbm: number | null;
  /** What its memory is for, or null. */
  readonly usage: string | null;
}

/** The HBMs of a product as input of a picture. @param sizeBytes of each HBM where it is not the product's */
export function hbmInputs(geometry: Geometry, sizeBytes?: number): readonly HbmInput[] {
  return geometry.hbms.map((hbm, index) => ({
    index, base: hbm.base, size: sizeBytes ?? hbm.size,
    cores: Array.from({ length: geometry.coresPerHbm }, (_, core) => index * geometry.coresPerHbm + core),
  }));
}

/**
 * A device and all its living allocations made by this process.
 *
 * @param options.name of the device for people; default its product
 * @param options.hbmSize of each HBM where it is not the product's
 */
export function deviceInput(
  memory: Pick<DeviceMemory, "allocators" | "device">, options: { readonly name?: string; readonly hbmSize?: number } = {},
): { readonly device: DeviceInput; readonly allocations: readonly AllocationInput[] } {
  const { index, geometry } = memory.device;
  const allocations: AllocationInput[] = [];
  const host = new Map<string, PictureHost>();
  for (const allocator of memory.allocators) {
    const { name, modelId } = allocator.label;
    const model = allocator.kind === "GLOBAL" ? null : name ?? (modelId === undefined ? "model" : `model ${modelId}`);
    for (const one of allocator.live) {
      if (one.location === "device") allocations.push(allocationInput(one, index, model));
      else addHost(host, model ?? `core ${one.core}`, one.usage, one.allocatedSize);
    }
  }
  return { device: { index, name: options.name ?? geometry.product, hbms: hbmInputs(geometry, options.hbmSize), host: [...host.values()] }, allocations };
}

function allocationInput(one: Dmem, device: number, model: string | null): AllocationInput {
  return { device, start: one.pa, size: one.allocatedSize, isRequested: true, usage: one.usage, model, core: one.core, hint: one.hint };
}

function addHost(host: Map<string, PictureHost>, owner: string, usage: string, bytes: number): void {
  const key = `${owner}\0${usage}`;
  host.set(key, { owner, usage, bytes: (host.get(key)?.bytes ?? 0) + bytes });
}

/** The variables of a subgraph. State buffers and other variables outside HBM keep their names and get no place. */
export function variableInputs(
  variables: Iterable<PlacedInput>, of: { readonly device: number; readonly model: string; readonly subgraph: string },
): readonly VariableInput[] {
  return Array.from(variables, (one) => ({
    name: one.name, device: of.device, start: one.hbm === null ? null : one.address, size: one.sizeBytes, type: one.type,
    usage: one.usage ?? undefined, model: of.model, subgraph: of.subgraph,
  }));
}

/** The chunks the driver lists for a device, of all processes: they tell what memory is for, but not whose it is. */
export function chunkInputs(chunks: readonly ChunkListEntry[], device: number): readonly AllocationInput[] {
  return chunks.map(({ pa, size, category }) => ({ device, start: pa, size, usage: categoryNames[category] ?? "uncategorized" }));
}
