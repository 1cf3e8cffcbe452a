/** Errors of callers, and failures of steps, tasks and runs. */

import { types } from "node:util";
import { ValueRefused, encode } from "./json.js";

/** A failure as it is recorded. */
export interface FailureDocument {
  message: string;
  code?: string;
  retryable?: boolean;
  causes?: string[];
  details?: unknown;
  retry_after_ms?: number | null;
}

/** What can be said about a failure beside its message. */
export interface FailureOptions {
  /** A stable code to branch on; `failed` by default. */
  code?: string;
  /** Whether another attempt may help; true by default. */
  retryable?: boolean;
  /** Data for the code that handles the failure. */
  data?: unknown;
  /** The earliest time of the next attempt, from now, in milliseconds. */
  retryAfterMs?: number;
  cause?: unknown;
}

/**
 * The failure of a step, task, child or run. It keeps name, message and stack of the error that was thrown, also when it was
 * thrown in another process or language.
 */
export class Failure extends Error {
  /** A stable code to branch on: `failed`, `timed_out`, `canceled`, .. */
  readonly code: string;
  /** False if another attempt cannot help. */
  readonly retryable: boolean;
  /** Messages of the causes, outermost first. */
  readonly causes: readonly string[];
  /** Data for the code that handles the failure. */
  readonly data: unknown;
  /** The earliest sensible time of another attempt, in milliseconds. */
  readonly retryAfterMs: number | undefined;
  /** What is recorded as `details` if it is not of a thrown error. */
  readonly details: unknown;

  constructor(message: string, options: FailureOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = "Failure";
    this.code = options.code ?? "failed";
    this.retryable = options.retryable ?? true;
    this.causes = safe(() => causesOf(this), []);
    this.data = options.data;
    this.retryAfterMs = options.retryAfterMs;
    this.details = undefined;
  }

  /** @internal Returns a recorded failure; the one of a cancel request is a {@link Canceled}. */
  static of(document: FailureDocument): Failure {
    const failure: Failure = Object.create(document.code === "canceled" ? Canceled.prototype : Failure.prototype);
    const details = document.details;
    const thrown = isObject(details) && typeof details["type"] === "string" ? details : undefined;
    const name = thrown === undefined ? (document.code === "canceled" ? "Canceled" : "Failure") : (thrown["type"] as string);
    const stack = typeof thrown?.["stack"] === "string" ? thrown["stack"] : `${name}: ${document.message}`;
    const hidden = { message: document.message, name, stack };
    for (const [key, value] of Object.entries(hidden)) {
      Object.defineProperty(failure, key, { value, configurable: true, writable: true });
    }
    return Object.assign(failure, {
      code: document.code ?? "failed",
      retryable: document.retryable ?? true,
      causes: document.causes ?? [],
      data: thrown === undefined ? (details ?? undefined) : thrown["data"],
      retryAfterMs: document.retry_after_ms ?? undefined,
      details: details ?? undefined,
    });
  }
}

/**
 * The interruption of a wait by a cancel request. Thrown on, it ends the run as canceled; caught, the run continues and can clean
 * up.
 */
export class Canceled extends Failure {
  constructor(message = "the run was canceled") {
    super(message, { code: "canceled", retryable: false });
    this.name = "Canceled";
  }
}

/** The error of an operation of a caller, with a stable code (docs/errors). */
export class OnwardError extends Error {
  readonly code: string;
  /** What to do about it. */
  readonly hint: string | undefined;
  /** The HTTP status of the code. */
  readonly status: number | undefined;
  /** After which time the same call may succeed, in milliseconds, if it is known: a quota or a full queue has refused it. */
  retryAfterMs: number | undefined;

  constructor(code: string, message: string, hint?: string, status?: number) {
    super(hint === undefined ? message : `${message} (${hint})`);
    this.name = "OnwardError";
    this.code = code;
    this.hint = hint;
    this.status = status;
  }

  /** @internal Returns the error of a document of the bridge. */
  static of(document: ErrorDocument): OnwardError {
    const hint = HINTS[document.code] ?? document.hint ?? undefined;
    if (document.failure) {
      return new RunFailed(document.code, document.message, Failure.of(document.failure), hint, document.status);
    }
    const error = new OnwardError(document.code, document.message, hint, document.status);
    error.retryAfterMs = document.retry_after_ms ?? undefined;
    return error;
  }

  /** @internal Returns the error whose message is the JSON text of a document. */
  static from(error: unknown): unknown {
    if (!(error instanceof Error) || !error.message.startsWith("{")) return error;
    return OnwardError.of(JSON.parse(error.message) as ErrorDocument);
  }
}

/** The run, task or update that was waited for has failed. */
export class RunFailed extends OnwardError {
  /** Why; its name, message and stack are those of the error that was thrown. */
  readonly failure: Failure;

  constructor(code: string, message: string, failure: Failure, hint?: string, status?: number) {
    super(code, message, hint, status);
    this.name = "RunFailed";
    this.failure = failure;
    this.cause = failure;
  }
}

/** Hints that name functions and options, as they are in TypeScript. */
const HINTS: Record<string, string> = {
  run_failed: "`error.failure` has its name, code, causes and data; `onward run events` prints the log",
  answer_failed: "`error.failure` has the code and message of the handler; the run continues",
  value_invalid: "pass what the types of the package declare, and values that JSON has",
  unknown_kind: "pass its definition in the option `workflows`, `tasks` or `agents` of `Onward.embedded(..)`, `postgres(..)` or `connect(..)`",
  worker_not_started: "raise the system's thread limit, or set fewer with the option `threads`",
};

/** @internal An error as the bridge writes it. */
export interface ErrorDocument {
  code: string;
  message: string;
  hint?: string | null;
  status?: number;
  retry_after_ms?: number | null;
  failure?: FailureDocument | null;
}

/** Something that workflow code must not do. A run whose code ends with it is paused, so that the code can be repaired. */
export class WorkflowMisuse extends Error {
  readonly code = "context_misused";

  constructor(message: string) {
    super(message);
    this.name = "WorkflowMisuse";
  }
}

/** Stacks and messages are cut at this length. */
const TEXT_MAX = 8_000;

/** @internal Returns the JSON text of what was thrown. */
export function failureText(thrown: unknown): string {
  const document = failureDocument(thrown);
  try {
    return encode(document, "a failure");
  } catch {
    // The message matters more than data that has no JSON.
    return JSON.stringify({ ...document, details: withoutData(document.details) });
  }
}

function failureDocument(thrown: unknown): FailureDocument {
  if (!isError(thrown)) {
    return { message: textOfObject(thrown), details: { type: thrown === null ? "null" : typeof thrown } };
  }
  const type = safe(() => text(thrown.name), "Error");
  const stack = safe(() => text(thrown.stack ?? ""), "");
  if (!(thrown instanceof Failure)) {
    const details = { type, stack };
    const message = safe(() => text(thrown.message), type);
    const causes = safe(() => causesOf(thrown), []);
    // The same value is refused at every attempt.
    if (thrown instanceof ValueRefused) return { message, causes, details, code: thrown.code, retryable: false };
    return thrown instanceof OnwardError ? { message, causes, details, code: thrown.code } : { message, causes, details };
  }
  const { code, retryable, causes, data, details } = thrown;
  const isPlain = type === "Failure" || type === "Canceled";
  const own = isPlain && data === undefined ? { type, stack } : { type, stack, data };
  return {
    message: text(thrown.message),
    code,
    retryable,
    causes: [...causes],
    details: details ?? own,
    retry_after_ms: delayOf(thrown.retryAfterMs),
  };
}

/** Returns whole milliseconds: providers send fractions, and times that have passed. */
function delayOf(retryAfterMs: number | undefined): number | null {
  const delay = Math.max(0, Math.ceil(retryAfterMs ?? Number.NaN));
  return Number.isSafeInteger(delay) ? delay : null;
}

/** The most causes that are recorded. */
const CAUSES_MAX = 8;

/** Returns the texts of the causes of an error and of the errors that it aggregates, each once. */
function causesOf(error: Error): string[] {
  const causes: string[] = [];
  const seen = new Set<unknown>([error]);
  const addBelow = ({ cause, errors }: { cause?: unknown; errors?: unknown }): void => {
    if (cause !== undefined) add(cause);
    if (Array.isArray(errors)) errors.forEach(add);
  };
  const add = (one: unknown): void => {
    if (causes.length >= CAUSES_MAX || seen.has(one)) return;
    seen.add(one);
    if (!isError(one)) return void causes.push(textOfObject(one));
    causes.push(`${text(one.name)}: ${text(one.message)}`);
    addBelow(one);
  };
  addBelow(error);
  return causes;
}

/** Returns whether this is an error, also of another realm: the errors of Node.js are that for code in `node:vm`, as in Jest. */
export function isError(value: unknown): value is Error {
  return types.isNativeError(value) || safe(() => value instanceof Error, false);
}

/** Returns the text of what is no error: of an object its message, or its JSON text. */
function textOfObject(value: unknown): string {
  if (typeof value !== "object" || value === null) return text(value);
  const message = safe(() => (value as { message?: unknown }).message, undefined);
  if (typeof message === "string") return text(message);
  const isPlain = safe(() => String(value) === "[object Object]", true);
  return text(isPlain ? safe<unknown>(() => encode(value, "a failure"), value) : value);
}

function withoutData(details: unknown): unknown {
  return isObject(details) ? { type: details["type"], stack: details["stack"] } : null;
}

function text(value: unknown): string {
  const written = safe(() => String(value), "an error that has no text");
  return (written.length > TEXT_MAX ? `${written.slice(0, TEXT_MAX)} ..` : written).toWellFormed();
}

/** Errors of users may have getters that throw. */
function safe<T>(read: () => T, otherwise: T): T {
  try {
    return read();
  } catch {
    return otherwise;
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
