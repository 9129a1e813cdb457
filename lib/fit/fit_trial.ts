/** Tries a demand on a machine: places every allocation as the driver would, and adds up. */
import type { Machine } from "../abi/architecture.ts";
import { type UsageName, usageNames } from "../abi/runtime_dmem.ts";
import { CARVEOUT_BYTES, wholePages } from "../hbm/layout.ts";
import { HbmSpace } from "../hbm/space.ts";
import type { ScratchpadMode } from "../plan/scratchpad.ts";
import { type FitAccuracy, type FitLineName, hbmOf, type PlannedModel, type Want } from "./fit_demand.ts";
import type { FitSharing } from "./fit_share.ts";

export type { FitAccuracy, FitLineName } from "./fit_demand.ts";

/** One figure of an HBM. */
export interface FitLine {
  readonly name: FitLineName;
  readonly bytes: number;
  /** The least certain of what it is made of. */
  readonly accuracy: FitAccuracy;
  /** Where it comes from. */
  readonly source: string;
}

/** What lands on one HBM. */
export interface FitHbm {
  /** Device of the machine. */
  readonly device: number;
  /** HBM of the device. */
  readonly hbm: number;
  /** Physical cores of the machine whose memory is counted here. */
  readonly cores: readonly number[];
  readonly lines: readonly FitLine[];
  /** Sum of the lines, without the driver's and others' part. */
  readonly needBytes: number;
  /** The same as the driver allocates it, each allocation rounded up to 4096. */
  readonly roundedBytes: number;
  /** Bytes of the HBM. */
  readonly limitBytes: number;
  /** What is left; negative when more is wanted than there is. */
  readonly marginBytes: number;
  /** Largest single allocation that still finds room, 0 when something did not fit. */
  readonly largestFreeBytes: number;
  /** Bytes that only found room in another core's region (inf1); 0 when something found none at all. */
  readonly spilledBytes: number;
}

/** The first thing that finds no room: of the models and extra memory, else of the runtime's own parts. */
export interface FitShortage {
  readonly what: FitLineName;
  readonly name: string;
  readonly model: string | null;
  readonly bytes: number;
  readonly device: number;
  readonly hbm: number;
  readonly core: number;
  /** Free bytes of the HBM at that moment, in whatever pieces. */
  readonly freeBytes: number;
  /** Largest piece of them. */
  readonly largestFreeBytes: number;
}

/** What the ledger of a core should say after the load. */
export interface FitCore {
  /** Physical core of the machine. */
  readonly core: number;
  readonly usage: Readonly<Partial<Record<UsageName, number>>>;
  readonly bytes: number;
}

/** How a trial went. */
export interface Trial {
  readonly hbms: readonly FitHbm[];
  readonly cores: readonly FitCore[];
  readonly shortage: FitShortage | null;
  /** Bytes that found room only in other cores' regions. */
  readonly spilledBytes: number;
  /** Contiguous arenas that could not grow as far as wanted: pages by core; at most the first of each HBM. */
  readonly stopped: ReadonlyMap<number, number>;
  /** Largest scratchpad variable that had to be private, 0 for none. */
  readonly largestPrivateBytes: number;
}

interface Placing {
  readonly machine: Machine;
  /** What others hold on an HBM of the machine. */
  readonly used: (hbm: number) => number;
  /** Free space by HBM, or by device where HBMs borrow from each other. */
  readonly spaces: Map<number, HbmSpace>;
  readonly wants: Map<number, Want[]>;
  readonly short: Set<number>;
  readonly stopped: Map<number, number>;
}

/** Places `wants` in order. @param used what others hold on an HBM of the machine */
export function tryDemand(machine: Machine, wants: readonly Want[], used: (hbm: number) => number): Trial {
  const placing: Placing = { machine, used, spaces: new Map(), wants: new Map(), short: new Set(), stopped: new Map() };
  let shortage: FitShortage | null = null;
  let ofLoader = false;
  for (const want of wants) {
    const hbm = hbmOf(machine, want.core);
    const space = spaceOf(placing, hbm);
    const own = placing.wants.get(hbm);
    if (own === undefined) placing.wants.set(hbm, [want]);
    else own.push(want);
    if (want.bytes === 0 || (want.contiguous ? space.placeScratchpad(want.bytes) : space.place(want.bytes, want.alignment)) >= 0) continue;
    if (want.contiguous) stop(placing, want);
    placing.short.add(hbm);
    // What the user brought says more than the runtime's own parts, which come first.
    if (shortage === null || (!ofLoader && want.usage !== null)) shortage = shortageOf(machine, want, space);
    ofLoader ||= want.usage !== null;
  }
  const hbms = [...placing.wants.keys()].sort((a, b) => a - b).map((hbm) => describe(placing, hbm));
  return {
    hbms,
    cores: ledgersOf(wants),
    stopped: placing.stopped,
    shortage,
    spilledBytes: hbms.reduce((sum, { spilledBytes }) => sum + spilledBytes, 0),
    largestPrivateBytes: wants.reduce((most, { line, bytes }) => (line === "private scratchpad" ? Math.max(most, bytes) : most), 0),
  };
}

/** Notes that a core's contiguous arena cannot grow any more: the loader goes on with private memory then. */
function stop({ machine, stopped, wants }: Placing, { core }: Want): void {
  const hbm = hbmOf(machine, core);
  if ([...stopped.keys()].some((other) => hbmOf(machine, other) === hbm)) return;
  // The last of them is the one that found no place.
  const tried = (wants.get(hbm) ?? []).filter((one) => one.contiguous && one.core === core).length;
  stopped.set(core, tried - 1);
}

function hbmsPerDevice(machine: Machine): number {
  return machine.coresPerDevice / machine.coresPerHbm;
}

function spaceOf({ machine, used, spaces }: Placing, hbm: number): HbmSpace {
  const count = hbmsPerDevice(machine);
  const device = Math.floor(hbm / count);
  const key = machine.borrows ? device : hbm;
  const known = spaces.get(key);
  if (known !== undefined) return known;
  const hbms = machine.borrows ? Array.from({ length: count }, (_, index) => device * count + index) : [hbm];
  const space = new HbmSpace(machine.hbmBytes * hbms.length, machine.borrows ? "plain" : "hbm");
  space.occupy(hbms.reduce((sum, one) => sum + used(one), 0));
  spaces.set(key, space);
  return space;
}

function shortageOf(machine: Machine, want: Want, space: HbmSpace): FitShortage {
  const hbm = hbmOf(machine, want.core);
  return {
    what: want.line, name: want.name, model: want.model, bytes: want.bytes,
    device: Math.floor(hbm / hbmsPerDevice(machine)), hbm: hbm % hbmsPerDevice(machine), core: want.core,
    freeBytes: space.freeBytes, largestFreeBytes: space.largestGap,
  };
}

function describe(placing: Placing, hbm: number): FitHbm {
  const { machine } = placing;
  const wants = placing.wants.get(hbm) as Want[];
  const usedBytes = placing.used(hbm);
  const needBytes = wants.reduce((sum, { bytes }) => sum + bytes, 0);
  const roundedBytes = wants.reduce((sum, { bytes }) => sum + wholePages(bytes), 0);
  const carveout = machine.borrows ? 0 : CARVEOUT_BYTES;
  const marginBytes = machine.hbmBytes - carveout - usedBytes - roundedBytes;
  const lines = linesOf(wants);
  if (usedBytes > 0) lines.push({ name: "used by others", bytes: usedBytes, accuracy: "exact", source: "given" });
  if (carveout > 0) lines.push({ name: "driver", bytes: carveout, accuracy: "documented", source: "the driver keeps 16 MiB of each HBM" });
  return {
    device: Math.floor(hbm / hbmsPerDevice(machine)),
    hbm: hbm % hbmsPerDevice(machine),
    cores: [...new Set(wants.map(({ core }) => core))].sort((a, b) => a - b),
    lines,
    needBytes,
    roundedBytes,
    limitBytes: machine.hbmBytes,
    marginBytes,
    largestFreeBytes: placing.short.has(hbm) ? 0 : spaceOf(placing, hbm).largestGap,
    spilledBytes: machine.borrows && !placing.short.has(hbm) ? Math.max(0, -marginBytes) : 0,
  };
}

const CERTAINTY: readonly FitAccuracy[] = ["exact", "documented", "estimated"];

function linesOf(wants: readonly Want[]): FitLine[] {
  const lines = new Map<FitLineName, { bytes: number; accuracy: number; sources: Set<string> }>();
  for (const { line, bytes, accuracy, source } of wants) {
    const entry = lines.get(line) ?? { bytes: 0, accuracy: 0, sources: new Set<string>() };
    entry.bytes += bytes;
    entry.accuracy = Math.max(entry.accuracy, CERTAINTY.indexOf(accuracy));
    entry.sources.add(source);
    lines.set(line, entry);
  }
  return [...lines].map(([name, { bytes, accuracy, sources }]) => ({ name, bytes, accuracy: CERTAINTY[accuracy] as FitAccuracy, source: [...sources].join("; ") }));
}

/** What the loader's allocations make of each core's ledger. */
function ledgersOf(wants: readonly Want[]): FitCore[] {
  const cores = new Map<number, Map<UsageName, number>>();
  for (const { core, usage, bytes } of wants) {
    if (usage === null) continue;
    const ledger = cores.get(core) ?? new Map<UsageName, number>();
    ledger.set(usage, (ledger.get(usage) ?? 0) + bytes);
    cores.set(core, ledger);
  }
  return [...cores].sort(([a], [b]) => a - b).map(([core, ledger]) => ({
    core,
    usage: Object.fromEntries(usageNames.filter((name) => ledger.has(name)).map((name) => [name, ledger.get(name)])),
    bytes: [...ledger.values()].reduce((sum, bytes) => sum + bytes, 0),
  }));
}

/** Whether it fits. */
export type FitVerdict = "fits" | "fits-only-by" | "does-not-fit";

/** What a need does not count. */
export interface FitOnTop {
  /** Bytes per logical core. */
  readonly bytes: number;
  /** What they are. */
  readonly what: string;
  /** Where the figure comes from. */
  readonly source: string;
}

/** The answer. */
export interface FitAnswer {
  readonly instance: string;
  /** Where the machine's numbers come from. */
  readonly source: string;
  /** Devices of the machine. */
  readonly devices: number;
  /** Device memory of the whole machine in bytes. */
  readonly memoryBytes: number;
  readonly lnc: number;
  /** Every logical core that holds something. */
  readonly logicalCores: readonly number[];
  /** Logical cores of each model. */
  readonly placements: readonly (readonly number[])[];
  /** Logical cores a need was spread over, null when nobody said and nothing was chosen. */
  readonly tensorParallel: number | null;
  /** What the models have in common. */
  readonly sharing: FitSharing;
  /** What comes on top of a need on each logical core, as an estimate; null where files tell it. */
  readonly onTop: FitOnTop | null;
  readonly scratchpad: ScratchpadMode;
  readonly verdict: FitVerdict;
  /** What has to be done for `fits-only-by`, else null. */
  readonly onlyBy: string | null;
  /** Why nothing was tried: wrong target, too few cores; else null. */
  readonly obstacle: string | null;
  /** Least bytes left on an HBM that is used; negative when short. 0 when nothing was tried. */
  readonly margin: number;
  /** The first thing that finds no room, or null. */
  readonly shortage: FitShortage | null;
  readonly hbms: readonly FitHbm[];
  /** What the ledgers say after a load, per physical core. */
  readonly cores: readonly FitCore[];
  /** Smallest instance type that answers `fits` to the same question, of the family that was asked about if one was; or null. */
  readonly smallest: string | null;
  /** What to change, best first; each a sentence. */
  readonly advice: readonly string[];
  /** Assumptions and remarks. */
  readonly notes: readonly string[];
}

/** An answer before its advice. */
export interface FitDraft extends Omit<FitAnswer, "smallest" | "advice"> {
  readonly machine: Machine;
  readonly models: readonly PlannedModel[];
  /** Largest scratchpad variable that had to be private, 0 for none. */
  readonly largestPrivateBytes: number;
  /** Whether models and extra memory fit when the runtime's reported parts are left out. */
  readonly fitsAlone: boolean;
}
