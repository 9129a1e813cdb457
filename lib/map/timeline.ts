/** Use over time, from recorded allocations and frees. */
import type { Peak, PictureEvent } from "./model.ts";

/** The state after one event. */
export interface TimelinePoint {
  /** The event. */
  readonly event: PictureEvent;
  /** Bytes in use afterwards on the event's HBM, or null for host memory. */
  readonly usedBytes: number | null;
  /** Bytes in use afterwards on all HBMs together. */
  readonly totalBytes: number;
}

/** Use over time. */
export interface Timeline {
  /** Bytes in use on all HBMs before the first event: 0 unless the record begins in the middle. */
  readonly startBytes: number;
  /** One point per event. */
  readonly points: readonly TimelinePoint[];
  /** The highest moment, the first of several; its sequence is one before the first event's when nothing exceeds the start. Null without events. */
  readonly peak: Peak | null;
}

/**
 * Adds up events. Where an event tells what was in use afterwards that is taken
 * as it is, so that a record that lost its beginning still shows true levels.
 */
export function timelineOf(events: readonly PictureEvent[]): Timeline {
  const first = events[0];
  if (first === undefined) return { startBytes: 0, points: [], peak: null };
  const levels = startLevels(events);
  const startBytes = [...levels.values()].reduce((sum, level) => sum + level, 0);
  let totalBytes = startBytes;
  let peak: Peak = { bytes: startBytes, sequence: first.sequence - 1, time: first.time };
  const points = events.map((event): TimelinePoint => {
    if (event.hbm === null) return { event, usedBytes: null, totalBytes };
    const key = slotOf(event);
    const before = levels.get(key)!;
    const usedBytes = event.usedAfter ?? Math.max(0, before + (event.action === "alloc" ? event.bytes : -event.bytes));
    levels.set(key, usedBytes);
    totalBytes += usedBytes - before;
    if (totalBytes > peak.bytes) peak = { bytes: totalBytes, sequence: event.sequence, time: event.time };
    return { event, usedBytes, totalBytes };
  });
  return { startBytes, points, peak };
}

/** What was in use on each HBM before its first event. */
function startLevels(events: readonly PictureEvent[]): Map<string, number> {
  const levels = new Map<string, number>();
  for (const event of events) {
    const key = slotOf(event);
    if (event.hbm === null || levels.has(key)) continue;
    const { usedAfter, bytes } = event;
    const before = usedAfter === null ? (event.action === "alloc" ? 0 : bytes) : event.action === "alloc" ? usedAfter - bytes : usedAfter + bytes;
    levels.set(key, Math.max(0, before));
  }
  return levels;
}

function slotOf({ device, hbm }: PictureEvent): string {
  return `${device}:${hbm}`;
}

/**
 * Leaves out points where there are too many to draw; of every stretch the first,
 * lowest, highest and last stay, so that the outline and the peak are true.
 *
 * @param limit most points to keep, at least 8
 */
export function thinPoints(points: readonly TimelinePoint[], limit: number): readonly TimelinePoint[] {
  if (points.length <= limit) return points;
  const stretches = Math.floor(limit / 4);
  const kept: TimelinePoint[] = [];
  for (let stretch = 0; stretch < stretches; stretch++) {
    const from = Math.floor((stretch * points.length) / stretches);
    const to = Math.floor(((stretch + 1) * points.length) / stretches);
    let [low, high] = [from, from];
    for (let at = from; at < to; at++) {
      if (points[at]!.totalBytes < points[low]!.totalBytes) low = at;
      if (points[at]!.totalBytes > points[high]!.totalBytes) high = at;
    }
    for (const at of [...new Set([from, low, high, to - 1])].sort((a, b) => a - b)) kept.push(points[at]!);
  }
  return kept;
}
