import { TpbArch } from "../abi/runtime_context.ts";
import { NrtStatus } from "../abi/runtime_dmem.ts";
import { NO_HBM, TensorPlacement } from "../abi/runtime_tensor.ts";
import { MemoryError } from "../dmem/error.ts";
import type { AllocRequest, Dmem } from "../dmem/types.ts";
import type { LogicalPlace, NeuronCore } from "./core.ts";
import { NrtError } from "./errors.ts";
import { Tensor } from "./tensor.ts";
import { type PlacementName, type TensorOptions, type TensorProcess, TensorStorage } from "./tensor_storage.ts";

/** A tensor to allocate, as the runtime's public call takes it. */
export interface TensorRequest extends TensorOptions {
  /** Logical core, relative to the process; −1 for host memory of no particular core. */
  readonly logicalCore: number;
  /** Bytes, ≥ 1. */
  readonly size: number;
  /** Name; `_unknown_` when absent. */
  readonly name?: string | undefined;
}

/** What allocation needs to know of the process. */
export interface TensorContext extends TensorProcess {
  /** Architecture number. */
  readonly architecture: number;
  /** The process's logical cores. */
  readonly logicalCores: readonly LogicalPlace[];
}

const NAMES: Readonly<Record<PlacementName, number>> = { device: TensorPlacement.DEVICE, host: TensorPlacement.HOST, virtual: TensorPlacement.VIRTUAL };

/**
 * Allocates a tensor, with the gates of `nrt_tensor_allocate` in their order:
 * state, logical core, placement. Device tensors are charged to the first core
 * of the logical core, on its default HBM, usage TENSOR.
 *
 * @throws {NrtError} 13, 14, 1 by state; NRT_INVALID for an unknown core or placement, or size 0; NRT_RESOURCE for pinned host memory on trn2
 * @throws {MemoryError} NRT_RESOURCE when the HBM is full, NRT_FAIL_HOST_MEM_ALLOC when host memory is
 *
 * @example
 * using neuron = openNeuron({ fake: "trn1" });
 * using pinned = neuron.tensor({ logicalCore: 0, size: 4096, name: "staging", placement: "host" });
 * console.log(pinned.storage?.memory?.location); // → host
 */
export function allocateTensor(context: TensorContext, request: TensorRequest): Tensor {
  const name = request.name ?? "_unknown_";
  context.gate.pass(`allocate tensor ${name}`);
  const placement = typeof request.placement === "string" ? NAMES[request.placement] : request.placement ?? TensorPlacement.DEVICE;
  const anywhere = request.logicalCore === -1 && (placement === TensorPlacement.HOST || placement === TensorPlacement.VIRTUAL);
  const core = context.logicalCores[anywhere ? 0 : request.logicalCore];
  if (core === undefined) {
    throw new NrtError(
      NrtStatus.INVALID,
      `Cannot allocate a tensor on Logical NeuronCore ${request.logicalCore} (${name}): this process has ${context.logicalCores.length}, counted from 0`,
      { details: { logicalCore: request.logicalCore, logicalCores: context.logicalCores.length } },
    );
  }
  if (placement === TensorPlacement.HOST && context.architecture === TpbArch.CAYMAN) {
    throw new NrtError(NrtStatus.RESOURCE, `Cannot allocate pinned host memory on trn2: Can not allocate tensor (name:${name}) on Host for NC:${request.logicalCore}`, {
      hint: "Use a device tensor, or placement \"virtual\" for plain host memory.",
      details: { name, logicalCore: request.logicalCore },
    });
  }
  if (!Number.isSafeInteger(request.size) || request.size < 1) {
    throw new NrtError(NrtStatus.INVALID, `Cannot allocate tensor ${name} of ${request.size} bytes: a tensor has at least one byte`, { details: { name, size: request.size } });
  }
  return new Tensor(context, name, storageFor(placement as number, core, { size: request.size, name }));
}

function storageFor(placement: number, core: LogicalPlace, { size, name }: { readonly size: number; readonly name: string }): TensorStorage {
  const { owner } = core;
  const common = { owned: true, allocatedSize: size, logicalCore: core.index };
  if (placement === TensorPlacement.DEVICE || placement === TensorPlacement.HOST) {
    const location = placement === TensorPlacement.DEVICE ? "device" : "host";
    const memory = allocateNamed(owner, { size, usage: "TENSOR", location, hbm: owner.hbm, hint: name });
    return new TensorStorage("DMA", { ...common, memory, hbm: owner.hbm, device: owner.deviceMemory });
  }
  if (placement !== TensorPlacement.VIRTUAL) {
    throw new NrtError(NrtStatus.INVALID, `Cannot allocate tensor ${name}: placement ${placement} is unknown`, {
      hint: "Placements are device (0), host (1) and virtual (2).",
      details: { placement },
    });
  }
  return new TensorStorage("MALLOC", { ...common, bytes: hostBytes(size, name), hbm: NO_HBM, device: undefined });
}

/** Plain host memory. More than the JavaScript runtime can give is the same trouble as no host memory. */
function hostBytes(size: number, name: string): Uint8Array {
  try {
    return new Uint8Array(size);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new NrtError(NrtStatus.FAIL_HOST_MEM_ALLOC, `Cannot allocate tensor ${name} of ${size} bytes in host memory: ${error.message}`, {
      cause: error, hint: "Use a device tensor, or several smaller ones.", details: { name, size },
    });
  }
}

/** Allocates, and says in an error which tensor it was for. */
function allocateNamed(owner: NeuronCore, request: AllocRequest): Dmem {
  try {
    return owner.memory.alloc(request);
  } catch (error) {
    if (!(error instanceof MemoryError)) throw error;
    const { status, errno, text, report, hint, details } = error;
    const where = request.location === "host" ? "host memory" : `HBM ${request.hbm} of device ${owner.device}`;
    throw new MemoryError(status, `Cannot allocate tensor ${request.hint} of ${request.size} bytes in ${where}: ${error.message}`, { cause: error, errno, text, report, hint, details });
  }
}
