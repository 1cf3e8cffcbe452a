/** Documents of the API, as they are: docs/openapi.json describes all of their fields. */

import type { FailureDocument } from "./errors.js";

export type RunStatus = "pending" | "running" | "waiting" | "paused" | "completed" | "failed" | "canceled" | "terminated";

/** A value inside of a document. */
export interface Payload {
  json?: unknown;
  [encoding: string]: unknown;
}

/** What the store knows of a run without reading its log. */
export interface RunHead {
  key: { namespace: string; id: string };
  kind: string;
  version: string | null;
  status: RunStatus;
  generation: number;
  created_at: string;
  updated_at: string;
  ended_at: string | null;
  paused_at: string | null;
  attributes: { name: string; value: Record<string, unknown> }[];
  [field: string]: unknown;
}

/** A run, with what it waits for and what came of it. */
export interface RunView {
  head: RunHead;
  input: Payload;
  /** Named values that the code has set. */
  state: Record<string, Payload>;
  awaiting: { kind: string; name: string | null; id: string; since: string; deadline: string | null; child: string | null }[];
  outcome: Record<string, unknown> | null;
  /** Why it is paused. */
  pause: { reason: string; message: string; [field: string]: unknown } | null;
  cancel_reason: string | null;
  [field: string]: unknown;
}

/** Events of a log that were recorded together. */
export interface LogRecord {
  /** The position of the first. */
  index: number;
  at: string;
  events: { type: string; [field: string]: unknown }[];
  [field: string]: unknown;
}

/** What happens in a run, live. */
export interface LiveFrame {
  at: string;
  /** One field, whose name says what happened. */
  content: Record<string, unknown>;
  [field: string]: unknown;
}

/** A message of a conversation. */
export interface Entry {
  id: string;
  role: string;
  content: unknown;
  [field: string]: unknown;
}

/** A page of a conversation, oldest first. */
export interface EntryPage {
  entries: Entry[];
  before: string | null;
  leaf: string | null;
  [field: string]: unknown;
}

/** A task, with its attempts. */
export interface TaskView {
  id: string;
  kind: string;
  status: string;
  attempts: number;
  progress: unknown;
  outcome: { value?: unknown; failure?: FailureDocument } | null;
  [field: string]: unknown;
}

/** The receipt of an accepted input. */
export interface Receipt {
  [field: string]: unknown;
}
