/** Opens a Neuron device: typed requests over one descriptor, the same on the kernel and on a fake. */
import { Errno } from "../../ffi/errno.ts";
import { ArgumentError } from "../../ffi/error.ts";
import type { Kernel, Mapping } from "../../ffi/kernel.ts";
import { OpenFlag } from "../../ffi/native.ts";
import { geometryOf } from "../abi/architecture.ts";
import { driverConstants } from "../abi/driver_enums.ts";
import { Channel } from "./channel.ts";
import { CopyRequests } from "./copy_requests.ts";
import { basicInfo, featureFlags } from "./core_requests.ts";
import { DeviceOpenError, openProblem, RequestError, UnknownDeviceError } from "./error.ts";
import { type Access, type DriverVersion, type NeuronDevice, type OpenDeviceOptions, parseVersion } from "./types.ts";

const FLAGS: Readonly<Record<Access, number>> = { readwrite: OpenFlag.RDWR, readonly: OpenFlag.RDONLY, free: OpenFlag.WRONLY };
const MAX_DEVICES = driverConstants.NEURON_IOCTL_MAX_DEVICES;

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
    return identify(channel, { index, access, driverVersion: version, instanceType: instanceType(kernel, sysfs, index) }, options.hbmSize);
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
  readonly driverVersion: DriverVersion | null;
  readonly instanceType: string | undefined;
}

function identify(channel: Channel, identity: Identity, hbmSize: number | undefined): NeuronDevice {
  const { architecture, revision } = basicInfo(channel);
  const known = geometryOf(architecture, identity.instanceType);
  if (known === undefined) {
    throw new UnknownDeviceError(`Cannot use ${channel.path}: its architecture ${architecture} is not known`, {
      hint: "This package knows trn1 and inf2 (2), trn2 (3) and trn3 (4).",
      details: { architecture, revision },
    });
  }
  const geometry = hbmSize === undefined ? known : { ...known, hbms: known.hbms.map((hbm) => ({ ...hbm, size: hbmSize })) };
  return new Device(channel, { ...identity, architecture, revision, geometry, features: featureFlags(channel) });
}

class Device extends CopyRequests implements NeuronDevice {
  get path(): string {
    return this.channel.path;
  }
  get kernel(): Kernel {
    return this.channel.kernel;
  }
  get requestCount(): number {
    return this.channel.count;
  }
  get closed(): boolean {
    return this.channel.closed;
  }

  mapResource(block: number, blockId: number, resource: number, options?: { readonly writable?: boolean }): Mapping {
    const { offset, size } = this.resourceRange(block, blockId, resource);
    return this.mapAddress(offset, size, options);
  }

  close(): void {
    this.forgetDump();
    this.channel.close();
  }
  [Symbol.dispose](): void {
    this.close();
  }
}
