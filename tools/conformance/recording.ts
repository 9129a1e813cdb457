import { gunzipSync } from "node:zlib";
import { NeuronError } from "../../ffi/error.ts";
import type { Product } from "../../lib/abi/architecture.ts";

/** A value of a recorded field: 64-bit values are `"0x…"` text, smaller ones numbers. */
export type Value = string | number | readonly Value[] | { readonly [name: string]: Value };

/** One thing that happened, as it was written down. */
export interface Step {
  /** Kind of step: `ioctl`, `open`, `mmap`, … */
  readonly op: string;
  /** Process label. */
  readonly proc: string;
  /** Descriptor label. */
  readonly fd?: string;
  /** Name of the request. */
  readonly name?: string;
  /** Its 32-bit number, `"0x…"`. */
  readonly request?: string;
  /** What was given. */
  readonly in?: { readonly [name: string]: Value };
  /** Where given values come from. */
  readonly refs?: { readonly [name: string]: string };
  /** Raw result. */
  readonly ret?: number;
  /** Name of the errno. */
  readonly errno?: string | null;
  /** What came back. */
  readonly out?: { readonly [name: string]: Value };
  /** Label of the resulting handle or mapping. */
  readonly binds?: string;
  /** Label of the resulting address. */
  readonly binds_pa?: string;
  /** Fields that must not be compared. */
  readonly volatile?: readonly string[];
  /** Whether what was read was written through an earlier chunk. */
  readonly stale?: boolean;
  /** Remark of a `note`. */
  readonly text?: string;
}

/** What happened on one freshly loaded driver. */
export interface Scenario {
  /** Its name. */
  readonly name: string;
  /** What it is about. */
  readonly category: string;
  /** `absent`: recorded without a copy engine. */
  readonly dma_engine?: string;
  /** Number of devices, where it is given. */
  readonly devices?: number;
  /** Module parameters other than the recording's. */
  readonly module_parameters?: Readonly<Record<string, number>>;
  /** The steps in order. */
  readonly steps: readonly Step[];
}

/** A recording of the driver. */
export interface Recording {
  /** What was recorded. */
  readonly driver: { readonly version: string; readonly device: Product; readonly module_parameters?: Readonly<Record<string, number>> };
  /** Request numbers by name, where steps do not carry them. */
  readonly requests?: Readonly<Record<string, string>>;
  /** The scenarios. */
  readonly scenarios: readonly Scenario[];
}

/**
 * Reads a recording from the bytes of a `.json` or `.json.gz` file.
 *
 * @throws {NeuronError} when it is not one
 */
export function parseRecording(bytes: Uint8Array, name = "the recording"): Recording {
  let value: Partial<Recording>;
  try {
    const plain = bytes[0] === 0x1f && bytes[1] === 0x8b ? gunzipSync(bytes) : bytes;
    value = JSON.parse(new TextDecoder().decode(plain)) as Partial<Recording>;
  } catch (cause) {
    throw new NeuronError(`Cannot read ${name}: it is not JSON, or not whole`, { cause });
  }
  if (value === null || typeof value !== "object" || !Array.isArray(value.scenarios) || value.driver?.device === undefined) {
    throw new NeuronError(`Cannot read ${name}: it has no "driver" and "scenarios"`, { hint: "A recording of the driver's answers is expected." });
  }
  return value as Recording;
}

/** Number of devices a scenario was recorded with, as far as it shows. */
export function deviceCount(scenario: Scenario): number {
  let count = scenario.devices ?? 1;
  for (const step of scenario.steps) {
    const path = /^\/dev\/neuron(\d+)$/.exec(String(step.in?.["path"] ?? ""));
    if (path !== null && (step.ret ?? -1) >= 0) count = Math.max(count, Number(path[1]) + 1);
    if (step.name === "HOST_DEVICE_ID_TO_RID_MAP" && typeof step.out?.["count"] === "number") count = Math.max(count, step.out["count"]);
  }
  return count;
}
