/** Owns small parts that the list and the page of a schedule share. */
import type { Schedule, ScheduleSpec } from "../../api/model";
import { href } from "../../ui/router";
import { Badge, StatusDot } from "../../ui/Status";
import { type HistoryEntry, timesOf, zoneOf } from "./words";

export function StateOf({ schedule }: { schedule: Schedule }) {
  const { paused, spec, next } = schedule;
  if (paused) {
    return (
      <span class="schedule-state">
        <StatusDot status="paused" />
        {paused.note && <span class="muted schedule-note">{paused.note}</span>}
      </span>
    );
  }
  const isOver = next.length === 0;
  return <StatusDot status={isOver ? "canceled" : "running"} label={isOver ? (spec.end_at && Date.parse(spec.end_at) < Date.now() ? "ended" : "no slots left") : "active"} />;
}

/** What a schedule does, in words, and in which zone. */
export function Times({ spec }: { spec: ScheduleSpec }) {
  const parts = timesOf(spec);
  return (
    <span class="schedule-times">
      {parts.length === 0 ? <span class="muted">no times</span> : parts.map((part, at) => <span key={at} class="mono">{part}</span>)}
      {(spec.cron?.length || spec.calendars?.length || spec.except?.length || spec.time_zone) ? <span class="muted">{zoneOf(spec)}</span> : null}
    </span>
  );
}

/** The end of a run that a schedule started. */
export function Outcome({ entry }: { entry: HistoryEntry }) {
  const { ended } = entry;
  if (!ended) return <StatusDot status="running" />;
  if (ended.ending === "existed") return <Badge text="existed before" />;
  return (
    <span class="row">
      <StatusDot status={ended.ending} />
      {ended.code && <code class="muted">{ended.code}</code>}
    </span>
  );
}

export function RunLink({ run }: { run: string }) {
  return <a class="mono" href={href(["runs", run])}>{run}</a>;
}
