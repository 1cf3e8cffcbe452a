/** Owns the geometry of the timeline: bars of calls in milliseconds, the visible window, its zoom and its ticks. No DOM. */
import type { TimelineCall } from "./model";

export type BarKind = "queue" | "run" | "wait" | "gap";

export interface Bar {
  kind: BarKind;
  from: number;
  to: number;
  /** It still goes on: its end moves with the clock. */
  isOpen: boolean;
  isFailed: boolean;
  attempt: number | null;
  worker: string | null;
}

export interface View {
  from: number;
  to: number;
}

const WAITS: ReadonlySet<TimelineCall["type"]> = new Set(["timer", "signal", "approval", "promise", "update"]);

function ms(time: string | null): number | null {
  const value = time === null ? NaN : Date.parse(time);
  return Number.isNaN(value) ? null : value;
}

/** Returns the bars of a call, left to right: time in the queue, attempts, and waits between them. */
export function barsOf(call: TimelineCall, now: number): Bar[] {
  const ended = ms(call.ended_at);
  const over = ended !== null || call.status === "abandoned";
  const last = ended ?? (over ? lastKnown(call, now) : now);
  const bars: Bar[] = [];
  const add = (kind: BarKind, from: number, to: number, more: Partial<Bar> = {}) => {
    bars.push({ kind, from, to: Math.max(from, to), isOpen: false, isFailed: false, attempt: null, worker: null, ...more });
  };
  if (WAITS.has(call.type)) {
    const from = ms(call.queued_at) ?? ms(call.started_at);
    if (from !== null) add("wait", from, last, { isOpen: !over, isFailed: call.status === "failed" });
    return bars;
  }
  const attempts = call.attempts.filter((attempt) => attempt.started_at !== null);
  const queued = ms(call.queued_at);
  const first = ms(attempts[0]?.started_at ?? null) ?? ms(call.started_at);
  // Older logs do not say when a task began: its result proves that it ran.
  if (queued !== null && first === null && call.status === "completed") {
    add("run", queued, last);
    return bars;
  }
  if (queued !== null) {
    const until = first ?? last;
    if (until > queued || first === null) add("queue", queued, until, { isOpen: first === null && !over, isFailed: first === null && call.status === "failed" });
  }
  if (attempts.length === 0) {
    if (first !== null) add("run", first, last, { isOpen: !over, isFailed: call.status === "failed" });
    return bars;
  }
  attempts.forEach((attempt, at) => {
    const from = ms(attempt.started_at) ?? 0;
    const next = ms(attempts[at + 1]?.started_at ?? null);
    const end = ms(attempt.ended_at) ?? next ?? last;
    const isOpen = attempt.ended_at === null && next === null && !over;
    add("run", from, end, { isOpen, isFailed: attempt.failure !== null, attempt: attempt.attempt, worker: attempt.worker });
    if (next !== null && next > end) add("gap", end, next);
    if (next === null && !isOpen && !over) add("gap", end, now, { isOpen: true });
  });
  return bars;
}

function lastKnown(call: TimelineCall, now: number): number {
  const times = call.attempts.flatMap((attempt) => [attempt.started_at, attempt.ended_at]);
  const known = [call.queued_at, call.started_at, ...times].map(ms).filter((time): time is number => time !== null);
  return known.length > 0 ? Math.max(...known) : now;
}

/** How long a call was in the queue and how long it ran, in milliseconds. */
export function timesOf(call: TimelineCall, now: number): { queued: number; ran: number; waited: number } {
  const sum = (kind: BarKind) => barsOf(call, now).filter((bar) => bar.kind === kind).reduce((all, bar) => all + bar.to - bar.from, 0);
  return { queued: sum("queue"), ran: sum("run"), waited: sum("wait") + sum("gap") };
}

/** Returns the window that shows everything, with a little room. */
export function fitView(startedAt: string, endedAt: string | null, now: number, calls: readonly TimelineCall[] = []): View {
  const from = Date.parse(startedAt);
  let to = Math.max(from + 10, ms(endedAt) ?? now);
  // The clock of a worker may be ahead.
  for (const call of calls) to = Math.max(to, ms(call.ended_at) ?? 0, ms(call.started_at) ?? 0);
  const room = Math.max(1, (to - from) * 0.02);
  return { from: from - room / 4, to: to + room };
}

const SHORTEST = 5;

/** Changes the scale around a point of the window (0 to 1); the window stays near the bounds. */
export function zoomView(view: View, factor: number, at: number, bounds: View): View {
  const span = view.to - view.from;
  const full = bounds.to - bounds.from;
  const wanted = Math.min(full, Math.max(SHORTEST, span * factor));
  const center = view.from + span * at;
  return clampView({ from: center - wanted * at, to: center + wanted * (1 - at) }, bounds);
}

export function panView(view: View, byMs: number, bounds: View): View {
  return clampView({ from: view.from + byMs, to: view.to + byMs }, bounds);
}

export function clampView(view: View, bounds: View): View {
  const span = Math.min(view.to - view.from, bounds.to - bounds.from);
  const from = Math.min(Math.max(view.from, bounds.from), bounds.to - span);
  return { from, to: from + span };
}

/** Returns the position of a bar in percent of the window; `null` if it is outside. */
export function place(bar: { from: number; to: number }, view: View): { left: number; width: number } | null {
  const span = view.to - view.from;
  if (span <= 0 || bar.to < view.from || bar.from > view.to) return null;
  const left = Math.max(0, ((bar.from - view.from) / span) * 100);
  const right = Math.min(100, ((bar.to - view.from) / span) * 100);
  return { left, width: Math.max(0, right - left) };
}

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const STEPS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE,
  10 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 30 * DAY, 90 * DAY, 365 * DAY, 3650 * DAY,
];

export interface Tick {
  at: number;
  /** Time since the start of the run. */
  label: string;
}

/** Returns at most `count` ticks at round times since `origin`. */
export function ticks(view: View, origin: number, count: number): Tick[] {
  const span = view.to - view.from;
  const step = STEPS.find((one) => span / one <= count) ?? span;
  const first = Math.ceil((view.from - origin) / step) * step;
  const out: Tick[] = [];
  for (let since = first; origin + since <= view.to && out.length <= count; since += step) {
    out.push({ at: origin + since, label: since === 0 ? "0" : shortSpan(since) });
  }
  return out;
}

/** Writes a time span with at most two units: `1.5 s`, `2 min 10 s`, `3 d 4 h`. */
export function shortSpan(value: number): string {
  const sign = value < 0 ? "−" : "";
  const abs = Math.abs(value);
  if (abs < SECOND) return `${sign}${Math.round(abs)} ms`;
  if (abs < 10 * SECOND) return `${sign}${trimmed(abs / SECOND)} s`;
  if (abs < MINUTE) return `${sign}${trimmed(Math.round(abs / 100) / 10)} s`;
  const units: [number, string][] = [[DAY, "d"], [HOUR, "h"], [MINUTE, "min"], [SECOND, "s"]];
  const at = units.findIndex(([size]) => abs >= size);
  const [size, word] = units[at] ?? units[3]!;
  const next = units[at + 1];
  const whole = Math.floor(abs / size);
  const rest = next ? Math.floor((abs - whole * size) / next[0]) : 0;
  return `${sign}${whole} ${word}${next && rest > 0 ? ` ${rest} ${next[1]}` : ""}`;
}

function trimmed(value: number): string {
  return value.toFixed(2).replace(/\.?0+$/, "");
}
