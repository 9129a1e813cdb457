import { mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { Errno } from "../../ffi/errno.ts";
import type { Device } from "./device.ts";
import { classFiles, deviceFiles, moduleFiles, type SysfsFile, type SysfsHost, type SysfsTree } from "./sysfs_files.ts";

const DEVICES = "/sys/devices/virtual/neuron_device";
const CLASS = "/sys/class/neuron_device";
const MODULE = "/sys/module/neuron";

/** What the machine gives its sysfs. */
export interface SysfsSource extends SysfsHost {
  /** Devices by index; sparse. */
  readonly devices: readonly (Device | undefined)[];
  /** Full driver version. */
  readonly driverVersion: string;
  /** Module parameters. */
  readonly parameters: Readonly<Record<string, number>>;
  /** Refuses a write to a counter: 0 to carry it out, else the result to return. */
  refuseCounterWrite(path: string): number;
}

/** Keeps a copy of the files in a directory. */
export interface SysfsExport {
  /** Brings the files up to date; cheap when no counter changed. */
  refresh(): void;
  /** Stops keeping them current. The files stay. */
  close(): void;
}

/** The driver's part of sysfs: files made when somebody looks. */
export class Sysfs {
  readonly #source: SysfsSource;
  readonly #trees = new Map<string, SysfsTree>();

  constructor(source: SysfsSource) {
    this.#source = source;
  }

  /** The text of a file, or −errno. */
  read(path: string): string | number {
    const file = this.#find(path);
    if (file !== undefined) return file.read();
    return this.#names(path) === undefined ? -Errno.ENOENT : -Errno.EISDIR;
  }

  /** Writes to a file as `write(2)` does. Returns the bytes written, or −errno. */
  write(path: string, text: string): number {
    const file = this.#find(path);
    if (file === undefined) return -Errno.ENOENT;
    if ((file.mode & 0o222) === 0) return -Errno.EACCES;
    if (file.counter === true) {
      const refused = this.#source.refuseCounterWrite(path);
      if (refused !== 0) return refused;
    }
    file.write?.(text);
    return new TextEncoder().encode(text).length;
  }

  /** Permission bits of a file, or undefined. */
  mode(path: string): number | undefined {
    return this.#find(path)?.mode;
  }

  /** Names in a directory, sorted, or −errno. */
  list(path: string): readonly string[] | number {
    if (path.replace(/\/+$/, "") === "/dev") return this.#deviceNames().sort();
    const names = this.#names(path);
    if (names !== undefined) return names;
    return this.#find(path) === undefined ? -Errno.ENOENT : -Errno.ENOTDIR;
  }

  /** All files below the directory of a device, of the class or of the module, by path; empty for other directories. */
  tree(directory: string): SysfsTree {
    const [found, rest] = this.#split(directory);
    return found === undefined || rest !== "" ? new Map() : this.#treeOf(found) ?? new Map();
  }

  /**
   * Writes all files below `root`, which stands for `/sys`, and keeps them
   * current at `refresh`.
   *
   * @param options.interval refresh every so many milliseconds; default never by itself
   */
  export(root: string, options: { readonly interval?: number } = {}): SysfsExport {
    const written = new Map<string, string>();
    const changes = new Map<number, number>();
    const store = (directory: string, tree: SysfsTree) => {
      for (const [path, file] of tree) writeIfChanged(written, join(root, directory.slice("/sys".length), path), file);
    };
    const refresh = () => {
      for (const device of this.#source.devices) {
        if (device === undefined || changes.get(device.index) === device.counters.changes) continue;
        changes.set(device.index, device.counters.changes);
        store(`${DEVICES}/neuron${device.index}`, this.tree(`${DEVICES}/neuron${device.index}`));
      }
    };
    for (const [directory, tree] of this.#all()) store(directory, tree);
    for (const name of this.#deviceNames()) link(`../../devices/virtual/neuron_device/${name}`, join(root, "class/neuron_device", name));
    refresh();
    const timer = options.interval === undefined ? undefined : setInterval(refresh, options.interval);
    (timer as { unref?: () => void } | undefined)?.unref?.();
    return { refresh, close: () => clearInterval(timer) };
  }

  #deviceNames(): string[] {
    return this.#source.devices.flatMap((device) => (device === undefined ? [] : [`neuron${device.index}`]));
  }

  /** The tree of a directory that has one, made when somebody first looks. */
  #treeOf(directory: string): SysfsTree | undefined {
    let tree = this.#trees.get(directory);
    if (tree === undefined && (tree = this.#makeTree(directory)) !== undefined) this.#trees.set(directory, tree);
    return tree;
  }

  #makeTree(directory: string): SysfsTree | undefined {
    const { devices, driverVersion, parameters } = this.#source;
    if (directory === CLASS) return classFiles();
    if (directory === MODULE) return moduleFiles(driverVersion, parameters, () => devices.reduce((sum, device) => sum + (device?.openCount ?? 0), 0));
    const device = devices.find((one) => one !== undefined && directory === `${DEVICES}/neuron${one.index}`);
    return device === undefined ? undefined : deviceFiles(device, this.#source);
  }

  #all(): readonly (readonly [string, SysfsTree])[] {
    return [...this.#deviceNames().map((name) => `${DEVICES}/${name}`), CLASS, MODULE].map((directory) => [directory, this.#treeOf(directory)!]);
  }

  #find(path: string): SysfsFile | undefined {
    const [directory, rest] = this.#split(path);
    return directory === undefined ? undefined : this.#treeOf(directory)?.get(rest);
  }

  /** Names in a directory, or undefined when it is none. */
  #names(path: string): string[] | undefined {
    const clean = path.replace(/\/+$/, "");
    const names = new Set<string>();
    if (clean === DEVICES || clean === CLASS) this.#deviceNames().forEach((name) => names.add(name));
    const [directory, rest] = this.#split(clean);
    const prefix = rest === "" ? "" : `${rest}/`;
    for (const file of (directory === undefined ? undefined : this.#treeOf(directory))?.keys() ?? []) {
      if (file.startsWith(prefix)) names.add(file.slice(prefix.length).split("/")[0]!);
    }
    return names.size === 0 ? undefined : [...names].sort();
  }

  /** The tree a path is in, and the path below it. A device has two addresses: its own and the class's link. */
  #split(path: string): readonly [string | undefined, string] {
    const clean = path.replace(/\/+/g, "/").replace(/^\/sys\/class\/neuron_device\/(?=neuron\d)/, `${DEVICES}/`);
    const device = /^(\/sys\/devices\/virtual\/neuron_device\/neuron\d+)(?:\/|$)/.exec(clean)?.[1];
    const directory = device ?? [MODULE, CLASS].find((each) => clean === each || clean.startsWith(`${each}/`));
    return [directory, directory === undefined ? "" : clean.slice(directory.length + 1)];
  }
}

function writeIfChanged(written: Map<string, string>, path: string, file: SysfsFile): void {
  const text = file.read();
  const before = written.get(path);
  if (before === text) return;
  if (before === undefined) create(path, text, file.mode);
  else writeFileSync(path, text);
  written.set(path, text);
}

/** Writes a file that may be there from an earlier copy, perhaps without permission to write it. */
function create(path: string, text: string, mode: number): void {
  try {
    writeFileSync(path, text, { mode });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT") mkdirSync(dirname(path), { recursive: true });
    else if (code === "EACCES") rmSync(path, { force: true });
    else throw error;
    writeFileSync(path, text, { mode });
  }
}

function link(target: string, path: string): void {
  mkdirSync(dirname(path), { recursive: true });
  try {
    symlinkSync(target, path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
}
