/** Owns short names for the types of the API. */
import type { components } from "./types";

export type Schemas = components["schemas"];
export type Run = Schemas["Run"];
export type RunPage = Schemas["RunPage"];
export type Status = Schemas["Status"];
export type Payload = Schemas["Payload"];
export type Failure = Schemas["Failure"];
export type Approval = Schemas["Approval"];
export type Awaited = Schemas["Awaited"];
export type Blocker = Schemas["Blocker"];
export type LoggedEvent = Schemas["LoggedEvent"];
export type Event = Schemas["Event"];
export type RunOutcome = Schemas["RunOutcome"];
export type Attributes = Schemas["Attributes"];
export type Worker = Schemas["WorkerInfo"];
export type Queue = Schemas["QueueInfo"];
export type QueueView = Schemas["QueueView"];
export type QueueSettings = Schemas["QueueSettings"];
export type OpenTask = Schemas["OpenTask"];
export type Server = Schemas["Server"];
export type Kind = Schemas["Kind"];
export type Schedule = Schemas["Schedule"];
export type ScheduleSpec = Schemas["ScheduleSpec"];
export type Overlap = Schemas["Overlap"];
export type UpcomingSlot = Schemas["UpcomingSlot"];
export type SpendRow = Schemas["SpendRow"];
export type SpendTotals = Schemas["SpendTotals"];
export type { ActiveCall, Activity, Counts, FeedFrames, RunAt, RunFrames, RunView, Session, Timeline, TimelineAttempt, TimelineCall } from "./pending";

export const STATUSES: readonly Status[] = ["pending", "running", "waiting", "paused", "completed", "failed", "canceled", "terminated"];

/** Returns whether a run of this status has ended. */
export function isClosed(status: Status): boolean {
  return status === "completed" || status === "failed" || status === "canceled" || status === "terminated";
}

/** Returns the value of a JSON payload, and undefined for bytes. */
export function jsonOf(payload: Payload | null | undefined): unknown {
  return payload && "json" in payload ? payload.json : undefined;
}
