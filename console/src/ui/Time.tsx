/** Owns times and durations on the screen: relative, renewed each second, exact in the title. */
import { clockText, durationText, exactText, relativeText } from "./format";
import { now } from "./hooks";

type TimeText = string | null | undefined;

export interface TimeProps {
  at: TimeText;
  /** `relative`: 3 min ago. `clock`: 14:03:22. `both`: the clock with the relative time after it. */
  mode?: "relative" | "clock" | "both";
}

export function Time({ at, mode = "relative" }: TimeProps) {
  if (!at) return <span class="muted">–</span>;
  const time = Date.parse(at);
  return (
    <time dateTime={at} title={exactText(time)}>
      {mode !== "relative" && clockText(time)}
      {mode === "both" && <span class="muted"> · </span>}
      {mode !== "clock" && <Relative time={time} />}
    </time>
  );
}

function Relative({ time }: { time: number }) {
  return <>{relativeText(time, now.value)}</>;
}

/** A duration in milliseconds, or between two times; without an end it counts on. */
export function Duration({ ms, from, to }: { ms?: number; from?: TimeText; to?: TimeText }) {
  if (ms !== undefined) return <span class="tabular">{durationText(ms)}</span>;
  if (!from) return <span class="muted">–</span>;
  if (!to) return <Running from={Date.parse(from)} />;
  return <span class="tabular">{durationText(Date.parse(to) - Date.parse(from))}</span>;
}

function Running({ from }: { from: number }) {
  // Whole seconds: digits that change faster than the clock only distract.
  return <span class="tabular">{durationText(now.value - from, true)}</span>;
}
