/**
 * Owns the calls of one generation as the timeline shows them: the server's page of calls, and what live frames add to it.
 * Every change is idempotent by the index of its event, because the page and the live feed overlap.
 */
import type { ActiveCall, EventOf, Failure, LoggedEvent, Payload, RunEvent, TimelineAttempt, TimelineCall } from "./model";
import { callOf } from "./summary";

type CallType = TimelineCall["type"];

export interface Timeline {
  /** In order of their first event; running steps without one come last. */
  calls: TimelineCall[];
  /** Calls that later events can still belong to, by `keyOf`; an abandoned one is not here, because its id may be used again. */
  byId: Map<string, TimelineCall>;
  /** Progress reports of running tasks, by call. */
  progress: Map<string, Payload>;
}

export function emptyTimeline(): Timeline {
  return { calls: [], byId: new Map(), progress: new Map() };
}

/** Updates have ids of their own, which may look like call ids. */
function keyOf(call: Pick<TimelineCall, "type" | "call_id">): string {
  return call.type === "update" ? `update:${call.call_id}` : call.call_id;
}

/** Adds a page of the server. A call that is known already is replaced, unless it is further than the page. */
export function addPage(timeline: Timeline, calls: TimelineCall[]): void {
  for (const call of calls) {
    const known = timeline.byId.get(keyOf(call));
    if (known && !call.abandoned) {
      if ((known.last_index ?? -1) <= (call.last_index ?? -1)) Object.assign(known, call);
      continue;
    }
    if (call.abandoned && timeline.calls.some((one) => one.abandoned && one.call_id === call.call_id && one.first_index === call.first_index)) continue;
    timeline.calls.push(call);
    if (!call.abandoned) timeline.byId.set(keyOf(call), call);
  }
  sort(timeline);
}

function sort(timeline: Timeline): void {
  timeline.calls.sort((a, b) => (a.first_index ?? Infinity) - (b.first_index ?? Infinity) || compare(a.started_at, b.started_at));
}

function compare(a: string | null, b: string | null): number {
  return (a ?? "") < (b ?? "") ? -1 : (a ?? "") > (b ?? "") ? 1 : 0;
}

export function taskType(kind: string): CallType {
  return kind.startsWith("llm.") ? "model" : kind.startsWith("tool.") ? "tool" : "task";
}

function newCall(id: string, type: CallType, name: string | null, logged: LoggedEvent | null, at: string): TimelineCall {
  return {
    call_id: type === "update" ? id.replace(/^update:/, "") : id, type, name, status: "waiting", queued_at: null, started_at: at, ended_at: null, attempts: [],
    first_index: logged?.index ?? null, last_index: logged?.index ?? null, child: null, deadline: null, input: null, abandoned: false,
  };
}

/** Returns the call for an event: the known one, or a new one at the end of the list. */
function opened(timeline: Timeline, id: string, type: CallType, name: string | null, logged: LoggedEvent): TimelineCall {
  const known = timeline.byId.get(id);
  if (known) {
    known.name = known.name ?? name;
    if (known.first_index === null) {
      known.first_index = logged.index;
      known.last_index = logged.index;
      sort(timeline);
    }
    return known;
  }
  const call = newCall(id, type, name, logged, logged.at);
  timeline.byId.set(id, call);
  const at = timeline.calls.findIndex((one) => one.first_index === null);
  timeline.calls.splice(at < 0 ? timeline.calls.length : at, 0, call);
  return call;
}

function end(call: TimelineCall, status: TimelineCall["status"], at: string, failure: Failure | null = null): void {
  call.status = status;
  call.ended_at = at;
  const last = call.attempts.at(-1);
  if (last && last.ended_at === null) {
    last.ended_at = at;
    last.failure = failure;
  } else if (!last && failure) {
    // A task that never began has no attempt to hold its failure.
    call.attempts.push({ attempt: 0, started_at: null, ended_at: at, failure, worker: null });
  }
}

function attemptOf(call: TimelineCall, attempt: number): TimelineAttempt {
  const known = call.attempts.find((one) => one.attempt === attempt);
  if (known) return known;
  const created: TimelineAttempt = { attempt, started_at: null, ended_at: null, failure: null, worker: null };
  call.attempts.push(created);
  call.attempts.sort((a, b) => a.attempt - b.attempt);
  return created;
}

/** Adds a log event. Returns whether it changed anything. */
export function addEvent(timeline: Timeline, logged: LoggedEvent): boolean {
  const { event, index } = logged;
  if (event.type === "segment_abandoned") return abandon(timeline, event);
  if (event.type === "child_settled") return settleChild(timeline, event, logged);
  if (event.type === "call_adopted") return adopt(timeline, event);
  const id = callOf(event);
  if (id === null) return closeAll(timeline, logged);
  const known = timeline.byId.get(id);
  if (known && known.last_index !== null && index <= known.last_index && known.first_index !== index) return false;
  if (known && known.first_index === index && known.last_index !== index) return false;
  const call = apply(timeline, id, logged);
  if (!call) return false;
  call.last_index = Math.max(call.last_index ?? index, index);
  return true;
}

function apply(timeline: Timeline, id: string, logged: LoggedEvent): TimelineCall | null {
  const { event, at } = logged;
  switch (event.type) {
    case "step_completed":
    case "step_failed": return addStep(timeline, id, event, logged);
    case "task_scheduled": {
      const call = opened(timeline, id, taskType(event.kind), event.kind, logged);
      call.queued_at = at;
      call.input = event.input;
      if (call.attempts.length === 0) {
        call.started_at = null;
        call.status = "queued";
      }
      return call;
    }
    case "memo_requested":
      return opened(timeline, id, event.of_type === "step" ? "step" : taskType(event.name), event.name, logged);
    case "memo_answered": {
      const call = timeline.byId.get(id);
      if (!call) return null;
      if (event.hit) {
        call.memo_from = event.hit.from;
        end(call, "completed", at);
      } else {
        call.status = call.type === "step" ? "running" : "queued";
      }
      return call;
    }
    case "memo_released": {
      const call = timeline.byId.get(id);
      if (!call || call.status !== "waiting") return null;
      end(call, "canceled", at);
      return call;
    }
    case "timer_started": {
      const call = opened(timeline, id, "timer", null, logged);
      call.deadline = event.due_at;
      return call;
    }
    case "signal_awaited":
    case "promise_created":
    case "approval_requested": {
      const type = event.type === "signal_awaited" ? "signal" : event.type === "promise_created" ? "promise" : "approval";
      const call = opened(timeline, id, type, event.name, logged);
      call.deadline = event.deadline;
      if (event.type === "approval_requested") call.input = event.show;
      return call;
    }
    case "signal_consumed": return ended(opened(timeline, id, "signal", event.name, logged), at);
    case "update_received": {
      const call = opened(timeline, id, "update", event.name, logged);
      call.input = event.payload;
      return call;
    }
    case "child_started": {
      const call = opened(timeline, id, "child", event.kind, logged);
      call.child = event.child;
      call.input = event.input;
      call.status = "running";
      return call;
    }
    case "child_awaited": {
      const call = opened(timeline, id, "child", null, logged);
      call.child = event.child;
      return call;
    }
  }
  const call = timeline.byId.get(id);
  return call ? applyToKnown(call, event, at) : null;
}

function ended(call: TimelineCall, at: string): TimelineCall {
  end(call, "completed", at);
  return call;
}

function applyToKnown(call: TimelineCall, event: RunEvent, at: string): TimelineCall | null {
  switch (event.type) {
    case "task_attempted":
      begin(call, event.attempt, event.began_at ?? at, null);
      return call;
    case "task_attempt_ended": {
      const attempt = attemptOf(call, event.attempt);
      attempt.started_at ??= event.began_at;
      attempt.ended_at ??= at;
      if (event.failure_code) {
        attempt.failure ??= { code: event.failure_code, message: "", causes: [], details: null, retry_after_ms: null, retryable: true };
        if (call.ended_at === null) call.status = "retrying";
      }
      return call;
    }
    case "timer_fired":
      // A step gets it for its next attempt, a wait if its deadline comes first.
      if (call.type === "step") [call.status, call.deadline] = ["running", null];
      else end(call, call.type === "timer" ? "completed" : "failed", at);
      return call;
    case "task_completed":
      ran(call, event);
      end(call, "completed", at);
      return call;
    case "approval_decided":
    case "child_completed":
      end(call, "completed", at);
      return call;
    case "task_failed":
      ran(call, event);
      end(call, "failed", at, event.failure);
      return call;
    case "child_failed":
      end(call, "failed", at, event.failure);
      return call;
    case "promise_resolved":
    case "update_answered": {
      const failure = (event.result as { Err?: Failure }).Err ?? null;
      end(call, failure ? "failed" : "completed", at, failure);
      return call;
    }
    case "task_canceled":
    case "wait_canceled":
    case "child_canceled":
      if (call.ended_at === null) end(call, "canceled", at);
      return call;
    default:
      return null;
  }
}

/** The result of a task says when and where its last attempt ran; logs of older servers do not have it. */
function ran(call: TimelineCall, event: { attempts: number }): void {
  const last = (event as { ran?: { started_at: string; worker: string | null } | null }).ran;
  if (!last) return;
  const attempt = attemptOf(call, event.attempts);
  attempt.started_at = last.started_at;
  attempt.worker = last.worker ?? attempt.worker;
  call.started_at ??= last.started_at;
}

function addStep(timeline: Timeline, id: string, event: EventOf<"step_completed"> | EventOf<"step_failed">, logged: LoggedEvent): TimelineCall {
  const call = opened(timeline, id, "step", event.name, logged);
  const started = new Date(Date.parse(logged.at) - event.took_ms).toISOString();
  const attempt = attemptOf(call, event.attempt);
  attempt.started_at ??= started;
  attempt.ended_at = logged.at;
  if (call.attempts.length === 1) call.started_at = attempt.started_at;
  // Recorded inputs are not in the schema of older servers.
  call.input = (event as { input?: Payload | null }).input ?? call.input;
  if (event.type === "step_failed") {
    attempt.failure = event.failure;
    call.status = event.retry_at ? "retrying" : "failed";
    call.deadline = event.retry_at;
  } else {
    call.status = "completed";
  }
  call.ended_at = call.status === "retrying" ? null : logged.at;
  return call;
}

function abandon(timeline: Timeline, event: EventOf<"segment_abandoned">): boolean {
  let changed = false;
  for (const call of timeline.calls) {
    if (call.abandoned || call.first_index === null || call.first_index < event.from || call.first_index > event.to) continue;
    call.abandoned = true;
    if (call.ended_at === null) call.status = "abandoned";
    if (timeline.byId.get(keyOf(call)) === call) timeline.byId.delete(keyOf(call));
    changed = true;
  }
  return changed;
}

/** A call takes over an abandoned one: its line goes on under the new id. */
function adopt(timeline: Timeline, event: EventOf<"call_adopted">): boolean {
  const call = timeline.calls.findLast((one) => one.call_id === event.from && one.abandoned) ?? timeline.byId.get(event.from);
  if (!call) return false;
  call.call_id = event.call_id;
  call.abandoned = false;
  if (call.status === "abandoned") call.status = call.attempts.length > 0 ? "running" : "queued";
  timeline.byId.set(event.call_id, call);
  return true;
}

function settleChild(timeline: Timeline, event: EventOf<"child_settled">, logged: LoggedEvent): boolean {
  const call = timeline.calls.find((one) => one.child === event.child && one.ended_at === null && one.status === "running");
  if (!call) return false;
  end(call, "completed", logged.at);
  call.last_index = logged.index;
  return true;
}

const ENDS: ReadonlySet<string> = new Set(["run_completed", "run_failed", "run_canceled", "run_continued", "terminate_requested"]);

/** The end of a generation ends what was open in it. */
function closeAll(timeline: Timeline, logged: LoggedEvent): boolean {
  if (!ENDS.has(logged.event.type)) return false;
  let changed = false;
  for (const call of timeline.calls) {
    if (call.ended_at !== null || call.abandoned) continue;
    end(call, "canceled", logged.at);
    changed = true;
  }
  return changed;
}

function begin(call: TimelineCall, attempt: number, at: string, worker: string | null): void {
  const one = attemptOf(call, attempt);
  one.started_at ??= at;
  one.worker ??= worker;
  call.started_at ??= at;
  if (call.ended_at === null && one.ended_at === null) call.status = "running";
}

/** Adds a step or task that runs now; steps have no event before their end. */
export function addActive(timeline: Timeline, active: Pick<ActiveCall, "call_id" | "type" | "name" | "attempt" | "started_at" | "input" | "worker">): void {
  let call = timeline.byId.get(active.call_id);
  if (!call) {
    const type = active.type === "task" ? taskType(active.name) : "step";
    call = newCall(active.call_id, type, active.name, null, active.started_at);
    timeline.byId.set(active.call_id, call);
    timeline.calls.push(call);
  }
  if (call.ended_at !== null) return;
  call.input ??= active.input;
  begin(call, active.attempt, active.started_at, active.worker);
}

/** Removes running steps of an earlier connection that the server no longer reports. */
export function keepActive(timeline: Timeline, active: ActiveCall[]): void {
  const ids = new Set(active.map((one) => one.call_id));
  timeline.calls = timeline.calls.filter((call) => {
    const stays = call.first_index !== null || ids.has(call.call_id);
    if (!stays) timeline.byId.delete(keyOf(call));
    return stays;
  });
}

/** The name of a call for people: the kind of a task without the prefix of model calls and tools. */
export function shownName(call: Pick<TimelineCall, "type" | "name" | "call_id">): string {
  if (call.name === null) return call.type === "timer" ? "timer" : call.call_id;
  return call.type === "model" || call.type === "tool" ? call.name.replace(/^(llm|tool)\./, "") : call.name;
}
