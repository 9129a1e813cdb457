import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";

/** A folder for the files of a test file; gone afterwards. */
export function testFolder(): (name: string, bytes: Uint8Array) => string {
  const folder = mkdtempSync(join(tmpdir(), "acceptance-"));
  after(() => rmSync(folder, { recursive: true, force: true }));
  return (name, bytes) => {
    const path = join(folder, name);
    writeFileSync(path, bytes);
    return path;
  };
}
