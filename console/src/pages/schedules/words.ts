/** Owns the words for the parts of a schedule. */
import type { Overlap, Schedule, ScheduleSpec, Schemas } from "../../api/model";
import { countText } from "../../ui/format";

export type HistoryEntry = Schemas["HistoryEntry"];

/** Policies with their meaning, in the order of the guide. */
export const OVERLAPS: readonly { value: Overlap; label: string }[] = [
  { value: "skip", label: "skip: the slot is skipped" },
  { value: "buffer_one", label: "buffer_one: one slot waits, others are skipped" },
  { value: "buffer_all", label: "buffer_all: all slots wait" },
  { value: "cancel_other", label: "cancel_other: the run is canceled" },
  { value: "terminate_other", label: "terminate_other: the run is terminated" },
  { value: "allow_all", label: "allow_all: runs are side by side" },
];

const REASONS: Record<Schemas["SkipReason"], string> = {
  overlap: "a run was running",
  buffer_full: "the buffer was full",
  superseded: "a later slot took the place in the buffer",
  paused: "the schedule was paused",
  missed: "they were due before the catch-up window",
  replaced: "the definition was replaced",
  too_many_runs: "too many runs were running",
  canceled: "the backfill was canceled",
  already_started: "the slot was started before",
};

/** Returns the reason why slots have no run. */
export function reasonText(reason: Schemas["SkipReason"]): string {
  return REASONS[reason] ?? reason;
}

const UNITS: readonly [string, number][] = [["d", 86_400_000], ["h", 3_600_000], ["m", 60_000], ["s", 1000], ["ms", 1]];

/** Returns a duration without loss, as the command line takes it: `1h30m`, `90s` is `1m30s`. */
export function spanText(ms: number): string {
  let rest = ms;
  let text = "";
  for (const [unit, size] of UNITS) {
    const count = Math.floor(rest / size);
    if (count > 0) text += `${count}${unit}`;
    rest -= count * size;
  }
  return text || "0s";
}

/** Returns the milliseconds of `15m`, `1h 30m` or `1 d`; null for any other text. */
export function spanOf(text: string): number | null {
  const compact = text.replace(/\s+/g, "").toLowerCase();
  if (!/^(\d{1,9}(ms|min|[smhd]))+$/.test(compact)) return null;
  let total = 0;
  for (const [, count, unit] of compact.matchAll(/(\d+)(ms|min|[smhd])/g)) {
    total += Number(count) * (UNITS.find(([name]) => name === (unit === "min" ? "m" : unit))?.[1] ?? 0);
  }
  return total;
}

/** Returns an interval: `15m`, `1h + 10m` with an offset. */
export function intervalText({ every_ms, offset_ms }: Schemas["Interval"]): string {
  return offset_ms ? `${spanText(every_ms)} + ${spanText(offset_ms)}` : spanText(every_ms);
}

/** Returns the times of a specification in words, one part each. */
export function timesOf(spec: ScheduleSpec): string[] {
  const { at = [], calendars = [], except = [] } = spec;
  return [
    ...(spec.cron ?? []),
    ...(spec.every ?? []).map((interval) => `every ${intervalText(interval)}`),
    ...(at.length === 1 ? [`at ${at[0]}`] : at.length > 1 ? [countText(at.length, "single time")] : []),
    ...(calendars.length > 0 ? [countText(calendars.length, "calendar")] : []),
    ...(except.length > 0 ? [countText(except.length, "exception")] : []),
  ];
}

/** Returns the time zone of a specification. */
export function zoneOf(spec: ScheduleSpec): string {
  return spec.time_zone ?? "UTC";
}

/** Returns the latest run of a history. */
export function lastRunOf(history: readonly HistoryEntry[]): HistoryEntry | null {
  return history.findLast((entry) => entry.started) ?? null;
}

/** Returns a text that changes whenever a run of the schedule starts or ends. */
export function runsKey({ totals, running, revision }: Schedule): string {
  return [revision, totals.started, totals.completed, totals.failed, ...running.map(({ firing }) => firing.number)].join(" ");
}

/** Returns the schedule that started a run; null for other runs. */
export function scheduleOfRun(run: string): string | null {
  const at = run.indexOf("@");
  return at > 0 ? run.slice(0, at) : null;
}
