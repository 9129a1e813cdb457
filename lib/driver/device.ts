/** Opens a Neuron device: typed requests over one descriptor, the same on the kernel and on a fake. */
import { Errno } from "../../ffi/errno.ts";
import { ArgumentError } from "../../ffi/error.ts";
import type { Kernel, Mapping } from "../../ffi/kernel.ts";
import { OpenFlag } from "../../ffi/native.ts";
import type { Id64 } from "../../ffi/u64.ts";
import { type Geometry, geometryOf } from "../abi/architecture.ts";
import { driverConstants, DriverFeature } from "../abi/driver_enums.ts";
import { requests } from "../abi/requests.ts";
import { Channel } from "./channel.ts";
import { CopyRequests, type CopyForms } from "./copy_requests.ts";
import * as cores from "./core_requests.ts";
import { DeviceOpenError, openProblem, RequestError, UnknownDeviceError } from "./error.ts";
import * as info from "./core_requests.ts";
import { firstAllocForm, MemoryRequests } from "./memory_requests.ts";
import {
  type Access, type AllocForm, type BatchEntry, type BatchOptions, type ChunkRequest, type CopyOffsets, type CopyReport, type CoreMark, type Direction,
  type DriverVersion, type HostBuffer, isAtLeast, type MappableRange, type NeuronDevice, type OpenDeviceOptions, parseVersion, type ZeroCopyForm,
} from "./types.ts";

const FLAGS: Readonly<Record<Access, number>> = { readwrite: OpenFlag.RDWR, readonly: OpenFlag.RDONLY, free: OpenFlag.WRONLY };
const MAX_DEVICES = driverConstants.NEURON_IOCTL_MAX_DEVICES;
/** `h2t_qid` that means the core's own queue. */
const DEFAULT_QUEUE = -1;

/**
 * Opens a Neuron device and settles which of the driver's request forms to use.
 *
 * @throws {DeviceOpenError} when the node cannot be opened, with one line of advice
 * @throws {RequestError} when it opens but does not answer like a Neuron device
 * @throws {UnknownDeviceError} for an architecture this package does not know
 *
 * @example
 * using machine = createFake({ product: "trn2" });
 * using device = openDevice({ kernel: machine.kernel() }); // linuxKernel() for /dev/neuron0
 * const handle = device.alloc({ size: 4096, alignment: 0, host: false, hbm: 1, core: 2, category: 1 });
 * const { pa, size } = device.extendedInfo(handle);
 * console.log(`${size} bytes, found again: ${device.findChunk(pa)?.handle === handle}`); // → 4096 bytes, found again: true
 * device.free(handle);
 */
export function openDevice(options: OpenDeviceOptions): NeuronDevice {
  const { kernel, access = "readwrite", sysfs = "/sys" } = options;
  const path = options.path ?? `/dev/neuron${options.index ?? 0}`;
  const index = options.index ?? Number(/(\d+)$/.exec(path)?.[1] ?? 0);
  if (!(Number.isInteger(index) && index >= 0 && index < MAX_DEVICES)) {
    throw new ArgumentError(`Cannot open device ${index}: indexes go from 0 to ${MAX_DEVICES - 1}`, { details: { index } });
  }
  const version = driverVersion(kernel, sysfs);
  const fd = kernel.open(path, FLAGS[access] | OpenFlag.CLOEXEC);
  if (fd < 0) throw new DeviceOpenError(path, -fd, openProblem(-fd, version !== null));
  const channel = new Channel(kernel, path, fd);
  try {
    return identify(channel, { index, access, version, instanceType: instanceType(kernel, sysfs, index) }, options.hbmSize);
  } catch (error) {
    channel.close();
    if (error instanceof RequestError && error.errno === Errno.ENOTTY) throw new DeviceOpenError(path, error.errno, "not-a-neuron-device");
    throw error;
  }
}

/** Version of the running module from sysfs, or null when it is not loaded (or a container hides it). */
export function driverVersion(kernel: Kernel, sysfs = "/sys"): DriverVersion | null {
  const text = kernel.readText(`${sysfs}/module/neuron/version`);
  return typeof text === "string" ? parseVersion(text) : null;
}

function instanceType(kernel: Kernel, sysfs: string, index: number): string | undefined {
  const text = kernel.readText(`${sysfs}/class/neuron_device/neuron${index}/info/architecture/instance_type`);
  return typeof text === "string" ? text.trim() : undefined;
}

interface Identity {
  readonly index: number;
  readonly access: Access;
  readonly version: DriverVersion | null;
  readonly instanceType: string | undefined;
}

function identify(channel: Channel, identity: Identity, hbmSize: number | undefined): NeuronDevice {
  const { architecture, revision } = info.basicInfo(channel);
  const known = geometryOf(architecture, identity.instanceType);
  if (known === undefined) {
    throw new UnknownDeviceError(`Cannot use ${channel.path}: its architecture ${architecture} is not known`, {
      hint: "This package knows trn1 and inf2 (2), trn2 (3) and trn3 (4).",
      details: { architecture, revision },
    });
  }
  const geometry = hbmSize === undefined ? known : { ...known, hbms: known.hbms.map((hbm) => ({ ...hbm, size: hbmSize })) };
  return new Device(channel, { ...identity, architecture, revision, geometry, features: info.featureFlags(channel) });
}

function copyForms(version: DriverVersion | null, has: (bit: number) => boolean): CopyForms {
  const wide = has(DriverFeature.MEM_ALLOC64) || version !== null && isAtLeast(version, 2, 24);
  const later = version === null ? has(DriverFeature.ZEROCOPY) : isAtLeast(version, 2, 25);
  const newest = version === null || isAtLeast(version, 2, 29);
  return { wide, batches: later, versionUnknown: version === null, zeroCopy: later ? newest ? 64 : 48 : wide ? 40 : "none" };
}

interface Facts extends Identity {
  readonly architecture: number;
  readonly revision: number;
  readonly geometry: Geometry;
  readonly features: Id64;
}

class Device implements NeuronDevice {
  readonly index: number;
  readonly access: Access;
  readonly architecture: number;
  readonly revision: number;
  readonly geometry: Geometry;
  readonly driverVersion: DriverVersion | null;
  readonly features: Id64;
  readonly #channel: Channel;
  readonly #memory: MemoryRequests;
  readonly #copies: CopyRequests;

  constructor(channel: Channel, facts: Facts) {
    this.#channel = channel;
    this.index = facts.index;
    this.access = facts.access;
    this.architecture = facts.architecture;
    this.revision = facts.revision;
    this.geometry = facts.geometry;
    this.driverVersion = facts.version;
    this.features = facts.features;
    const has = (bit: number) => this.hasFeature(bit);
    this.#memory = new MemoryRequests(channel, firstAllocForm(facts.version, has));
    this.#copies = new CopyRequests(channel, this.#memory.owned, copyForms(facts.version, has));
    if (facts.access !== "free") this.#memory.probe();
  }

  get path(): string {
    return this.#channel.path;
  }
  get kernel(): Kernel {
    return this.#channel.kernel;
  }
  get allocForm(): AllocForm {
    return this.#memory.form;
  }
  get zeroCopyForm(): ZeroCopyForm {
    return this.#copies.zeroCopy;
  }
  get batches(): boolean {
    return this.#copies.batches;
  }
  get requestCount(): number {
    return this.#channel.count;
  }
  get closed(): boolean {
    return this.#channel.closed;
  }

  hasFeature(bit: number): boolean {
    return (BigInt(this.features) & BigInt(bit)) !== 0n;
  }
  compatibleVersion(): { readonly min: number; readonly max: number } {
    return info.compatibleVersion(this.#channel);
  }
  checkCompatible(version: number): void {
    info.checkCompatible(this.#channel, version);
  }
  connectedDevices(): number[] {
    return info.connectedDevices(this.#channel);
  }
  pciAddress(relative = 0) {
    return info.pciAddress(this.#channel, this.index, relative);
  }
  hostDeviceId(): number {
    return info.hostDeviceId(this.#channel);
  }
  routingMap(): number[] {
    return info.routingMap(this.#channel);
  }
  coreMap(maxEntries: number = driverConstants.NEURON_NC_MAP_MAX_ENTRIES) {
    return info.coreMap(this.#channel, maxEntries);
  }
  apps() {
    return info.apps(this.#channel);
  }

  alloc(request: ChunkRequest): number {
    return this.#memory.alloc(request);
  }
  allocContiguousScratchpad(request: { readonly size: number; readonly hbm: number; readonly core: number }): number {
    return this.#memory.allocContiguousScratchpad(request);
  }
  getPa(handle: number): number {
    return this.#memory.getPa(handle);
  }
  free(handle: number): void {
    this.#memory.free(handle);
  }
  map(handle: number, size: number, options?: { readonly writable?: boolean }): Mapping {
    return this.#memory.map(handle, size, options?.writable ?? this.access === "readwrite");
  }
  mapAddress(pa: number, size: number, options?: { readonly writable?: boolean }): Mapping {
    return this.#memory.mapRange(pa, size, options?.writable ?? this.access === "readwrite");
  }
  memoryInfo(handle: number) {
    return this.#memory.memoryInfo(handle);
  }
  extendedInfo(handle: number) {
    return this.#memory.extendedInfo(handle);
  }
  findChunk(pa: number) {
    return this.#memory.findChunk(pa);
  }
  dumpChunks(hbm: number) {
    return this.#memory.dumpChunks(hbm);
  }

  copy(source: number, destination: number, size: number, options?: CopyOffsets): void {
    this.#copies.copy(source, destination, size, options);
  }
  copyAsync(source: number, destination: number, size: number, previous: number, options?: CopyOffsets & { readonly prefetch?: number | undefined }): number {
    return this.#copies.copyAsync(source, destination, size, previous, options);
  }
  copyWait(source: number, destination: number, waitHandle: number): void {
    this.#copies.copyWait(source, destination, waitHandle);
  }
  bufCopyIn(handle: number, offset: number, source: HostBuffer): void {
    this.#copies.bufferCopy(handle, offset, source, true);
  }
  bufCopyOut(handle: number, offset: number, destination: HostBuffer): void {
    this.#copies.bufferCopy(handle, offset, destination, false);
  }
  zeroCopyIn(handle: number, offset: number, source: HostBuffer, options?: { readonly threshold?: number; readonly queue?: number }): CopyReport {
    return this.#copies.zeroCopyTransfer(handle, offset, source, { toDevice: true, threshold: options?.threshold ?? 0, queue: options?.queue ?? DEFAULT_QUEUE });
  }
  zeroCopyOut(handle: number, offset: number, destination: HostBuffer, options?: { readonly queue?: number }): CopyReport {
    return this.#copies.zeroCopyTransfer(handle, offset, destination, { toDevice: false, threshold: 0, queue: options?.queue ?? DEFAULT_QUEUE });
  }
  batchCopy(direction: Direction, entries: readonly BatchEntry[], options: BatchOptions = {}): CopyReport {
    return this.#copies.batch(direction, entries, options);
  }
  memset(handle: number, offset: number, size: number, value: number): void {
    this.#copies.memset(handle, offset, size, value);
  }

  markCores(count: number, range?: { readonly start?: number; readonly end?: number }): CoreMark {
    return cores.markCores(this.#channel, count, range?.start ?? 0, range?.end ?? this.geometry.coresPerDevice - 1);
  }
  unmarkCores(marked: readonly number[]): void {
    cores.unmarkCores(this.#channel, marked);
  }
  readerEnter(core: number, uuid: Uint8Array): void {
    cores.coreLock(this.#channel, requests.CRWL_READER_ENTER, core, uuid);
  }
  readerExit(core: number, uuid: Uint8Array): void {
    cores.coreLock(this.#channel, requests.CRWL_READER_EXIT, core, uuid);
  }
  writerEnter(core: number, uuid: Uint8Array): void {
    cores.coreLock(this.#channel, requests.CRWL_WRITER_ENTER, core, uuid);
  }
  writerDowngrade(core: number, uuid: Uint8Array): void {
    cores.coreLock(this.#channel, requests.CRWL_WRITER_DOWNGRADE, core, uuid);
  }
  setCoreInit(core: number, state: number): number {
    return cores.setCoreInit(this.#channel, core, state);
  }
  modelStartedCount(core: number): number {
    return cores.modelStartedCount(this.#channel, core);
  }
  reset(which?: readonly number[]): number {
    return cores.reset(this.#channel, which);
  }
  resetReady(requestId: number): boolean {
    return cores.resetReady(this.#channel, requestId);
  }
  acquireDatastore(pid = 0): MappableRange {
    return cores.acquireDatastore(this.#channel, pid);
  }
  releaseDatastore(pid = 0): void {
    cores.releaseDatastore(this.#channel, pid);
  }
  resourceRange(block: number, blockId: number, resource: number): MappableRange {
    return cores.resourceRange(this.#channel, block, blockId, resource);
  }
  mapResource(block: number, blockId: number, resource: number, options?: { readonly writable?: boolean }): Mapping {
    const { offset, size } = this.resourceRange(block, blockId, resource);
    return this.mapAddress(offset, size, options);
  }
  dmaBuf(address: number, size: number): number {
    return cores.dmaBuf(this.#channel, address, size);
  }

  close(): void {
    this.#memory.close();
    this.#channel.close();
  }
  [Symbol.dispose](): void {
    this.close();
  }
}
