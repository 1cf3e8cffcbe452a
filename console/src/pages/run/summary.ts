/** Owns what the log says about each event in one line: its title, its details, its call and what it links to. */
import { clockText } from "../../ui/format";
import { cut, type EventType, type Failure, type LoggedEvent, type Payload, payloadLine, type RunEvent } from "./model";

export type Tone = "good" | "bad" | "wait" | "note" | "quiet" | "plain";

export interface EventLine {
  title: string;
  detail: string;
  tone: Tone;
  /** The call that the event belongs to. */
  callId: string | null;
  /** A run that the event names. */
  run: string | null;
  /** The event says little by itself: the compact log leaves it out. */
  isBookkeeping: boolean;
}

/** Returns the call of an event, if it belongs to one. Updates have an id of their own. */
export function callOf(event: RunEvent): string | null {
  if ("call_id" in event && typeof event.call_id === "string") return event.call_id;
  if (event.type === "update_received" || event.type === "update_answered") return `update:${event.update_id}`;
  return null;
}

export function failureLine(failure: Failure | null | undefined): string {
  if (!failure) return "";
  return cut(failure.message ? `${failure.code}: ${failure.message}` : failure.code, 200);
}

function seconds(ms: number): string {
  return ms < 1000 ? `${ms} ms` : `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
}

function when(time: string): string {
  return clockText(Date.parse(time));
}

function result(outcome: unknown): { text: string; failed: boolean } {
  const value = outcome as { Ok?: Payload; Err?: Failure };
  return value.Err ? { text: failureLine(value.Err), failed: true } : { text: payloadLine(value.Ok), failed: false };
}

function joined(...parts: (string | null | undefined | false)[]): string {
  return parts.filter((part): part is string => typeof part === "string" && part !== "").join(" · ");
}

/** The name of a task's kind without the prefix of model calls and tools. */
export function taskTitle(kind: string): { word: string; name: string } {
  if (kind.startsWith("llm.")) return { word: "Model call", name: kind.slice(4) };
  if (kind.startsWith("tool.")) return { word: "Tool", name: kind.slice(5) };
  return { word: "Task", name: kind };
}

type Partial_ = Omit<EventLine, "callId" | "isBookkeeping" | "run"> & { run?: string | null };

function line(title: string, detail = "", tone: Tone = "plain", run: string | null = null): Partial_ {
  return { title, detail, tone, run };
}

const BOOKKEEPING: ReadonlySet<EventType> = new Set<EventType>([
  "run_suspended", "task_attempted", "task_attempt_ended", "version_chosen", "child_awaited", "child_settled", "signal_awaited",
  "result_requested", "call_adopted", "wait_canceled", "memo_stored", "memo_released",
]);

export function lineOf(event: RunEvent): EventLine {
  const aside = event.type === "entry_appended" && event.is_aside === true;
  const settled = event.type === "task_attempt_ended" && event.failure_code;
  const isBookkeeping = aside || (BOOKKEEPING.has(event.type) && !settled);
  const { run = null, ...words } = wordsOf(event);
  return { ...words, run, callId: callOf(event), isBookkeeping };
}

function wordsOf(event: RunEvent): Partial_ {
  switch (event.type) {
    case "run_started": {
      const of = event.generation > 0 ? `generation ${event.generation}` : "";
      return line(`Run of ${event.kind} started`, joined(of, event.version && `version ${event.version}`, payloadLine(event.input)), "note");
    }
    case "run_begun": return line("Begun", "its start time has come", "note");
    case "run_completed": return line("Run completed", payloadLine(event.output), "good");
    case "run_failed": return line("Run failed", failureLine(event.failure), "bad");
    case "run_canceled": return line("Run canceled", failureLine(event.failure), "quiet");
    case "run_continued": return event.checkpoint
      ? line("Checkpoint", joined(`${event.checkpoint.depth} entries`, event.checkpoint.awaits && `waits for ${event.checkpoint.awaits}`, event.checkpoint.handoff && `handed over to ${event.checkpoint.handoff}`), "note")
      : line("Continued as the next generation", payloadLine(event.input), "note");
    case "run_paused": return line("Paused", joined(event.reason.replaceAll("_", " "), cut(event.message, 160)), "wait");
    case "run_resumed": return line("Resumed", event.budget ? "with a new budget" : "", "note");
    case "run_suspended": return line("Inputs seen", event.reason, "quiet");
    case "run_forked": return line(event.is_reset ? "Reset from" : "Forked from", joined(`${event.from.id} at ${event.generation}:${event.index}`, event.reason), "note", event.from.id);
    case "retry_requested": return line("Retry requested", event.reason, "note");
    case "cancel_requested": return line("Cancel requested", event.reason, "quiet");
    case "terminate_requested": return line("Terminated", joined(event.reason, event.reset_to && `reset to ${event.reset_to}`), "quiet", event.reset_to ?? null);
    case "branch_requested": return line("Branch requested", joined(event.from ? `after entry ${event.from.slice(0, 8)}` : "at the beginning", event.entry ? `new ${event.entry.role} entry` : ""), "note");
    case "segment_abandoned": return line("Segment abandoned", `events ${event.from} to ${event.to}: ${cut(event.divergence.hint, 120)}`, "wait");
    case "call_adopted": return line("Call taken over", `from ${event.from}`, "quiet");
    case "step_completed": return line(`Step ${event.name}`, joined(event.attempt > 1 && `attempt ${event.attempt}`, seconds(event.took_ms), payloadLine(event.output)), "good");
    case "step_failed": return line(`Step ${event.name} failed`, joined(`attempt ${event.attempt}`, failureLine(event.failure), event.retry_at ? "retries" : "final"), event.retry_at ? "wait" : "bad");
    case "task_scheduled": {
      const { word, name } = taskTitle(event.kind);
      return line(`${word} ${name}`, joined(event.options.queue && `queue ${event.options.queue}`, payloadLine(event.input)));
    }
    case "task_attempted": return line("Attempt begins", `attempt ${event.attempt}`, "quiet");
    case "task_attempt_ended": return event.failure_code
      ? line("Attempt failed", joined(`attempt ${event.attempt}`, event.failure_code), "wait")
      : line("Attempt ended", joined(`attempt ${event.attempt}`, spendLine(event.spend)), "quiet");
    case "task_completed": return line("Task completed", joined(event.attempts > 1 && `${event.attempts} attempts`, payloadLine(event.output)), "good");
    case "task_failed": return line("Task failed", joined(`${event.attempts} attempts`, failureLine(event.failure)), "bad");
    case "task_canceled": return line("Task canceled", "", "quiet");
    case "timer_started": return line("Timer", `due ${when(event.due_at)}`, "wait");
    case "timer_fired": return line("Timer fired", "", "good");
    case "signal_received": return line(`Signal ${event.name} received`, joined(event.sender && `from ${event.sender.id}`, payloadLine(event.payload)), "note", event.sender?.id ?? null);
    case "signal_awaited": return line(`Waits for signal ${event.name}`, event.deadline ? `until ${when(event.deadline)}` : "", "wait");
    case "signal_consumed": return line(`Signal ${event.name} read`, `event ${event.index}`, "good");
    case "signal_sent": return line(`Signal ${event.name} sent`, joined(`to ${event.to}`, payloadLine(event.payload)), "note", event.to);
    case "approval_requested": return line(`Approval requested`, joined(event.title, event.deadline && `until ${when(event.deadline)}`), "wait");
    case "approval_decided": return line(event.approved ? "Approved" : "Denied", joined(event.decided_by && `by ${event.decided_by}`, event.feedback), event.approved ? "good" : "bad");
    case "promise_created": return line(`Promise ${event.name}`, event.deadline ? `until ${when(event.deadline)}` : "", "wait");
    case "promise_resolved": {
      const { text, failed } = result(event.result);
      return line(failed ? "Promise rejected" : "Promise resolved", text, failed ? "bad" : "good");
    }
    case "child_started": return line(`Child ${event.kind}`, joined(event.child, event.is_spawned && "spawned", payloadLine(event.input)), "plain", event.child);
    case "child_awaited": return line("Waits for child", event.child, "wait", event.child);
    case "child_completed": return line("Child completed", joined(event.child, payloadLine(event.output)), "good", event.child ?? null);
    case "child_failed": return line("Child failed", joined(event.child, failureLine(event.failure)), "bad", event.child ?? null);
    case "child_canceled": return line("Child canceled", event.child, "quiet", event.child);
    case "child_settled": return line("Child settled", event.child, "quiet", event.child);
    case "result_requested": return line("Result requested", `by ${event.by.run.id}`, "quiet", event.by.run.id);
    case "update_received": return line(`Update ${event.name} received`, payloadLine(event.payload), "note");
    case "update_answered": {
      const { text, failed } = result(event.result);
      return line(failed ? "Update failed" : "Update answered", text, failed ? "bad" : "good");
    }
    case "state_set": return line(`State ${event.key}`, payloadLine(event.value));
    case "state_cleared": return line(`State ${event.key} cleared`);
    case "attribute_set": return line(`Attribute ${event.name}`, event.value === null ? "removed" : attributeText(event.value));
    case "version_chosen": return line("Version chosen", `${event.change} = ${event.version}`, "quiet");
    case "budget_set": return line("Budget set", budgetLine(event.budget), "note");
    case "memo_requested": return line(`Memo of ${event.of_type} ${event.name}`, event.key, "wait");
    case "memo_answered": return event.hit
      ? line("Result of another run", joined(`from ${event.hit.from}`, payloadLine(event.hit.output)), "good", event.hit.from)
      : line("No result yet: computes it", "", "quiet");
    case "memo_stored": return line("Result kept for equal calls", "", "quiet");
    case "memo_released": return line("Memo given up", "", "quiet");
    case "wait_canceled": return line("No longer waits", "", "quiet");
    case "entry_appended": return event.is_aside
      ? line("Settings of model calls", event.id.slice(0, 8), "quiet")
      : line(`Entry of ${event.role}`, event.quote ? `quotes event ${event.quote.index}` : entryLine(event.content));
    case "external_appended": return line("Events of the external engine", joined(`${event.events.length} events`, event.state?.status));
    default: {
      // A newer server may have events that this console does not know.
      const { type, ...rest } = event as { type: string };
      return line(type.replaceAll("_", " "), cut(JSON.stringify(rest), 160));
    }
  }
}

function entryLine(content: Payload): string {
  const value = "json" in content ? content.json : null;
  const text = (value as { text?: unknown } | null)?.text;
  return typeof value === "string" ? cut(value, 120) : typeof text === "string" ? cut(text, 120) : payloadLine(content);
}

/** Writes the value of an attribute as the API has it in events: one field with its type. */
export function attributeText(value: unknown): string {
  if (value !== null && typeof value === "object") return Object.values(value).map(String).join(" ");
  return String(value);
}

export function budgetLine(budget: { tokens?: number | null; cost?: string | null; turns?: number | null; seconds?: number | null }): string {
  return joined(
    budget.tokens != null && `${budget.tokens} tokens`,
    budget.cost != null && `$${budget.cost}`,
    budget.turns != null && `${budget.turns} turns`,
    budget.seconds != null && `${budget.seconds} s`,
  );
}

function spendLine(spend: { model: string; cost?: string | null; is_unknown?: boolean }[]): string {
  return spend.map((one) => joined(one.model, one.is_unknown ? "cost unknown" : one.cost != null && `$${one.cost}`)).join(", ");
}

/** The text of an event that a search looks through. */
export function searchText(logged: LoggedEvent): string {
  const { title, detail, callId } = lineOf(logged.event);
  return `${logged.event.type} ${title} ${detail} ${callId ?? ""}`.toLowerCase();
}
