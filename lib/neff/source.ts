import { type FileHandle, open } from "node:fs/promises";
import { ArgumentError } from "../../ffi/error.ts";
import { NeffError, type NeffErrorKind } from "./error.ts";
import { plainBytes } from "./header.ts";
import type { NeffLimits } from "./limits.ts";

/** What a NEFF can be read from: a path, a `file:` URL, bytes, or a Blob (so `Bun.file(…)` too). */
export type NeffSource = string | URL | Uint8Array | ArrayBuffer | Blob;

/** Bytes that can be read anywhere, more than once. */
export interface FileBytes {
  /** For messages; undefined for bytes in memory. */
  readonly name: string | undefined;
  /** Path of a file, for whoever reads it on his own; undefined for everything else. */
  readonly path?: string | undefined;
  readonly size: number;
  /** Up to `length` bytes at `offset`; fewer only at the end. */
  read(offset: number, length: number): Promise<Uint8Array>;
  close(): Promise<void>;
}

/** Bytes per read of a file that passes by. */
const READ_BYTES = 512 * 1024;

/** Opens a source. Throws a `NeffError` for a file that is missing, not readable or no regular file. */
export async function openSource(source: NeffSource): Promise<FileBytes> {
  if (typeof source === "string") return openFile(source);
  if (source instanceof URL) {
    if (source.protocol !== "file:") {
      throw new ArgumentError(`Cannot read a NEFF from ${source.protocol} URLs`, { hint: "Give a path or a file URL." });
    }
    return openFile(process.getBuiltinModule("node:url").fileURLToPath(source));
  }
  if (source instanceof Uint8Array) return bytesSource(plainBytes(source));
  if (source instanceof ArrayBuffer) return bytesSource(new Uint8Array(source));
  if (source instanceof Blob) return blobSource(source);
  throw new ArgumentError(`Cannot read a NEFF from ${typeof source === "object" ? "this object" : `a ${typeof source}`}`, {
    hint: "Give a path, a file URL, bytes or a Blob.",
  });
}

function bytesSource(bytes: Uint8Array): FileBytes {
  return {
    name: undefined,
    size: bytes.length,
    read: (offset, length) => Promise.resolve(bytes.subarray(offset, offset + length)),
    close: () => Promise.resolve(),
  };
}

function blobSource(blob: Blob): FileBytes {
  return {
    name: (blob as { name?: string }).name,
    size: blob.size,
    read: async (offset, length) => new Uint8Array(await blob.slice(offset, offset + length).arrayBuffer()),
    close: () => Promise.resolve(),
  };
}

async function openFile(path: string): Promise<FileBytes> {
  let handle: FileHandle | undefined;
  try {
    handle = await open(path, "r");
    const stat = await handle.stat();
    if (!stat.isFile()) throw notAFile(path, stat.isDirectory() ? "it is a directory" : "it is no regular file");
    return fileSource(path, handle, stat.size);
  } catch (error) {
    await handle?.close();
    throw error instanceof NeffError ? error : systemFault(path, error);
  }
}

function fileSource(path: string, handle: FileHandle, size: number): FileBytes {
  return {
    name: path,
    path,
    size,
    read: async (offset, length) => {
      // Not cleared first: what is not filled is cut off below.
      const buffer = plainBytes(Buffer.allocUnsafeSlow(Math.max(0, Math.min(length, size - offset))));
      let filled = 0;
      while (filled < buffer.length) {
        const { bytesRead } = await handle.read(buffer, filled, Math.min(buffer.length - filled, 1 << 30), offset + filled).catch(
          (error: unknown) => {
            throw systemFault(path, error);
          },
        );
        if (bytesRead === 0) break;
        filled += bytesRead;
      }
      return buffer.subarray(0, filled);
    },
    close: () => handle.close(),
  };
}

function notAFile(path: string, reason: string): NeffError {
  return new NeffError(reason, { kind: "not-a-file", file: path, hint: "Give the path of a .neff file." });
}

const FAULTS: Readonly<Record<string, readonly [NeffErrorKind, string]>> = {
  ENOENT: ["missing", "no such file"],
  ENOTDIR: ["missing", "a part of its path is no directory"],
  EACCES: ["missing", "permission denied"],
  EPERM: ["missing", "permission denied"],
  EISDIR: ["not-a-file", "it is a directory"],
  ENXIO: ["not-a-file", "it is no regular file"],
  ELOOP: ["missing", "too many symbolic links"],
  ENAMETOOLONG: ["missing", "its name is too long"],
};

/** What the system said about a file, as the error of this package. */
export function systemFault(path: string, error: unknown): NeffError {
  const { code, name } = (error ?? {}) as { code?: string; name?: string };
  // Deno throws classes of its own from its permission system, without a code.
  const [kind, reason] = FAULTS[code ?? ""] ??
    (name === "NotCapable" || name === "PermissionDenied" ? FAULTS["EACCES"] : undefined) ??
    ["missing", String((error as Error)?.message ?? error)];
  return new NeffError(reason, { kind, file: path, details: { errno: code ?? null }, cause: error });
}

/** Reads a source whole. */
export async function readAll(source: FileBytes, limits: NeffLimits): Promise<Uint8Array> {
  if (source.size > limits.fileBytes) {
    throw new NeffError(`the file has ${source.size} bytes, at most ${limits.fileBytes} are read into memory`, {
      kind: "limit",
      file: source.name,
      hint: 'Read it with retain: "definitions": then payloads stay in the file.',
    });
  }
  return source.read(0, source.size);
}

/** A range of a source, piece by piece. */
export async function* readChunks(
  source: FileBytes,
  range: { readonly offset: number; readonly length: number },
): AsyncGenerator<Uint8Array> {
  const end = range.offset + range.length;
  for (let at = range.offset; at < end;) {
    const chunk = await source.read(at, Math.min(READ_BYTES, end - at));
    if (chunk.length === 0) return;
    at += chunk.length;
    yield chunk;
  }
}
