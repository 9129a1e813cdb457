import type { DriverVersion } from "./types.ts";

/** Parses a driver version such as `2.24.7.0`; null when the text holds none. */
export function parseVersion(text: string): DriverVersion | null {
  const match = /^\s*(\d+(?:\.\d+)+)/.exec(text);
  return match === null ? null : match[1]!.split(".").map(Number);
}

/** Compares two versions: negative when `a` is older, 0 when equal; missing parts count as 0. */
export function compareVersions(a: DriverVersion, b: DriverVersion): number {
  for (let i = 0; i < Math.max(a.length, b.length); i++) {
    const difference = (a[i] ?? 0) - (b[i] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

/**
 * Whether `version` is at least `major.minor`.
 *
 * @example
 * console.log(isAtLeast(parseVersion("2.24.7.0")!, 2, 25)); // → false
 */
export function isAtLeast(version: DriverVersion, major: number, minor: number): boolean {
  return compareVersions(version, [major, minor]) >= 0;
}

/** Writes a version with dots. */
export function formatVersion(version: DriverVersion): string {
  return version.join(".");
}
