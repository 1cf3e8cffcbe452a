/** Documents of the API; docs/openapi.json describes all of their fields. */

import type { Role } from "./agent.js";
import { Failure, type FailureDocument } from "./errors.js";

export type RunStatus = "pending" | "running" | "waiting" | "paused" | "completed" | "failed" | "canceled" | "terminated";

/** A run, as lists have it. */
export interface RunSummary {
  id: string;
  namespace: string;
  kind: string;
  version: string | undefined;
  status: RunStatus;
  generation: number;
  attributes: Record<string, string | number | boolean>;
  createdAt: Date;
  endedAt: Date | undefined;
}

/** A run, with what it waits for and what came of it. */
export interface RunView extends RunSummary {
  input: unknown;
  /** Named values that the code has set. */
  state: Record<string, unknown>;
  awaiting: Wait[];
  /** Why it is paused. */
  pause: { reason: string; message: string } | undefined;
  /** The result, if the run has completed. */
  output: unknown;
  /** Why it failed or was canceled. */
  failure: Failure | undefined;
  /** Everything that the engine says. */
  details: Record<string, unknown>;
}

/** Something that a run waits for. */
export interface Wait {
  /** `signal`, `approval`, `timer`, `task`, `child`, `promise`, .. */
  kind: string;
  name: string | null;
  id: string;
  since: string;
  deadline: string | null;
  child: string | null;
}

interface Payload {
  json?: unknown;
}

/** @internal What the store knows of a run without reading its log. */
export interface HeadDocument {
  key: { namespace: string; id: string };
  kind: string;
  version: string | null;
  status: RunStatus;
  generation: number;
  created_at: string;
  ended_at: string | null;
  attributes?: { name: string; value: Record<string, string | number | boolean> }[];
}

/** @internal A run as the engine writes it. */
export interface ViewDocument {
  head: HeadDocument;
  input: Payload;
  state: Record<string, Payload>;
  awaiting: Wait[];
  outcome: { Ok?: Payload; Err?: FailureDocument & { details?: Payload | null } } | null;
  pause: { reason: string; message: string } | null;
}

/** @internal Returns the summary of a document. */
export function summaryOf(head: HeadDocument): RunSummary {
  const attributes = (head.attributes ?? []).map(({ name, value }) => [name, Object.values(value)[0]]);
  return {
    id: head.key.id,
    namespace: head.key.namespace,
    kind: head.kind,
    version: head.version ?? undefined,
    status: head.status,
    generation: head.generation,
    attributes: Object.fromEntries(attributes) as RunSummary["attributes"],
    createdAt: new Date(head.created_at),
    endedAt: head.ended_at === null ? undefined : new Date(head.ended_at),
  };
}

/** @internal Returns the view of a document. */
export function viewOf(document: ViewDocument): RunView {
  const { head, input, state, awaiting, outcome, pause } = document;
  const failed = outcome?.Err;
  return {
    ...summaryOf(head),
    input: input.json,
    state: Object.fromEntries(Object.entries(state).map(([key, value]) => [key, value.json])),
    awaiting,
    pause: pause ?? undefined,
    output: outcome?.Ok?.json,
    failure: failed && Failure.of({ ...failed, details: failed.details?.json }),
    details: document as unknown as Record<string, unknown>,
  };
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
  role: Role;
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
