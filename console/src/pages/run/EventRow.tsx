/** Owns one row of the log. */
import { clockText } from "../../ui/format";
import { href } from "../../ui/router";
import type { CompactRow } from "./logStore";
import type { LoggedEvent } from "./model";
import { lineOf, taskTitle } from "./summary";

export interface EventRowProps {
  run: string;
  index: number;
  event: LoggedEvent | undefined;
  /** The events that a compact row stands for. */
  row: CompactRow | null;
  isSelected: boolean;
  onSelect: () => void;
}

/** A result says more with the name of its call before it: `Task resize completed`. */
function titleOf(row: CompactRow | null, event: LoggedEvent): string {
  const { title } = lineOf(event.event);
  const begin = row?.begin;
  if (!begin || begin === event) return title;
  const first = begin.event;
  if (first.type === "task_scheduled") {
    const { word, name } = taskTitle(first.kind);
    return title.startsWith("Task ") ? `${word} ${name} ${title.slice(5)}` : `${word} ${name}: ${title.toLowerCase()}`;
  }
  if (first.type === "child_started") return title.replace(/^Child/, `Child ${first.kind}`);
  if (first.type === "approval_requested") return `${title}: ${first.title}`;
  if (first.type === "promise_created") return title.replace(/^Promise/, `Promise ${first.name}`);
  if (first.type === "update_received") return title.replace(/^Update/, `Update ${first.name}`);
  return title;
}

export function EventRow({ run, index, event, row, isSelected, onSelect }: EventRowProps) {
  if (!event) return <div class="log-row log-empty"><span class="log-index tabular">{index}</span><span class="muted">loading…</span></div>;
  const line = lineOf(event.event);
  const call = line.callId !== null && !line.callId.startsWith("update:") ? line.callId : null;
  return (
    <div class={`log-row log-${line.tone}${isSelected ? " log-selected" : ""}`} onClick={onSelect}>
      <span class="log-index tabular">{index}</span>
      <time class="log-time tabular" dateTime={event.at}>{clockText(Date.parse(event.at), Date.now(), true)}</time>
      <button type="button" class="log-title ellipsis" aria-pressed={isSelected} onClick={(click) => { click.stopPropagation(); onSelect(); }}>{titleOf(row, event)}</button>
      <span class="log-detail muted ellipsis">{line.detail}</span>
      {row && row.indexes.length > 1 && <span class="log-count muted" title={`Events ${row.indexes.join(", ")}`}>{row.indexes.length}</span>}
      {call !== null && (
        <a class="log-call" href={href(["runs", run, "timeline"], { call, generation: event.generation })} onClick={(click) => click.stopPropagation()} title="Show the call in the timeline">{call}</a>
      )}
    </div>
  );
}
