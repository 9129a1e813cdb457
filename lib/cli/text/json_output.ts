/**
 * What each command prints with `--json`. `schemas/*.json` are made from these types by
 * `scripts/generate_schemas.ts`; they only grow.
 */
import type { AllocationReplay } from "../../dmem/replay.ts";
import type { RequestReplay } from "../../fake/recorder.ts";
import type { CacheReport } from "../../deployment/cache.ts";
import type { NeffDiff } from "../../neff/diff.ts";
import type { ScanReport } from "../../neff/scan.ts";
import type { DeviceList } from "../../host/device_list.ts";
import type { CopyReport, LoadReport } from "./load_report.ts";
import type { CodeExplanation } from "../../explain/codes.ts";
import type { LogExplanation } from "../../explain/log.ts";
import type { FitAllReport, FitReport } from "./fit_report.ts";
import type { DeploymentReport } from "./deployment_report.ts";
import type { Inspection } from "./inspection.ts";
import type { MemoryPicture } from "../../map/model.ts";
import type { MemoryReport } from "./device_report.ts";
import type { PlanReport } from "./plan_report.ts";
import type { TopReport } from "../../host/top.ts";

/** `inspect FILE`. */
export type InspectOutput = Inspection;
/** `inspect ARCHIVE|FOLDER`. */
export type InspectDeploymentOutput = DeploymentReport;
/** `scan PATH…`. */
export type ScanOutput = ScanReport;
/** `cache FOLDER`. */
export type CacheOutput = CacheReport;
/** `plan FILE`. */
export type PlanOutput = PlanReport;
/** `load FILE`. */
export type LoadOutput = LoadReport;
/** `map FILE…`. */
export type MapOutput = MemoryPicture;
/** `fit FILE…`. */
export type FitOutput = FitReport;
/** `fit --all-instances`. */
export type FitAllOutput = FitAllReport;
/** `devices`. */
export type DevicesOutput = DeviceList;
/** `mem`. */
export type MemOutput = MemoryReport;
/** `top`. */
export type TopOutput = TopReport;
/** `copy`. */
export type CopyOutput = CopyReport;
/** `explain CODE`. */
export type ExplainOutput = CodeExplanation;
/** `explain -`. */
export type ExplainLogOutput = LogExplanation;

/** `diff A B`. */
export interface DiffOutput extends NeffDiff {
  /** The first file, as it was named. */
  readonly a: string;
  /** The second file. */
  readonly b: string;
}

/** `unpack FILE FOLDER`. */
export interface UnpackOutput {
  readonly file: string;
  readonly folder: string;
  /** Paths below the folder, the manifest last. */
  readonly files: readonly string[];
}

/** `pack FOLDER FILE`. */
export interface PackOutput {
  readonly folder: string;
  readonly file: string;
  readonly fileBytes: number;
  /** Files the manifest does not list. */
  readonly added: readonly string[];
  /** Files the manifest lists and that are gone. */
  readonly removed: readonly string[];
  /** Whether names and bytes are those that were unpacked; else the model has a uuid of its own. */
  readonly unchanged: boolean;
}

/** `resolve FILE NAME[+OFFSET]`. */
export interface ResolveOutput {
  /** Name of the variable. */
  readonly variable: string;
  readonly varId: number;
  /** Byte in the variable. */
  readonly offset: number;
  /** Bytes that will be accessed, 0 when not said. */
  readonly size: number;
  /** Device physical address as `0x…`. */
  readonly address: string;
  readonly subgraph: string;
  readonly device: LoadReport["device"];
}

/** `replay LOG` of allocations. */
export interface ReplayOutput extends AllocationReplay {
  readonly file: string;
  readonly kind: "allocations";
}

/** `replay LOG` of requests. */
export interface ReplayRequestsOutput {
  readonly file: string;
  readonly kind: "requests";
  /** Calls that were replayed. */
  readonly calls: number;
  /** The first call that came out otherwise. */
  readonly difference: NonNullable<RequestReplay["difference"]> | null;
}
