/** Layers on allocators: run them around an allocation, put them on an existing allocator. */
import { ArgumentError } from "../../ffi/error.ts";
import type { OwnDmem } from "./context.ts";
import type { Allocator, AllocatorLayer, AllocRequest, Dmem } from "./types.ts";

/** Refuses what is no list of layers. @throws {ArgumentError} */
export function checkLayers(layers: unknown): void {
  if (Array.isArray(layers) && layers.every((layer) => typeof layer === "object" && layer !== null)) return;
  throw new ArgumentError("Cannot allocate under these layers: they are no list of layers", { hint: "For example layers: [limit(2 * GiB), leaks()]." });
}

/**
 * Makes an allocation under layers, the first one outermost: each may refuse
 * before, and each that was asked hears how it ended.
 */
export function runLayers(layers: readonly AllocatorLayer[], request: AllocRequest, allocator: Allocator, make: (request: AllocRequest) => Dmem): Dmem {
  let asked = 0;
  let memory: Dmem;
  try {
    for (const layer of layers) {
      asked++;
      layer.before?.(request, allocator);
    }
    memory = make(request);
  } catch (error) {
    for (let i = asked - 1; i >= 0; i--) layers[i]!.failed?.(error, request, allocator);
    throw error;
  }
  for (let i = layers.length - 1; i >= 0; i--) layers[i]!.allocated?.(memory, request, allocator);
  watch(memory, layers);
  return memory;
}

/**
 * An allocator that passes everything to `allocator` under `layers`, the first
 * one outermost. Its allocations are listed by, and charged to, the one below.
 *
 * @example
 * const counts = statistics();
 * using neuron = openNeuron({ fake: "trn2" });
 * const allocator = withLayers(neuron.core(0).global, [counts]);
 * using memory = allocator.alloc({ size: 4096, usage: "TENSOR" });
 * console.log(counts.counts.currentBytes === memory.allocatedSize); // → true
 *
 * @throws {ArgumentError} for layers that are none
 */
export function withLayers(allocator: Allocator, layers: readonly AllocatorLayer[]): Allocator {
  checkLayers(layers);
  return {
    get kind() {
      return allocator.kind;
    },
    get core() {
      return allocator.core;
    },
    get label() {
      return allocator.label;
    },
    get record() {
      return allocator.record;
    },
    get count() {
      return allocator.count;
    },
    get bytes() {
      return allocator.bytes;
    },
    get live() {
      return allocator.live;
    },
    get closed() {
      return allocator.closed;
    },
    alloc: (request) => runLayers(layers, request, allocator, (asked) => allocator.alloc(asked)),
    destroy: () => allocator.destroy(),
    [Symbol.dispose]: () => void allocator.destroy(),
  };
}

function watch(memory: Dmem, layers: readonly AllocatorLayer[]): void {
  const { context, node } = memory as OwnDmem;
  const inner = context.watchers.get(node) ?? [];
  context.watchers.set(node, [...layers, ...inner]);
}
