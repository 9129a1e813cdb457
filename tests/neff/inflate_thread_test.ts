import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { copyFileSync, mkdtempSync, openSync, readdirSync, readFileSync, rmSync, statSync, truncateSync, writeSync, closeSync } from "node:fs";
import { spawnSync } from "node:child_process";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { writeLargeNeff } from "../../bench/support/large_neff.ts";
import { limitsWith } from "../../lib/neff/limits.ts";
import { NeffError, openNeff, streamMembers } from "../../lib/neff/mod.ts";
import { passMembers, placeIn } from "../../lib/neff/stream.ts";

const MIB = 2 ** 20;
const SIZE = 24 * MIB;
const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-inflate-"));
const path = join(folder, "large.neff");
await writeLargeNeff(path, SIZE, "first");
after(() => rmSync(folder, { recursive: true }));

/** Names, sizes and hashes of all members. */
async function membersOf(source: string | Uint8Array): Promise<[string, number, string][]> {
  const members: [string, number, string][] = [];
  for await (const { name, size, chunks } of streamMembers(source)) {
    const hash = createHash("md5");
    for await (const chunk of chunks()) hash.update(chunk);
    members.push([name, size, hash.digest("hex")]);
  }
  return members;
}

const threads = () => readdirSync("/proc/self/task").length;
/** How often the file is open. */
const files = () => readdirSync("/proc/self/fd").filter((fd) => statSync(`/proc/self/fd/${fd}`, { throwIfNoEntry: false })?.ino === statSync(path).ino).length;

test("a large file inflated on a thread of its own gives what the same bytes in memory give, and tells its progress", async () => {
  assert.ok(statSync(path).size > 17 * MIB, "large enough for the thread");
  assert.deepEqual(await membersOf(path), await membersOf(readFileSync(path)));
  const seen: number[] = [];
  await using passing = await openNeff(path, { keptBytes: MIB, onProgress: (done) => seen.push(done) });
  let bytes = 0;
  for await (const { chunks } of passing.rest()) for await (const chunk of chunks()) bytes += chunk.length;
  assert.ok(bytes > SIZE);
  assert.deepEqual(seen, seen.toSorted((a, b) => a - b));
  assert.equal(seen.at(-1), statSync(path).size - 1024);
});

test("however a reading of a large file ends, thread and file end with it", async () => {
  await membersOf(path);
  const before = threads();
  for (let round = 0; round < 6; round++) {
    for await (const { size, chunks } of streamMembers(path)) {
      if (size < MIB) continue;
      for await (const chunk of chunks()) if (chunk.length > 0 && round % 2 === 0) break;
      break;
    }
  }
  assert.equal(files(), 0);
  // Runtimes keep a thread or two of their own in reserve; one per reading would be six.
  assert.ok(threads() <= before + 3, `${before} threads before, ${threads()} after`);
});

test("damage in a large file is the error that the same bytes in memory give", async () => {
  const broken = join(folder, "broken.neff");
  /** Shortens the file, and the payload its header announces (a u64 at byte 16). */
  const cut = (fd: number, size: number) => {
    truncateSync(broken, size);
    writeSync(fd, BigUint64Array.of(BigInt(size - 1024)), 0, 8, 16);
  };
  const faults: readonly ((fd: number, size: number) => void)[] = [
    (fd) => void writeSync(fd, new Uint8Array(64).fill(0xff), 0, 64, 9 * MIB),
    (fd, size) => cut(fd, size - 5),
    (fd, size) => cut(fd, size - 3 * MIB),
    (fd, size) => void writeSync(fd, Uint8Array.of(1, 2, 3, 4), 0, 4, size - 8),
  ];
  for (const fault of faults) {
    copyFileSync(path, broken);
    const fd = openSync(broken, "r+");
    fault(fd, statSync(broken).size);
    closeSync(fd);
    const [onThread, inMemory] = await Promise.all([broken, new Uint8Array(readFileSync(broken))].map((source) => membersOf(source).then(
      () => assert.fail("was read"), (error: unknown) => error)));
    assert.ok(onThread instanceof NeffError && inMemory instanceof NeffError, String(onThread));
    assert.equal(onThread.message.replace(broken, "the NEFF"), inMemory.message);
    assert.equal(onThread.kind, inMemory.kind);
  }
});

test("a reading that is given up does not keep the process", () => {
  const program = `import { openNeff } from ${JSON.stringify(new URL("../../lib/neff/mod.ts", import.meta.url).href)};
    const passing = await openNeff(${JSON.stringify(path)}, { keptBytes: ${MIB} });
    const { value } = await passing.rest().next();
    const chunks = value.chunks();
    let bytes = 0;
    while (bytes < ${2 * MIB}) bytes += (await chunks.next()).value.length;
    console.log("given up");`;
  const root = fileURLToPath(new URL("../../", import.meta.url));
  const args = "Bun" in globalThis ? ["-e", program] : ["eval", "--no-check", "--quiet", program];
  const { stdout, status, signal } = spawnSync(process.execPath, args, { encoding: "utf8", timeout: 20_000, cwd: root });
  assert.deepEqual([stdout.trim(), status, signal], ["given up", 0, null]);
});

test("a file that is gone when the thread opens it is told as for any other read", async () => {
  const bytes = readFileSync(path);
  const gone = join(folder, "gone.neff");
  const source = { name: gone, path: gone, size: bytes.length, read: async (offset: number, length: number) => bytes.subarray(offset, offset + length), close: async () => {} };
  const place = await placeIn(source, limitsWith(undefined));
  await assert.rejects(passMembers(source, place, {}).next(), (error: unknown) => error instanceof NeffError && error.kind === "missing" && /no such file/.test(error.message));
});
