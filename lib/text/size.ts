const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"] as const;

/**
 * A byte count for people: `0 B`, `1023 B`, `62.0 KiB`, `4.00 GiB`; three
 * significant digits, binary units.
 */
export function humanSize(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit++;
  }
  if (unit === 0) return `${bytes} B`;
  return `${value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)} ${UNITS[unit]}`;
}

/** A number with thousands separated by spaces: `12 345 678`. */
export function grouped(value: number): string {
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, " ");
}

/** A device physical address as `0x…`, padded to twelve digits so that columns line up. */
export function address(value: number): string {
  return `0x${value.toString(16).padStart(12, "0")}`;
}
