import { NeffError, printable } from "./error.ts";
import type { TarEntry } from "./tar.ts";
import { tarError } from "./tar.ts";

/** Files whose names end so are not read by the runtime either. */
const SKIPPED_SUFFIX = "wavegraph-bin.json";

/**
 * The name under which the runtime knows an entry of the archive: one leading `./`
 * is removed, the rest stays as it is. Undefined for what it skips: directories and
 * `*wavegraph-bin.json`. Names that could leave a directory when unpacked are refused.
 */
export function memberName(entry: TarEntry): string | undefined {
  if (entry.type === "directory") return undefined;
  const name = entry.name.startsWith("./") ? entry.name.slice(2) : entry.name;
  const fault = nameFault(name);
  if (fault !== undefined) {
    throw new NeffError(`member "${printable(entry.name)}" ${fault}`, {
      kind: "unsafe-name",
      where: { member: "tar", memberOffset: entry.headerOffset },
      hint: "No compiler writes such names; unpacking the file could overwrite others.",
    });
  }
  return name.endsWith(SKIPPED_SUFFIX) ? undefined : name;
}

/** What makes a member's name unsafe as a path, in words; undefined for a safe one. */
export function nameFault(name: string): string | undefined {
  if (name === "") return "has no name";
  if (name.includes("\0")) return "has a NUL in its name";
  if (name.includes("\\")) return "has a backslash in its name";
  if (name.startsWith("/")) return "has an absolute path";
  return name.split("/").includes("..") ? 'has ".." in its path' : undefined;
}

/** Refuses a name that was there before. */
export function refuseRepeated(names: { has(name: string): boolean }, name: string, entry: TarEntry): void {
  if (names.has(name)) throw tarError(`member "${printable(name)}" occurs twice`, entry.headerOffset);
}
