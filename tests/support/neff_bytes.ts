import assert from "node:assert/strict";
import { NeffError, type NeffErrorKind, parseNeff, readNeff } from "../../lib/neff/mod.ts";

/**
 * The same bytes in every place a caller may have them: a buffer of their own, a view at
 * an odd offset, a view with more bytes around it, a Buffer.
 */
export function placements(bytes: Uint8Array): readonly (readonly [string, Uint8Array])[] {
  const shifted = new Uint8Array(bytes.length + 3).fill(0xa5);
  shifted.set(bytes, 3);
  const inside = new Uint8Array(bytes.length + 4096).fill(0x5a);
  inside.set(bytes, 1001);
  return [
    ["own buffer", bytes.slice()],
    ["odd offset", shifted.subarray(3)],
    ["bytes around it", inside.subarray(1001, 1001 + bytes.length)],
    ["Buffer", Buffer.from(bytes)],
  ];
}

/** What a refusal has to say. */
export interface Refusal {
  readonly kind: NeffErrorKind;
  readonly status?: number;
  readonly message: RegExp;
  /** Offset in the file. */
  readonly offset?: number;
  readonly member?: string;
  readonly path?: string;
}

/** Asserts that an error is ours, says one line, and says what and where. */
export function assertRefusal(error: unknown, expected: Refusal): void {
  assert.ok(error instanceof NeffError, `not a NeffError: ${String(error)}`);
  assert.match(error.message, expected.message);
  assert.equal(error.kind, expected.kind, error.message);
  assert.equal(error.status, expected.status ?? 2, error.message);
  assert.ok(error.message.startsWith("Cannot read ") && !/[\r\n]/.test(error.message), error.message);
  if (expected.offset !== undefined) assert.equal(error.where.offset, expected.offset, error.message);
  if (expected.member !== undefined) assert.equal(error.where.member, expected.member, error.message);
  if (expected.path !== undefined) assert.equal(error.where.path, expected.path, error.message);
}

/** Reads the bytes in every placement, in one piece and as a stream; each time they must be refused alike. */
export async function refused(bytes: Uint8Array, expected: Refusal): Promise<void> {
  for (const [, placed] of placements(bytes)) {
    assert.throws(() => parseNeff(placed), (error) => (assertRefusal(error, expected), true));
  }
  await assert.rejects(readNeff(bytes, { retain: "definitions" }), (error) => (assertRefusal(error, { ...expected }), true));
}
