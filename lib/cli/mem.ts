import { memoryText, type MemoryReport, readHostMemory, SYSFS_SCOPE } from "./text/memory_report.ts";
import { readSysfsMemory } from "../host/sysfs_memory.ts";
import { openKernel } from "./devices.ts";
import { ExitCode } from "./failure.ts";
import { emphasisOf, printJson, type Terminal } from "./terminal.ts";

/** `mem`: who uses the memory of the devices and of the host. Exit code 1 when there is no device to ask. */
export function mem(terminal: Terminal, _args: readonly string[], options: Readonly<Record<string, unknown>>): number {
  using kernel = openKernel(options);
  const report: MemoryReport = {
    scope: SYSFS_SCOPE,
    ...readSysfsMemory(kernel.kernel, { root: options["sysfs"] as string | undefined, expected: options["expect"] as number | readonly number[] | undefined }),
    host: readHostMemory(kernel.kernel),
  };
  if (options["json"] === true) printJson(terminal, report);
  else terminal.print(memoryText(report, emphasisOf(terminal)));
  return report.devices.length > 0 ? ExitCode.OK : ExitCode.REFUSED;
}
