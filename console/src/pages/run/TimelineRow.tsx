/** Owns one row of the timeline and its axis. */
import { Button } from "../../ui/Button";
import { Icon, type IconName } from "../../ui/icons";
import { StatusDot } from "../../ui/Status";
import type { TimelineCall } from "./model";
import { shownName } from "./timeline";
import type { Row } from "./TimelineTab";
import { barsOf, place, shortSpan, ticks, timesOf, type Bar, type View } from "./waterfall";

const ICONS: Record<TimelineCall["type"], IconName> = {
  step: "play", task: "queues", model: "star", tool: "workers", timer: "refresh", signal: "out", approval: "approvals", promise: "key", child: "branch", update: "info",
};

export function Axis({ view, origin, count }: { view: View; origin: number; count: number }) {
  return (
    <div class="tl-row tl-axis" aria-hidden="true">
      <div class="tl-name tl-head muted">Call</div>
      <div class="tl-axis-bars">
        {ticks(view, origin, count).map((tick) => {
          const at = place({ from: tick.at, to: tick.at }, view);
          return at && <span key={tick.at} class={at.left > 94 ? "tl-tick tl-tick-last" : at.left < 2 ? "tl-tick tl-tick-first" : "tl-tick"} style={{ left: `${at.left}%` }}>{tick.label}</span>;
        })}
      </div>
    </div>
  );
}

export interface TimelineRowProps {
  row: Row;
  view: View;
  now: number;
  isSelected: boolean;
  isOpen: boolean;
  onSelect: () => void;
  onToggle: () => void;
}

export function TimelineRow({ row: { call, depth }, view, now, isSelected, isOpen, onSelect, onToggle }: TimelineRowProps) {
  const bars = barsOf(call, now);
  const { queued, ran, waited } = timesOf(call, now);
  const title = shownName(call);
  const names = ["tl-row", isSelected && "tl-selected", call.abandoned && "tl-abandoned"].filter(Boolean).join(" ");
  return (
    <div class={names} onClick={onSelect}>
      <div class="tl-name" style={{ paddingLeft: `${16 + depth * 16}px` }}>
        {call.child !== null ? (
          <Button kind="quiet" small icon={isOpen ? "down" : "right"} label={`Calls of ${call.child}`} expanded={isOpen} onClick={(event) => { event.stopPropagation(); onToggle(); }} />
        ) : (
          <span class="tl-icon"><Icon name={ICONS[call.type]} size={12} /></span>
        )}
        <button type="button" class="tl-select" aria-pressed={isSelected} onClick={(event) => { event.stopPropagation(); onSelect(); }}>
          <span class="ellipsis">{title}</span>
          <span class="muted tl-type">{call.type}</span>
        </button>
        {call.attempts.length > 1 && <span class="tl-attempts" title={`${call.attempts.length} attempts`}>×{call.attempts.length}</span>}
        <StatusDot status={call.abandoned ? "abandoned" : call.status} word={false} label={call.abandoned ? "abandoned" : call.status} />
      </div>
      <div class="tl-bars">
        {bars.map((bar, at) => <BarView key={at} bar={bar} call={call} view={view} />)}
        <After bars={bars} view={view} text={spanText(call, queued, ran, waited)} />
      </div>
    </div>
  );
}

function spanText(call: TimelineCall, queued: number, ran: number, waited: number): string {
  if (call.type === "task" || call.type === "model" || call.type === "tool") {
    return `${shortSpan(ran)}${queued >= 100 ? ` + ${shortSpan(queued)} queued` : ""}`;
  }
  return shortSpan(ran > 0 || call.type === "step" || call.type === "child" ? ran : waited);
}

const WORDS = { queue: "in the queue", run: "attempt", wait: "waits", gap: "until the next attempt" };

function BarView({ bar, call, view }: { bar: Bar; call: TimelineCall; view: View }) {
  const at = place(bar, view);
  if (!at) return null;
  const names = ["tl-bar", `tl-${bar.kind}`, bar.isFailed && "tl-failed", bar.isOpen && "tl-open", call.status === "canceled" && "tl-canceled"].filter(Boolean).join(" ");
  const words = bar.kind === "run" && bar.attempt === null ? "runs" : `${WORDS[bar.kind]}${bar.attempt ? ` ${bar.attempt}` : ""}`;
  return <span class={names} style={{ left: `${at.left}%`, width: `max(2px, ${at.width}%)` }} title={`${words}: ${shortSpan(bar.to - bar.from)}${bar.worker ? `, ${bar.worker}` : ""}`} />;
}

/** The time of a call, right of its bars; left of them at the edge. */
function After({ bars, view, text }: { bars: Bar[]; view: View; text: string }) {
  const last = bars.at(-1);
  const first = bars[0];
  if (!last || !first) return null;
  const at = place({ from: first.from, to: last.to }, view);
  if (!at) return null;
  const right = at.left + at.width;
  if (right < 84) return <span class="tl-time" style={{ left: `calc(${right}% + 6px)` }}>{text}</span>;
  if (at.left > 11) return <span class="tl-time" style={{ right: `calc(${100 - at.left}% + 6px)` }}>{text}</span>;
  return <span class="tl-time tl-inside" style={{ left: `calc(${at.left}% + 6px)` }}>{text}</span>;
}
