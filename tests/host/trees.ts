/** sysfs trees for tests: recorded ones, made ones, and a view of a tree with the eyes of an unprivileged process. */
import { readFileSync } from "node:fs";
import { Errno } from "../../ffi/errno.ts";
import type { SysfsReader } from "../../lib/host/sysfs_memory.ts";
import { corpusPath } from "../support/corpus.ts";

const CLASS = "/sys/class/neuron_device";

/** A reader over files in memory, by absolute path. */
export function treeReader(files: ReadonlyMap<string, string>, options: { readonly modes?: ReadonlyMap<string, number>; readonly isRoot?: boolean } = {}): SysfsReader {
  return {
    readText(path) {
      const text = files.get(path);
      if (text === undefined) return -Errno.ENOENT!;
      return options.isRoot === false && ((options.modes?.get(path) ?? 0o444) & 0o004) === 0 ? -Errno.EACCES! : text;
    },
    list(path) {
      const below = `${path.replace(/\/+$/, "")}/`;
      const names = new Set([...files.keys()].filter((name) => name.startsWith(below)).map((name) => name.slice(below.length).split("/")[0]!));
      return names.size === 0 ? -Errno.ENOENT! : [...names].sort();
    },
  };
}

/** The files of an idle device as recorded from the real driver, as device `index`, with their permissions. */
export function recordedTree(product: "inf2" | "trn1" | "trn2", index = 0): { readonly files: Map<string, string>; readonly modes: Map<string, number> } {
  const files = new Map<string, string>();
  const modes = new Map<string, number>();
  let folder = `${CLASS}/neuron${index}`;
  for (const line of readFileSync(corpusPath(`conformance/sysfs-2.24.7-${product}.txt`), "utf8").split("\n")) {
    const place = /^# (\/sys\/\S+)$/.exec(line);
    if (place !== null) folder = place[1]!;
    const match = /^(?:(\d{4}) )?(\S+) = (".*")$/.exec(line);
    if (match === null) continue;
    files.set(`${folder}/${match[2]}`, JSON.parse(match[3]!) as string);
    if (match[1] !== undefined) modes.set(`${folder}/${match[2]}`, Number.parseInt(match[1], 8));
  }
  return { files, modes };
}
