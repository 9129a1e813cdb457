import { MAX_UCODE_LIBS } from "../abi/runtime_context.ts";
import { NrtStatus } from "../abi/runtime_dmem.ts";
import type { Allocator, Dmem } from "../dmem/types.ts";
import { NrtError } from "./errors.ts";

/** A library for the general purpose cores, as a model brings it. */
export interface UcodeLibrary {
  /** Its name, for messages. */
  readonly name: string;
  /** Its bytes. */
  readonly bytes: Uint8Array;
  /** `cpu_id`; the highest byte 1 marks an operator for a single core. 0 when absent. */
  readonly cpuId?: number | undefined;
}

/** A library in device memory (`ucode_lib_info_t`). */
export interface StagedLibrary {
  /** Its name. */
  readonly name: string;
  /** Device address of its first byte. */
  readonly address: number;
  /** Bytes. */
  readonly size: number;
  /** `cpu_id`. */
  readonly cpuId: number;
}

/** The staged libraries of a core or of one model (`ucode_lib_set_info_t`). */
export interface UcodeLibSet {
  /** The memory they lie in, one after the other. */
  readonly memory: Dmem;
  /** The libraries. */
  readonly libraries: readonly StagedLibrary[];
  /** How many are operators for a single core. */
  readonly singleCoreOperators: number;
}

/** Where a core keeps its one shared library set (`ulib_set_info_extisa_only`). */
export interface UcodeCache {
  /** The set, or undefined before the first model with a single library. */
  set: UcodeLibSet | undefined;
}

/** What a model got. */
export interface UcodeOfModel {
  /** The set. */
  readonly set: UcodeLibSet;
  /** Whether it is the core's, which the model must not free. */
  readonly shared: boolean;
}

/**
 * Stages a model's libraries, as sunda cores do (context notes, 7). One library
 * is staged once per core, in memory of the core, and shared by all models; 2 to
 * 9 are the model's own. None: nothing to do.
 *
 * The shared set is not counted and lives until the core is torn down. Its key
 * is only "exactly one library": a second, different one is not compared.
 *
 * @throws {NrtError} NRT_FAILURE above 9 libraries; nothing is staged
 * @throws {MemoryError} when memory is short or the copy fails; nothing is kept
 */
export function stageUcode(
  libraries: readonly UcodeLibrary[],
  owners: { readonly cache: UcodeCache; readonly core: Allocator; readonly model: Allocator },
): UcodeOfModel | undefined {
  if (libraries.length > MAX_UCODE_LIBS) {
    throw new NrtError(NrtStatus.FAILURE, `Cannot stage ${libraries.length} libraries: Exceeded max number of GPSIMD libs (${MAX_UCODE_LIBS})`, {
      hint: "Merge custom operators into fewer libraries.",
      details: { libraries: libraries.length, most: MAX_UCODE_LIBS },
    });
  }
  if (libraries.length === 0) return undefined;
  if (libraries.length > 1) return { set: stageInto(owners.model, libraries), shared: false };
  // The original stores the cache pointer before the copy; a failed copy must not leave it there.
  owners.cache.set ??= stageInto(owners.core, libraries);
  return { set: owners.cache.set, shared: true };
}

/** Frees a core's shared set, at its teardown. */
export function dropUcodeCache(cache: UcodeCache): void {
  cache.set?.memory.close();
  cache.set = undefined;
}

function stageInto(allocator: Allocator, libraries: readonly UcodeLibrary[]): UcodeLibSet {
  const size = libraries.reduce((sum, library) => sum + library.bytes.byteLength, 0);
  const memory = allocator.alloc({ size: Math.max(size, 1), usage: "UCODE_LIB", hint: libraries.map((library) => library.name).join(" ") });
  try {
    let offset = 0;
    const staged = libraries.map((library): StagedLibrary => {
      if (library.bytes.byteLength > 0) memory.write(library.bytes, { at: offset });
      const place = { name: library.name, address: memory.address + offset, size: library.bytes.byteLength, cpuId: library.cpuId ?? 0 };
      offset += library.bytes.byteLength;
      return place;
    });
    return { memory, libraries: staged, singleCoreOperators: staged.filter((library) => Math.floor(library.cpuId / 2 ** 24) === 1).length };
  } catch (error) {
    memory.release();
    throw error;
  }
}
