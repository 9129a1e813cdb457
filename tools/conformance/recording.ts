import { gunzipSync } from "node:zlib";
import { NeuronError } from "../../ffi/error.ts";
import { decodeRequest, type Request } from "../../lib/abi/request.ts";
import { cFieldName } from "../../ffi/layout.ts";
import type { Product } from "../../lib/abi/architecture.ts";
import { requests } from "../../lib/abi/requests.ts";

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

/** One field of an argument as recordings name it. */
export interface FieldPlace {
  /** Byte offset. */
  readonly offset: number;
  /** Bytes of one element. */
  readonly size: number;
  /** Number of elements. */
  readonly count: number;
}

/** Where the fields of a request's argument lie, by C name; `name[i]` is element i. */
export interface ArgumentLayout {
  /** Bytes to set up: the largest form of the request. */
  readonly bytes: number;
  /** The place of a field, or undefined when the argument has none of that name. */
  place(name: string): FieldPlace | undefined;
}

const all = Object.values(requests) as readonly Request[];
/** Names that recordings use for fields of the header. */
const ALIASES: Readonly<Record<string, readonly string[]>> = { index: ["semaphore_index", "event_index"] };
/** Arguments that are a plain integer. */
const SCALARS: Readonly<Record<string, Readonly<Record<string, FieldPlace>>>> = {
  DEVICE_APP_PID: { pid: { offset: 0, size: 4, count: 1 } },
  DEVICE_READY: { value: { offset: 0, size: 1, count: 1 } },
  DEVICE_RESET_STATUS: { value: { offset: 0, size: 1, count: 1 } },
};
const cache = new Map<string, ArgumentLayout>();

/** The layout of a step's argument, by its name; variants of one number share their fields. */
export function layoutOf(name: string, request: number): ArgumentLayout {
  const key = `${name} ${request}`;
  let layout = cache.get(key);
  if (layout === undefined) cache.set(key, layout = build(name, request));
  return layout;
}

function build(name: string, request: number): ArgumentLayout {
  const base = name.split(/[ ,]/)[0]!;
  const own = all.find((each) => each.name === base);
  const { number } = decodeRequest(request);
  const variants = [...(own === undefined ? [] : [own]), ...all.filter((each) => each.number === (own?.number ?? number) && each !== own)];
  const fields = new Map<string, FieldPlace>();
  for (const variant of variants) addFields(fields, variant);
  const scalar = SCALARS[base];
  return {
    bytes: Math.max(64, ...variants.map((variant) => variant.argumentBytes)),
    place(field) {
      if (scalar !== undefined) return scalar[field];
      const element = /^(.*)\[(\d+)\]$/.exec(field);
      if (element !== null) {
        const list = fields.get(element[1]!);
        return list === undefined ? undefined : { offset: list.offset + Number(element[2]) * list.size, size: list.size, count: 1 };
      }
      return fields.get(field) ?? ALIASES[field]?.map((alias) => fields.get(alias)).find((place) => place !== undefined);
    },
  };
}

/** Adds the fields that are not there yet: an earlier variant's place wins. */
function addFields(fields: Map<string, FieldPlace>, request: Request): void {
  for (const [key, field] of Object.entries(request.argument?.fields ?? {})) {
    const name = cFieldName(key, field);
    const count = field.kind === "bytes" || field.kind === "chars" ? field.size : field.count ?? 1;
    if (!fields.has(name)) fields.set(name, { offset: field.offset, size: field.size / count, count });
  }
}
