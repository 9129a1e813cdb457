/** Comma-separated values. */

/** A text as a CSV field: quoted when it holds a comma, a quote or a line break. */
export function csvText(text: string): string {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
