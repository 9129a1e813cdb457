import { type Kernel, linuxKernel } from "../../ffi/kernel.ts";
import type { Product } from "../abi/architecture.ts";
import { createFake } from "../fake/machine.ts";
import { deviceText } from "./text/device_report.ts";
import { listDevices } from "../host/device_list.ts";
import { ExitCode } from "./failure.ts";
import { emphasisOf, printJson, type Terminal } from "./terminal.ts";

/** `devices`: the Neuron devices of this host. Exit code 1 when one is there that cannot be used; none at all is no failure. */
export function devices(terminal: Terminal, _args: readonly string[], options: Readonly<Record<string, unknown>>): number {
  using kernel = openKernel(options);
  const list = listDevices(kernel.kernel, { sysfs: options["sysfs"] as string | undefined, dev: options["dev"] as string | undefined, ownPid: kernel.pid });
  if (options["json"] === true) printJson(terminal, list);
  else terminal.print(deviceText(list, emphasisOf(terminal)));
  return list.devices.every(({ state }) => state === "ok") ? ExitCode.OK : ExitCode.REFUSED;
}

/** The kernel a command that only looks at devices uses. */
export interface CommandKernel extends Disposable {
  readonly kernel: Kernel;
  /** This process in the kernel's numbering. */
  readonly pid: number;
}

/** The Linux kernel, or with `--fake` a fake machine's. @throws {ArgumentError} for a machine that cannot exist */
export function openKernel(options: Readonly<Record<string, unknown>>): CommandKernel {
  const product = options["fake"] as Product | undefined;
  if (product === undefined) return { kernel: linuxKernel(), pid: process.pid, [Symbol.dispose]: () => {} };
  const machine = createFake({ product, devices: options["devices"] as number | readonly number[] | undefined ?? 1 });
  const own = machine.process();
  return { kernel: own, pid: own.pid, [Symbol.dispose]: () => machine.close() };
}
