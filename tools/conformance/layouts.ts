import { cFieldName } from "../../ffi/layout.ts";
import { decodeRequest } from "../../ffi/ioctl.ts";
import type { Request } from "../../lib/abi/request.ts";
import { requests } from "../../lib/abi/requests.ts";

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
