/** A log of allocations and frees as CSV, written by a layer and read back for replays. */
import { NeuronError } from "../../ffi/error.ts";
import { checkSize } from "../../ffi/u64.ts";
import { MemLocation, UsageType, type UsageName, usageNames } from "../abi/runtime_dmem.ts";
import { csvText } from "../text/csv.ts";
import type { AllocatorLayer, Location } from "./types.ts";

/** One event of a log. */
export interface LogEvent {
  /** What happened; `fail` is an allocation that was refused. */
  readonly action: "alloc" | "free" | "fail";
  /** Identifies the allocation: equal in its `alloc` and its `free`. */
  readonly id: string;
  /** Core charged. */
  readonly core: number;
  /** HBM index. */
  readonly hbm: number;
  /** Where it lies. */
  readonly location: Location;
  /** What it is for. */
  readonly usage: UsageName;
  /** Bytes asked of the driver. */
  readonly size: number;
  /** Alignment asked for, 0 for none. */
  readonly alignment: number;
  /** Whether it is a contiguous scratchpad page. */
  readonly contiguous: boolean;
  /** Its hint, or null. */
  readonly hint: string | null;
  /** Device address, or null where the log does not tell. */
  readonly address: number | null;
  /** Bytes in use on the HBM afterwards, which ring dumps tell; else null. */
  readonly totalUsed: number | null;
  /** Line in the log, 1 for the first. */
  readonly line: number;
}

/** Header of the log. */
export const LOG_HEADER = "seq,action,id,core,hbm,location,usage,size,alignment,contiguous,address,hint";

/** A log cannot be read. `details.line` is where. */
export class LogFormatError extends NeuronError {
  override name = "LogFormatError";
}

/**
 * Writes every allocation, failure and free as a CSV line to `write`, the header
 * first. Ids count up; addresses are hex.
 *
 * @param write receives whole lines with their newline
 *
 * @example
 * const lines: string[] = [];
 * using neuron = openNeuron({ fake: "trn2", layers: [allocationLog((line) => lines.push(line))] });
 * neuron.core(0).alloc(4096, { hint: "scratch" }).close();
 * console.log(lines.at(-2)?.split(",")[1], lines.at(-1)?.split(",")[1]); // → alloc free
 */
export function allocationLog(write: (line: string) => void): AllocatorLayer {
  const ids = new Map<number, number>();
  let sequence = 0;
  let lastId = 0;
  const line = (action: LogEvent["action"], id: number, fields: readonly (string | number)[]) =>
    write(`${[sequence++, action, id === 0 ? "" : id, ...fields].join(",")}\n`);
  write(`${LOG_HEADER}\n`);
  return {
    name: "log",
    allocated(memory, { alignment = 0, contiguous = false }) {
      ids.set(memory.record, ++lastId);
      const { core, hbm, location, usage, allocatedSize, alignOffset, address, hint } = memory;
      // In the fallback for drivers that cannot align, the driver was asked for more bytes and no alignment.
      line("alloc", lastId, [core, hbm, location, usage, allocatedSize, alignOffset > 0 ? 0 : alignment, contiguous ? 1 : 0, hexText(address), csvText(hint ?? "")]);
    },
    failed(_error, { size, usage, location = "device", hbm, alignment = 0, contiguous = false, hint }, { core }) {
      const name = typeof usage === "number" ? usageNames[usage] ?? usage : usage;
      line("fail", 0, [core, hbm ?? "", location, name, size, alignment, contiguous ? 1 : 0, "", csvText(hint ?? "")]);
    },
    freed(memory) {
      const { core, hbm, location, usage, allocatedSize, address, hint } = memory;
      const id = ids.get(memory.record) ?? 0;
      ids.delete(memory.record);
      line("free", id, [core, hbm, location, usage, allocatedSize, 0, 0, hexText(address), csvText(hint ?? "")]);
    },
  };
}

function hexText(address: number): string {
  return `0x${address.toString(16)}`;
}

/** Names a column may have, ours first; the others are those of a ledger's ring dump. */
const COLUMNS: Readonly<Record<string, readonly string[]>> = {
  action: ["action"], id: ["id", "handle"], core: ["core", "nc_idx"], hbm: ["hbm", "tdram_channel", "channel"], location: ["location", "mem_loc"],
  usage: ["usage", "mem_usage"], size: ["size"], alignment: ["alignment", "align"], contiguous: ["contiguous"], address: ["address", "pa"], hint: ["hint"],
  totalUsed: ["total_mem_used"],
};

/**
 * Reads a log: what {@linkcode allocationLog} writes, or the ring dump of an
 * out-of-memory report (its events are told apart by address). Columns are found
 * by name, lines starting with `#` are skipped.
 *
 * @throws {LogFormatError} with the line number, when a line cannot be understood
 *
 * @example
 * const events = parseAllocationLog("action,id,hbm,size\nalloc,1,0,4096\nfree,1,0,4096\n");
 * console.log(events.map(({ action, size }) => `${action} ${size}`).join(", ")); // → alloc 4096, free 4096
 */
export function parseAllocationLog(text: string): LogEvent[] {
  const events: LogEvent[] = [];
  let columns: Readonly<Record<string, number>> | undefined;
  text.split("\n").forEach((raw, index) => {
    const line = raw.replace(/\r$/, "");
    if (line === "" || line.startsWith("#")) return;
    const fields = splitCsv(line, index + 1);
    if (columns === undefined) columns = readHeader(fields, index + 1);
    else events.push(readEvent(fields, columns, index + 1));
  });
  if (columns === undefined) throw new LogFormatError("Cannot read the allocation log: it has no header line", { hint: `The first line must be ${LOG_HEADER}` });
  return events;
}

function readHeader(fields: readonly string[], line: number): Readonly<Record<string, number>> {
  const columns: Record<string, number> = {};
  for (const [name, aliases] of Object.entries(COLUMNS)) columns[name] = fields.findIndex((field) => aliases.includes(field.trim()));
  for (const name of ["action", "size"]) {
    if (columns[name]! < 0) throw fail(line, `the header names no column "${name}"`, { hint: `The header must be like ${LOG_HEADER}` });
  }
  if (columns["id"]! < 0 && columns["address"]! < 0) throw fail(line, 'the header names neither "id" nor "address" (or "pa")');
  return columns;
}

function readEvent(fields: readonly string[], columns: Readonly<Record<string, number>>, line: number): LogEvent {
  const field = (name: string) => fields[columns[name]!]?.trim() ?? "";
  const number = (name: string) => {
    const value = field(name) === "" ? 0 : Number(field(name));
    if (!Number.isSafeInteger(value) || value < 0) throw fail(line, `${name} "${field(name)}" is no non-negative integer`);
    return value;
  };
  const hint = field("hint");
  return {
    action: readAction(field("action"), line), id: field("id") || field("address"), core: number("core"), hbm: number("hbm"),
    location: readLocation(field("location"), line), usage: readUsage(field("usage"), line), size: checkSize(number("size"), "a size"),
    alignment: number("alignment"), contiguous: number("contiguous") === 1, hint: hint === "" ? null : hint,
    address: field("address") === "" ? null : number("address"), totalUsed: field("totalUsed") === "" ? null : number("totalUsed"), line,
  };
}

function readAction(text: string, line: number): LogEvent["action"] {
  if (text === "alloc" || text === "free" || text === "fail") return text;
  if (text === "1") return "alloc";
  if (text === "2") return "free";
  throw fail(line, `action "${text}" is none of alloc, free, fail`);
}

function readLocation(text: string, line: number): Location {
  if (text === "" || text === "device" || Number(text) === MemLocation.TONGA_DRAM) return "device";
  if (text === "host" || Number(text) === MemLocation.HOST_DRAM) return "host";
  throw fail(line, `location "${text}" is neither device nor host`);
}

function readUsage(text: string, line: number): UsageName {
  if (text === "") return "GENERIC";
  const name = /^\d+$/.test(text) ? usageNames[Number(text)] : text;
  if (name !== undefined && name !== "MAX" && name in UsageType) return name as UsageName;
  throw fail(line, `usage "${text}" is not known`);
}

function splitCsv(line: string, number: number): string[] {
  const fields: string[] = [];
  const pattern = /(?:"((?:[^"]|"")*)"|([^",]*))(,|$)/y;
  for (;;) {
    const match = pattern.exec(line);
    if (match === null) throw fail(number, "a quoted field is not closed");
    fields.push(match[1] === undefined ? match[2]! : match[1].replaceAll('""', '"'));
    if (match[3] === "") return fields;
  }
}

function fail(line: number, why: string, options: { readonly hint?: string } = {}): LogFormatError {
  return new LogFormatError(`Cannot read the allocation log: line ${line}: ${why}`, { ...options, details: { line } });
}
