/** Finds the Neuron devices of a machine and says what is wrong with those that cannot be used. */
import { Errno } from "../../ffi/errno.ts";
import type { Kernel } from "../../ffi/kernel.ts";
import type { Geometry } from "../abi/architecture.ts";
import { driverConstants } from "../abi/driver_enums.ts";
import { driverVersion, openDevice } from "./device.ts";
import { DeviceOpenError, openAdvice, type OpenProblem, RequestError, UnknownDeviceError } from "./error.ts";
import type { DriverVersion } from "./types.ts";

/** One device node. */
export interface DiscoveredDevice {
  /** Index from its name. Gaps are normal in containers. */
  readonly index: number;
  /** Path of the node. */
  readonly path: string;
  /** `ok`, or what is wrong. */
  readonly state: "ok" | OpenProblem;
  /** Errno behind a problem. */
  readonly errno: number | undefined;
  /** One line of advice, for a problem. */
  readonly advice: string | undefined;
  /** Cores, HBMs and names, when the device answers. */
  readonly geometry: Geometry | undefined;
  /** PCI revision, when the device answers. */
  readonly revision: number | undefined;
}

/** What {@linkcode discoverDevices} found. */
export interface Discovery {
  /** Version of the loaded module, or null. */
  readonly driverVersion: DriverVersion | null;
  /** The nodes, by index. */
  readonly devices: readonly DiscoveredDevice[];
  /** Why there are none, when there are none. */
  readonly problem: "no-node" | "module-not-loaded" | undefined;
  /** One line of advice for `problem`. */
  readonly advice: string | undefined;
}

/**
 * Looks for `/dev/neuron0` to `/dev/neuron63` by existence and asks each for its
 * basic facts on a free-access descriptor, which takes no process slot.
 * Never throws for a device that cannot be used.
 *
 * @example
 * using machine = createFake({ product: "trn1", devices: 2 });
 * for (const { path, state } of discoverDevices(machine.kernel()).devices) console.log(path, state);
 * // → /dev/neuron0 ok
 * // → /dev/neuron1 ok
 */
export function discoverDevices(kernel: Kernel, options: { readonly sysfs?: string; readonly dev?: string } = {}): Discovery {
  const { sysfs = "/sys", dev = "/dev" } = options;
  const version = driverVersion(kernel, sysfs);
  const listed = indexesIn(kernel, dev);
  // A directory need not show a node that can be opened, and sysfs shows devices a container does not have.
  const shown = indexesIn(kernel, `${sysfs}/class/neuron_device`).filter((index) => !listed.includes(index));
  const devices = [
    ...listed.map((index) => examine(kernel, index, `${dev}/neuron${index}`, sysfs)),
    ...shown.map((index) => examine(kernel, index, `${dev}/neuron${index}`, sysfs)).filter(({ errno }) => errno !== Errno.ENOENT && errno !== Errno.ENOTDIR),
  ].sort((a, b) => a.index - b.index);
  const problem = devices.length > 0 ? undefined : version === null ? "module-not-loaded" : "no-node";
  return { driverVersion: version, devices, problem, advice: problem === undefined ? undefined : openAdvice[problem] };
}

/** Numbers of the names `neuronN` in a directory. */
function indexesIn(kernel: Kernel, path: string): number[] {
  const names = kernel.list(path);
  return (typeof names === "number" ? [] : names)
    .flatMap((name) => /^neuron(\d+)$/.exec(name)?.[1] ?? [])
    .map(Number).filter((index) => index < driverConstants.NEURON_IOCTL_MAX_DEVICES);
}

function examine(kernel: Kernel, index: number, path: string, sysfs: string): DiscoveredDevice {
  const problem = (state: OpenProblem, errno: number | undefined): DiscoveredDevice =>
    ({ index, path, state, errno, advice: openAdvice[state], geometry: undefined, revision: undefined });
  try {
    using device = openDevice({ kernel, index, path, access: "free", sysfs });
    const { geometry, revision } = device;
    return { index, path, state: "ok", errno: undefined, advice: undefined, geometry, revision };
  } catch (error) {
    if (error instanceof DeviceOpenError) return problem(error.reason, error.errno);
    // A regular file or another device that happens to take the call.
    if (error instanceof RequestError) return problem(error.errno === Errno.EINVAL ? "not-a-neuron-device" : "other", error.errno);
    if (error instanceof UnknownDeviceError) return { ...problem("other", undefined), advice: error.hint };
    throw error;
  }
}
