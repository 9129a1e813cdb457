import { ArgumentError } from "../../ffi/error.ts";
import { geometries, type Geometry, type Product } from "../abi/architecture.ts";
import { driverConstants, DriverFeature } from "../abi/driver_enums.ts";
import { compareVersionText, type DriverProfile, driverProfile } from "../abi/topology.ts";
import type { Danger, DangerPolicy, PlannedFault } from "./faults.ts";
import { CARVEOUT_BYTES, PAGE_BYTES } from "../hbm/layout.ts";

/** Settings of a fake machine. */
export interface FakeOptions {
  /** The product all its devices are. */
  readonly product: Product;
  /** Number of devices, or their indexes (may have gaps); default 1. */
  readonly devices?: number | readonly number[];
  /** Driver version whose behaviour is copied: `2.24.7`, `2.27`, `2.29` or a full version; default 2.24.7, for trn3 2.27. */
  readonly driverVersion?: string;
  /** Bytes of each HBM, a multiple of 4096, at least 64 MiB; default the product's. */
  readonly hbmSize?: number;
  /** Largest host chunk in bytes; default 4 MiB, what a kernel without IOMMU and CMA gives. */
  readonly hostChunkLimit?: number;
  /** Keep the contents of freed memory, as the device does; default false: freed memory is given back and reads as 0. */
  readonly retainFreed?: boolean;
  /** What to do about requests that would stop or corrupt a real kernel; default `"throw"` a {@linkcode FakeAbort}. */
  readonly danger?: DangerPolicy;
  /** Dangers that are carried out whatever `danger` says. */
  readonly allow?: readonly Danger[];
  /** Number of handles, for tests of exhaustion; default the driver's. */
  readonly handleCapacity?: number;
  /** Module parameters other than the driver's defaults, for example `{ no_reset: 1 }`. */
  readonly moduleParameters?: Readonly<Record<string, number>>;
  /** Whether the DMA engines work; default true. Without them every transfer times out. */
  readonly engine?: boolean;
  /** Asynchronous copies move their bytes only when they are waited for: finds clients that read too early. Default false. */
  readonly lateCopies?: boolean;
  /** A thread of its own moves the bytes of asynchronous copies while the client goes on, as a DMA engine does. Default false: they are moved at once. */
  readonly dmaThread?: boolean;
  /** Requests that this driver does not have: EINVAL, like a driver from before they came. Their feature flags are off. */
  readonly without?: readonly string[];
  /** Planned faults; {@linkcode parseFault} reads them from text. */
  readonly faults?: readonly PlannedFault[];
  /** Milliseconds that every request takes. */
  readonly latency?: number;
  /** Seed for what happens by chance; default 1. */
  readonly seed?: number;
  /** The driver's time; default a clock that moves only when something waits. */
  readonly clock?: Clock;
}

/** Settings with their defaults filled in and checked. */
export interface Settings {
  readonly geometry: Geometry;
  readonly profile: DriverProfile;
  /** Full version. */
  readonly version: string;
  readonly devices: readonly number[];
  readonly hbmSize: number;
  readonly parameters: Readonly<Record<string, number>>;
}

const FULL_VERSION: Readonly<Record<string, string>> = {
  "2.24.7": "2.24.7.0", "2.25": "2.25.4.0", "2.26": "2.26.5.0", "2.27": "2.27.4.0", "2.28": "2.28.0.0", "2.29": "2.29.0.0", "2.30": "2.30.2.0",
};
const MINIMUM_HBM = 4 * CARVEOUT_BYTES;
/** HBMs lie 256 GiB apart. */
const HBM_LIMIT = 2 ** 36;

/** The driver's module parameters with the values a module has that was loaded without any. */
export const defaultParameters: Readonly<Record<string, number>> = {
  dev_nc_map: 1, dup_helper_enable: 1, force_die_flip: 0, force_userver: 0, mempool_host_memory_size: 33554432,
  mempool_min_alloc_size: 4096, mempool_small_alloc_max: 524288, mempool_small_pool_size: 1073741824, nc_per_dev_param: 1,
  nmetric_log_posts: 1, nmetric_metric_post_delay: 150000, no_reset: 0, userver_ctl: 0, userver_etimeout: 600, wc_enable: 1,
};

/** Feature flags that announce a request. */
const FEATURE_OF_REQUEST: readonly (readonly [string, number])[] = [
  ["DMABUF_FD", DriverFeature.DMABUF], ["MEM_COPY_ASYNC", DriverFeature.ASYNC_DMA], ["DMA_QUEUE_INIT_BATCH", DriverFeature.BATCH_DMAQ_INIT],
  ["CRWL_NC_RANGE_MARK_EXT0", DriverFeature.BIG_CORE_MAPS], ["MEM_ALLOC_V2MT", DriverFeature.MEM_ALLOC_TYPE],
  ["HBM_SCRUB_START", DriverFeature.HBM_SCRUB], ["MEM_ALLOC_V2MT64", DriverFeature.MEM_ALLOC64],
  ["MEM_BUF_ZEROCOPY64_BATCHES", DriverFeature.ZEROCOPY],
];

/** The driver that was recorded; nothing is known of how older ones differ. */
const OLDEST_VERSION = "2.24";

/** Fills in and checks settings. @throws {ArgumentError} for a machine that cannot exist */
export function resolveOptions(options: FakeOptions): Settings {
  const geometry = geometries[options.product];
  const version = options.driverVersion ?? (options.product === "trn3" ? "2.27" : "2.24.7");
  const full = FULL_VERSION[version] ?? version;
  if (!/^\d+(\.\d+){1,3}$/.test(full) || compareVersionText(full, OLDEST_VERSION) < 0) {
    throw new ArgumentError(`Cannot make a fake with driver ${JSON.stringify(full)}: the oldest whose behaviour is known is ${OLDEST_VERSION}`, {
      hint: "Versions look like 2.24.7, 2.27 or 2.29.", details: { version: full },
    });
  }
  const profile = driverProfile(full);
  if (geometry === undefined || !profile.architectures.includes(geometry.architecture)) {
    throw new ArgumentError(`Cannot make a fake ${options.product}: driver ${full} does not know that product`, {
      hint: "trn3 needs driver 2.25 or later.", details: { product: options.product, version: full },
    });
  }
  const hbmSize = options.hbmSize ?? geometry.hbms[0]!.size;
  if (!(hbmSize >= MINIMUM_HBM && hbmSize <= HBM_LIMIT) || hbmSize % PAGE_BYTES !== 0) {
    throw new ArgumentError(`Cannot make an HBM of ${hbmSize} bytes: it must be a multiple of 4096 between ${MINIMUM_HBM} and ${HBM_LIMIT}`);
  }
  const missing = options.without ?? [];
  const flags = FEATURE_OF_REQUEST.reduce((sum, [name, flag]) => (missing.includes(name) ? sum & ~flag : sum), profile.featureFlags);
  return {
    geometry, profile: { ...profile, featureFlags: flags }, version: full, hbmSize, devices: deviceIndexes(options.devices ?? 1),
    parameters: { ...defaultParameters, ...options.moduleParameters },
  };
}

function deviceIndexes(devices: number | readonly number[]): readonly number[] {
  const most = driverConstants.MAX_NEURON_DEVICE_COUNT;
  const indexes = typeof devices === "number" ? Array.from({ length: devices }, (_, index) => index) : devices;
  if (indexes.length === 0 || indexes.some((index) => !(Number.isInteger(index) && index >= 0 && index < most))) {
    throw new ArgumentError(`Cannot make devices ${indexes.join(", ") || "none"}: there must be one to ${most}, numbered from 0`);
  }
  return indexes;
}

/** Milliseconds as the fake driver counts them. */
export interface Clock {
  /** Now, in milliseconds since some start. */
  now(): number;
  /** Lets `milliseconds` pass. */
  advance(milliseconds: number): void;
}

/** Time that passes only when something waits: tests of time-outs take no time. */
export function virtualClock(): Clock {
  let now = 0;
  return {
    now: () => now,
    advance(milliseconds) {
      now += milliseconds;
    },
  };
}

/** The time of this computer; waiting blocks the thread. */
export function realClock(): Clock {
  const sleeper = new Int32Array(new SharedArrayBuffer(4));
  return {
    now: () => performance.now(),
    advance(milliseconds) {
      if (milliseconds > 0) Atomics.wait(sleeper, 0, 0, milliseconds);
    },
  };
}

/** Result of a handler whose request has to wait; no other result of the driver has this value. */
export const BLOCKED = -0x40000000;

/**
 * A request that waits for something. Whoever issued it polls until `deadline`,
 * then takes the result of `expired`.
 */
export interface Wait {
  /** Clock value at which waiting ends. */
  readonly deadline: number;
  /** The result, or undefined while it has to wait. */
  poll(): number | undefined;
  /** The result when the deadline has passed. */
  expired(): number;
}

/** Waits with nobody else running: the clock jumps, or sleeps, to the deadline. */
export function waitOut(clock: Clock, wait: Wait): number {
  const early = wait.poll();
  if (early !== undefined) return early;
  clock.advance(Math.max(0, wait.deadline - clock.now()));
  return wait.poll() ?? wait.expired();
}
