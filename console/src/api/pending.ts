/**
 * Owns the types of routes that docs/openapi.json does not have yet.
 * They are deleted as soon as the document has them.
 */
import type { components } from "./types";

type S = components["schemas"];
type Json<T> = { content: { "application/json": T } };
type Get<T> = { get: { responses: { 200: Json<T> } } };

export interface ActiveCall {
  generation: number;
  call_id: string;
  type: "step" | "task";
  name: string;
  attempt: number;
  started_at: string;
  input: S["Payload"] | null;
  worker: string | null;
  progress: S["Payload"] | null;
}

export interface Session {
  needs_key: boolean;
  signed_in: boolean;
  key_name: string | null;
  namespace: string;
  namespaces: string[] | null;
  scopes: string[];
  kinds: string[] | null;
  queues: string[] | null;
  version: string;
  server: string;
}

export interface Counts {
  counts: Record<S["Status"], number>;
  scanned: number;
  complete: boolean;
}

export interface ActivityBucket {
  at: string;
  started: number;
  completed: number;
  failed: number;
  canceled: number;
}

export interface Activity {
  from: string;
  until: string;
  bucket_ms: number;
  buckets: ActivityBucket[];
  complete: boolean;
}

export interface TimelineAttempt {
  attempt: number;
  started_at: string | null;
  ended_at: string | null;
  failure: S["Failure"] | null;
  worker: string | null;
}

export type TimelineType = "step" | "task" | "model" | "tool" | "timer" | "signal" | "approval" | "promise" | "child" | "update";
export type TimelineStatus = "queued" | "running" | "retrying" | "waiting" | "completed" | "failed" | "canceled" | "abandoned";

export interface TimelineCall {
  call_id: string;
  type: TimelineType;
  name: string | null;
  status: TimelineStatus;
  queued_at: string | null;
  started_at: string | null;
  ended_at: string | null;
  attempts: TimelineAttempt[];
  first_index: number | null;
  last_index: number | null;
  child: string | null;
  deadline: string | null;
  input: S["Payload"] | null;
  abandoned: boolean;
  /** The run whose recorded result the call has. */
  memo_from?: string | null;
}

export interface Timeline {
  run: string;
  kind: string;
  generation: number;
  generations: number;
  status: S["Status"];
  started_at: string;
  ended_at: string | null;
  now: string;
  calls: TimelineCall[];
  next: string | null;
}

export interface RunAt {
  run: string;
  generation: number;
  index: number;
  at: string;
  event: S["LoggedEvent"];
  status: S["Status"];
  state: Record<string, S["Payload"]>;
  awaiting: S["Awaited"][];
  open_calls: string[];
  counts: S["RunCounts"];
  pause: S["RunPaused"] | null;
  cancel_reason: string | null;
  outcome: S["RunOutcome"] | null;
  attributes: S["Attributes"];
  leaf: string | null;
  entries: number;
}

export type RunView = S["RunView"] & { doing: string; doing_since: string | null; active: ActiveCall[] };

/** Frames of `GET /v1/runs/{id}/live`, by the name of the event. */
export interface RunFrames {
  snapshot: {
    at: string;
    generation: number;
    next_index: number;
    status: S["Status"];
    doing: string;
    blocked_on: S["Blocker"][];
    awaiting: S["Awaited"][];
    active: ActiveCall[];
  };
  event: S["LoggedEvent"];
  step_started: { at: string; generation: number; call_id: string; name: string; attempt: number; input: S["Payload"] | null };
  step_attempt_failed: {
    at: string;
    generation: number;
    call_id: string;
    name: string;
    attempt: number;
    failure: S["Failure"];
    next_attempt_at: string | null;
  };
  state_changed: { at: string; generation: number; name: string; value: S["Payload"] | null };
  task_started: { at: string; generation: number; call_id: string; name: string; attempt: number; worker: string | null };
  task_progress: { at: string; generation: number; call_id: string; name: string; attempt: number; progress: S["Payload"] };
  emitted: { at: string; name: string; value: unknown; audience: "public" | "internal"; meta: Record<string, unknown> };
  blocked: { at: string; status: S["Status"]; doing: string; blocked_on: S["Blocker"][]; awaiting: S["Awaited"][] };
  end: S["RunResult"];
  dropped: { at: string; cursor: string };
}

/** Frames of `GET /v1/live`. */
export interface FeedFrames {
  hello: { at: string };
  run: { at: string; change: "started" | "status" | "ended" | "deleted"; run: S["Run"] };
  reset: { at: string };
}

export interface PendingPaths {
  "/v1/session": Get<Session> & {
    post: { requestBody: { content: { "application/json": { key: string } } }; responses: { 204: unknown } };
    delete: { responses: { 204: unknown } };
  };
  "/v1/counts": Get<Counts>;
  "/v1/activity": Get<Activity>;
  "/v1/runs/{id}": Get<RunView> & { delete: { responses: { 204: unknown } } };
  "/v1/runs/{id}/active": Get<{ active: ActiveCall[] }>;
  "/v1/runs/{id}/timeline": Get<Timeline>;
  "/v1/runs/{id}/at/{index}": Get<RunAt>;
}
