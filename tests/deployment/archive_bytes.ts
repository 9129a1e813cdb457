import { deflateRawSync } from "node:zlib";
import { PbfWriter } from "pbf";

/** A member to write; the odd ones are for tests of bad archives. */
export interface ZipPart {
  readonly name: string;
  readonly data: Uint8Array;
  readonly deflate?: boolean;
  readonly flags?: number;
  /** What the directory says instead of the size. */
  readonly claimedBytes?: number;
}

/** A zip archive as PyTorch writes one; with `zip64` all sizes stand in the large fields. */
export function zipOf(parts: readonly ZipPart[], { zip64 = false }: { readonly zip64?: boolean } = {}): Uint8Array {
  const out: Buffer[] = [];
  const directory: Buffer[] = [];
  let at = 0;
  const put = (bytes: Buffer): void => {
    out.push(bytes);
    at += bytes.length;
  };
  for (const { name, data, deflate = false, flags = 0, claimedBytes } of parts) {
    const stored = deflate ? deflateRawSync(data) : Buffer.from(data);
    const header = Buffer.alloc(30);
    header.writeUInt32LE(0x04034b50, 0);
    header.writeUInt16LE(Buffer.byteLength(name), 26);
    header.writeUInt16LE(7, 28);
    const sizes = [claimedBytes ?? data.length, stored.length, at] as const;
    const extra = zip64 ? Buffer.alloc(28) : Buffer.alloc(0);
    if (zip64) {
      extra.writeUInt16LE(1, 0);
      extra.writeUInt16LE(24, 2);
      sizes.forEach((size, index) => extra.writeBigUInt64LE(BigInt(size), 4 + 8 * index));
    }
    const entry = Buffer.alloc(46);
    entry.writeUInt32LE(0x02014b50, 0);
    entry.writeUInt16LE(flags, 8);
    entry.writeUInt16LE(deflate ? 8 : 0, 10);
    [[24, sizes[0]], [20, sizes[1]], [42, sizes[2]]].forEach(([offset, size]) => entry.writeUInt32LE(zip64 ? 0xffff_ffff : size!, offset!));
    entry.writeUInt16LE(Buffer.byteLength(name), 28);
    entry.writeUInt16LE(extra.length, 30);
    directory.push(entry, Buffer.from(name), extra);
    put(header);
    put(Buffer.from(name));
    put(Buffer.alloc(7));
    put(stored);
  }
  const start = at;
  for (const bytes of directory) put(bytes);
  const length = at - start;
  if (zip64) {
    const record = Buffer.alloc(56);
    record.writeUInt32LE(0x06064b50, 0);
    [[32, parts.length], [40, length], [48, start]].forEach(([offset, size]) => record.writeBigUInt64LE(BigInt(size!), offset));
    const locator = Buffer.alloc(20);
    locator.writeUInt32LE(0x07064b50, 0);
    locator.writeBigUInt64LE(BigInt(at), 8);
    put(record);
    put(locator);
  }
  const end = Buffer.alloc(22);
  end.writeUInt32LE(0x06054b50, 0);
  end.writeUInt16LE(zip64 ? 0xffff : parts.length, 10);
  end.writeUInt32LE(zip64 ? 0xffff_ffff : length, 12);
  end.writeUInt32LE(zip64 ? 0xffff_ffff : start, 16);
  put(end);
  return new Uint8Array(Buffer.concat(out));
}

/** A tensor of a metaneff; type 1 is float32. */
export interface MetaPart {
  readonly name: string;
  readonly shape: readonly number[];
  readonly role?: 0 | 1 | 2 | 3;
  readonly key?: string;
}

/** A metaneff, with a field nobody knows in it. */
export function metaneffOf({ inputs, outputs, aliases = [] }: { inputs: readonly MetaPart[]; outputs: readonly MetaPart[]; aliases?: readonly (readonly [number, number])[] }): Uint8Array {
  const writer = new PbfWriter();
  const tensor = ({ name, shape, role = 0, key }: MetaPart, to: PbfWriter): void => {
    to.writeBytesField(1, Buffer.from(name));
    to.writePackedVarint(2, [...shape]);
    to.writeVarintField(3, 1);
    if (key !== undefined) to.writeBytesField(role === 1 ? 8 : 6, Buffer.from(key));
    if (role !== 0) to.writeVarintField(7, role);
  };
  for (const one of inputs) writer.writeMessage(1, tensor, one);
  for (const one of outputs) writer.writeMessage(2, tensor, one);
  for (const alias of aliases) {
    writer.writeMessage(6, ([output, input]: readonly [number, number], to: PbfWriter) => {
      if (output !== 0) to.writeVarintField(1, output);
      if (input !== 0) to.writeVarintField(2, input);
    }, alias);
  }
  writer.writeBytesField(77, Buffer.from("later"));
  return writer.finish();
}

/** Bytes of a pickle: texts for opcodes, byte strings with their length in front. */
export function pickleOf(...parts: readonly (string | Uint8Array)[]): Uint8Array {
  return new Uint8Array(Buffer.concat(parts.map((part) => (typeof part === "string" ? Buffer.from(part, "latin1") : byteString(part)))));
}

/** A program of an archive. */
export interface ProgramPart {
  readonly tag: string;
  readonly buckets: readonly { readonly neff: Uint8Array; readonly metaneff: Uint8Array }[];
}

/** `data.pkl` as NxD's builder leaves it: tags, each with a list of SPMDModels; equal strings are kept once. */
export function nxdPickle(programs: readonly ProgramPart[]): Uint8Array {
  const memo = new Map<Uint8Array, number>();
  const kept = (bytes: Uint8Array): (string | Uint8Array)[] => {
    const index = memo.get(bytes);
    if (index !== undefined) return [`h${String.fromCharCode(index)}`];
    memo.set(bytes, memo.size + 10);
    return [bytes, `q${String.fromCharCode(memo.get(bytes)!)}`];
  };
  const object = "c__torch__.torch.classes.neuron\nSPMDModel\n)\x81";
  const models = programs.flatMap(({ tag, buckets }) => [
    new TextEncoder().encode(tag), "c__torch__\nBucket\n)\x81}(", new TextEncoder().encode("models"), "](",
    ...buckets.flatMap(({ neff, metaneff }) => [object, "(", ...kept(neff), ...kept(metaneff), "K\x02K\x02tb"]), "eub",
  ]);
  return pickleOf("\x80\x02c__torch__\nRoot\n)\x81}(", new TextEncoder().encode("models"), "c__torch__\nDict\n)\x81}(", ...models, "ubub.");
}

/** An archive with that pickle. */
export function nxdArchive(programs: readonly ProgramPart[]): Uint8Array {
  return zipOf([{ name: "model/data.pkl", data: nxdPickle(programs) }, { name: "model/code/__torch__.py", data: Buffer.from("pass\n".repeat(99)), deflate: true }]);
}

function byteString(bytes: Uint8Array): Buffer {
  const length = Buffer.alloc(4);
  length.writeUInt32LE(bytes.length);
  return Buffer.concat([Buffer.from("X"), length, bytes]);
}
