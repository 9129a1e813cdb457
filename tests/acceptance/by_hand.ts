/**
 * Compiled models put together byte by byte, by none of the product's code: what a
 * reader is checked against must not come from the writer beside it.
 */
import { createHash } from "node:crypto";
import { deflateRawSync } from "node:zlib";

/** A member of an archive: name and content. */
export type HandMember = readonly [name: string, content: string | Uint8Array];

/** How the archive is written. */
export type Dialect = "ustar" | "prefix" | "gnu" | "pax" | "pax-overrides";

/** How a file is written; header fields may lie. */
export interface HandFile {
  readonly dialect?: Dialect;
  readonly gzip?: boolean;
  /** Bytes behind the payload's archive, counted by the header. */
  readonly padding?: Uint8Array;
  readonly packager?: 1 | 2;
  readonly features?: bigint;
  readonly logicalSize?: number;
  readonly modified?: number;
}

const text = (value: string): Uint8Array => new TextEncoder().encode(value);
const join = (...parts: readonly Uint8Array[]): Uint8Array => new Uint8Array(Buffer.concat(parts));

function block(name: string, size: number, options: { flag?: string; magic?: string; prefix?: string; modified?: number } = {}): Uint8Array {
  const bytes = new Uint8Array(512);
  const put = (at: number, value: string): void => bytes.set(text(value), at);
  const octal = (at: number, digits: number, value: number): void => put(at, `${value.toString(8).padStart(digits, "0")}\0`);
  put(0, name);
  octal(100, 7, 0o644);
  octal(108, 7, 0);
  octal(116, 7, 0);
  octal(124, 11, size);
  octal(136, 11, Math.max(0, options.modified ?? 0));
  // GNU tar writes what octal digits cannot say in base-256, two's complement.
  if ((options.modified ?? 0) < 0) {
    bytes.fill(0xff, 136, 148);
    new DataView(bytes.buffer).setBigInt64(140, BigInt(options.modified!));
  }
  put(156, options.flag ?? "0");
  put(257, options.magic ?? "ustar\x0000");
  put(345, options.prefix ?? "");
  put(148, "        ");
  octal(148, 6, bytes.reduce((sum, byte) => sum + byte, 0));
  bytes[155] = 0x20;
  return bytes;
}

const padded = (bytes: Uint8Array): Uint8Array => join(bytes, new Uint8Array((512 - bytes.length % 512) % 512));

function paxRecord(key: string, value: string): string {
  const body = ` ${key}=${value}\n`;
  const bytes = text(body).length;
  for (let length = bytes + 1;; length++) if (String(length).length + bytes === length) return `${length}${body}`;
}

function entry([name, content]: HandMember, { dialect = "ustar", modified = 0 }: HandFile): Uint8Array {
  const data = typeof content === "string" ? text(content) : content;
  const slash = name.lastIndexOf("/");
  switch (dialect) {
    case "prefix":
      return join(block(name.slice(slash + 1), data.length, slash < 0 ? {} : { prefix: name.slice(0, slash) }), padded(data));
    case "gnu": {
      const long = text(name).length > 100 ? join(block("././@LongLink", name.length + 1, { flag: "L", magic: "ustar  \0" }), padded(text(`${name}\0`))) : new Uint8Array();
      return join(long, block(name.slice(0, 100), data.length, { magic: "ustar  \0", modified }), padded(data));
    }
    case "pax":
    case "pax-overrides": {
      const records = text(dialect === "pax" ? paxRecord("mtime", "1700000000.25") : paxRecord("path", name) + paxRecord("size", String(data.length)));
      const own = dialect === "pax" ? block(name, data.length) : block("not-this-name", 0);
      return join(block("PaxHeader/x", records.length, { flag: "x" }), padded(records), own, padded(data));
    }
    default:
      return join(block(name, data.length), padded(data));
  }
}

function crc32(bytes: Uint8Array): number {
  let sum = 0xffff_ffff;
  for (const byte of bytes) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit++) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb8_8320 : 0);
  }
  return ~sum >>> 0;
}

function gzip(bytes: Uint8Array): Uint8Array {
  const trailer = new DataView(new ArrayBuffer(8));
  trailer.setUint32(0, crc32(bytes), true);
  trailer.setUint32(4, bytes.length, true);
  return join(Uint8Array.of(0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3), deflateRawSync(bytes), new Uint8Array(trailer.buffer));
}

/** A NEFF of these members. */
export function neffByHand(members: readonly HandMember[], file: HandFile = {}): Uint8Array {
  const tar = join(...members.map((member) => entry(member, file)), new Uint8Array(1024));
  const payload = join(file.gzip === false ? tar : gzip(tar), file.padding ?? new Uint8Array());
  const header = new Uint8Array(1024);
  const view = new DataView(header.buffer);
  const features = file.features ?? 0n;
  const packager = file.packager ?? 2;
  const longs = [BigInt(packager), 1024n, BigInt(payload.length), features === 0n ? 1n : 2n, 0n];
  longs.forEach((value, index) => view.setBigUint64(8 * index, value, true));
  view.setUint32(0xa8, 1, true);
  header.set(createHash(packager === 1 ? "sha256" : "md5").update(payload).digest(), 0xac);
  header.fill(7, 0xcc, 0xdc);
  header.set(text("hand.neff"), 0xdc);
  view.setUint32(0x1dc, 1, true);
  header[0x1e0] = 1;
  view.setBigUint64(0x220, features, true);
  view.setUint32(0x228, file.logicalSize ?? 1, true);
  return join(header, payload);
}

/** A definition's `var` object. */
export type Variables = Readonly<Record<string, Readonly<Record<string, unknown>>>>;

/** What a model made by hand consists of. */
export interface HandModel {
  /** One `var` object per subgraph. */
  readonly subgraphs: readonly Variables[];
  readonly target?: string | null;
  /** More members, with their full names. */
  readonly files?: readonly HandMember[];
}

function hostGraph(subgraphs: readonly Variables[]): unknown {
  const names = (type: string): string[] => [...new Set(subgraphs.flatMap((variables) => Object.keys(variables).filter((name) => variables[name]!["type"] === type)))];
  const sizeOf = (name: string): unknown => subgraphs.find((variables) => Object.hasOwn(variables, name))![name]!["size"];
  const inputs = names("input");
  const outputs = subgraphs.flatMap(() => names("output"));
  const all = [...inputs, ...outputs];
  return {
    nodes: [
      ...inputs.map((name) => ({ op: "null", name, inputs: [], output_names: [name], is_param: "0" })),
      { op: "tvm_op", name: "sg_coreV10", attrs: { func_name: "__kelf", kelf: "kelf-0.json" }, inputs: inputs.map((_, index) => [index, 0, 0]), output_names: outputs },
    ],
    arg_nodes: inputs.map((_, index) => index),
    heads: outputs.map((_, index) => [inputs.length, index, 0]),
    node_row_ptr: [...inputs.map((_, index) => index), inputs.length, all.length],
    attrs: { shape: ["list_shape", all.map((name) => [sizeOf(name)])], dltype: ["list_str", all.map(() => "uint8")], storage_id: ["list_int", all.map((_, index) => index)] },
  };
}

/** The members of a model, in an order no compiler uses. */
export function membersOf(model: HandModel): HandMember[] {
  const { subgraphs, target = "sunda", files = [] } = model;
  const definitions = subgraphs.flatMap((variables, index): HandMember[] => {
    const folder = `sg0${index}`;
    return [
      [`${folder}/SP.bin`, new Uint8Array(128)],
      [`${folder}/def.json`, JSON.stringify({ name: "definition", version: "0.6", var: variables, dma_queue: {}, sp: "SP.json" })],
      [`${folder}/SP.json`, JSON.stringify({ name: "sp", instr: "SP.bin", dma: [] })],
    ];
  });
  const kelf = {
    graphs: subgraphs.map((_, index) => ({ definition: `sg0${index}/def.json`, name: `sg0${index}` })),
    version: "0.5",
    ...(target === null ? {} : { target }),
  };
  return [...files, ...definitions, ["neff.json", JSON.stringify(hostGraph(subgraphs))], ["kelf-0.json", JSON.stringify(kelf)]];
}

/** A model as a file. */
export function modelByHand(model: HandModel, file: HandFile = {}): Uint8Array {
  return neffByHand(membersOf(model), { logicalSize: model.subgraphs.length, ...file });
}

/** A constant as numpy writes it, version 1 or 2. */
export function npyByHand(data: Uint8Array, version: 1 | 2 = 1): Uint8Array {
  const lengthBytes = version === 1 ? 2 : 4;
  const header = `{'descr': '|u1', 'fortran_order': False, 'shape': (${data.length},), }`.padEnd(128 - 8 - lengthBytes - 1);
  const length = new Uint8Array(lengthBytes);
  length[0] = 128 - 8 - lengthBytes;
  return join(Uint8Array.of(0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, version, 0), length, text(`${header}\n`), data);
}
