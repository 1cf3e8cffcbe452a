/**
 * Middleware: code of a worker around runs, and around attempts of steps, tasks, model calls and tools.
 *
 * `run` surrounds the code of a run: it is workflow code, deterministic, and every replay executes it again. `attempt` surrounds one
 * real attempt: it may do I/O, wait and read clocks, and no replay executes it.
 */

import type { Ctx } from "./ctx.js";
import { Failure, failureText, type FailureDocument } from "./errors.js";
import { encode } from "./json.js";
import { milliseconds, type Duration } from "./options.js";

/** A run whose code is about to begin. */
export interface RunCall {
  /** The context of the code. Calls of a middleware are recorded like those of the code. */
  readonly ctx: Ctx;
  /** The kind of the run. */
  readonly kind: string;
  readonly input: unknown;
}

/** An attempt that is about to begin. */
export interface AttemptCall {
  readonly kind: "step" | "task" | "model_call" | "tool";
  /** The name of the step, tool or model, or the kind of the task. */
  readonly name: string;
  /** The id of the run that made the call. */
  readonly run: string;
  /** 1, 2, .. */
  readonly attempt: number;
  readonly idempotencyKey: string;
  /** The input of a task or tool, or the request as it goes to the provider of a model. For a step the option `input`. */
  readonly input: unknown;
  /** Drops what this attempt sends to readers of the stream, such as the text of a model while it arrives. */
  readonly mute: () => void;
}

/** The rest of a run or attempt: the middlewares further inside, then the code. Call it once. */
export type Next<C> = (call: C) => Promise<unknown>;

/** Code around runs and attempts. What is left out changes nothing. */
export interface Middleware {
  /** Surrounds the code of a run. It is a part of the workflow: deterministic, and executed again by every replay. */
  run?(call: RunCall, next: Next<RunCall>): Promise<unknown>;
  /** Surrounds one attempt of a step, task, model call or tool. What it returns is recorded, what it throws is retried. */
  attempt?(call: AttemptCall, next: Next<AttemptCall>): Promise<unknown>;
  /** Returns the input of a step as it is recorded for readers. Must be deterministic. */
  recordedInput?(step: string, input: unknown): unknown;
}

/** @internal Returns a function that calls the middlewares in order, and `last` inside of them. */
export function chain<C>(around: readonly (((call: C, next: Next<C>) => Promise<unknown>) | undefined)[], last: Next<C>): Next<C> {
  // Async, so that what a method throws at once rejects for those around it, too.
  return around.reduceRight<Next<C>>((next, method) => (method === undefined ? next : async (call) => method(call, next)), last);
}

/** @internal Returns the methods of middlewares, outermost first. */
export function runsOf(middlewares: readonly Middleware[]): (((call: RunCall, next: Next<RunCall>) => Promise<unknown>) | undefined)[] {
  return middlewares.map((found) => found.run?.bind(found));
}

/** @internal Returns the methods of middlewares, outermost first. */
export function attemptsOf(
  middlewares: readonly Middleware[],
): (((call: AttemptCall, next: Next<AttemptCall>) => Promise<unknown>) | undefined)[] {
  return middlewares.map((found) => found.attempt?.bind(found));
}

/** @internal Returns the input of a step as middlewares record it. */
export function recordedInput(middlewares: readonly Middleware[], step: string, input: unknown): unknown {
  return middlewares.reduceRight((shown, found) => (found.recordedInput === undefined ? shown : found.recordedInput(step, shown)), input);
}

/** Options of {@link rateLimit}. */
export interface RateLimitOptions {
  /** How many attempts with the same key begin in a time. */
  count: number;
  per: Duration;
  /** The key of an attempt; `undefined` is not limited. The name by default. */
  key?: (call: AttemptCall) => string | undefined;
  /** How long an attempt waits for its turn before it is refused; ten seconds by default. */
  waitMax?: Duration;
  /** Milliseconds; for tests. */
  clock?: () => number;
}

/**
 * Limits how many attempts with the same key begin in a time, in this process. An attempt over the limit waits for its turn. If the
 * wait would be too long, it is refused: it fails with `attempt_rate_limited`, which the policy of its call retries after that time.
 */
export function rateLimit(options: RateLimitOptions): Middleware {
  const { count, key = (call) => call.name, clock = () => performance.now() } = options;
  if (!Number.isInteger(count) || count < 1) throw new RangeError(`a rate limit allows at least one attempt, not ${count}`);
  const interval = milliseconds(options.per, "per") / count;
  const waitMax = options.waitMax === undefined ? 10_000 : milliseconds(options.waitMax, "waitMax");
  /** The time at which the bucket of a key is full again. */
  let fullAt = new Map<string, number>();
  let keysMax = 1024;
  return {
    async attempt(call, next) {
      const limited = key(call);
      if (limited === undefined) return next(call);
      const now = clock();
      const full = Math.max(fullAt.get(limited) ?? now, now) + interval;
      // Sums of floats are not exact.
      const wait = full - now - interval * count < 1e-6 ? 0 : full - now - interval * count;
      if (wait > waitMax) {
        const message = `the rate limit of \`${limited}\` is exceeded; the next attempt may begin in ${Math.ceil(wait)} ms`;
        throw new Failure(message, { code: "attempt_rate_limited", retryAfterMs: Math.ceil(wait) });
      }
      fullAt.set(limited, full);
      if (fullAt.size > keysMax) {
        fullAt = new Map([...fullAt].filter(([, at]) => at > now));
        keysMax = Math.max(1024, 2 * fullAt.size);
      }
      if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
      return next(call);
    },
  };
}

/** Options of {@link redaction}. */
export interface RedactionOptions {
  /** Names of object fields whose values are replaced, in any case and at any depth. */
  fields?: readonly string[];
  /** Returns a text with its replacements. Must be deterministic. */
  text?: (text: string) => string;
  /** What stands in place of the values of fields; `[redacted]` by default. */
  replacement?: string;
}

/**
 * Replaces the values of named fields, and parts of texts: in results and failures of attempts before they are recorded, in requests
 * before they go to a model, in recorded inputs of steps, and in results and failures of runs. The code sees the replaced value, too.
 * Inputs that the code needs are recorded as they were sent. Streams of attempts are muted.
 */
export function redaction({ fields = [], text = (text) => text, replacement = "[redacted]" }: RedactionOptions): Middleware {
  const names = new Set(fields.map((field) => field.toLowerCase()));
  const value = (found: unknown): unknown => {
    if (typeof found === "string") return text(found);
    if (Array.isArray(found)) return found.map(value);
    if (typeof found !== "object" || found === null) return found;
    const replaced = ([name, part]: [string, unknown]): [string, unknown] => [name, names.has(name.toLowerCase()) ? replacement : value(part)];
    return Object.fromEntries(Object.entries(found).map(replaced));
  };
  const result = async (made: Promise<unknown>): Promise<unknown> => {
    try {
      return value(JSON.parse(encode(await made, "a result")));
    } catch (error) {
      const document = JSON.parse(failureText(error)) as FailureDocument;
      const message = text(document.message);
      throw Failure.of({ ...document, message, causes: value(document.causes ?? []) as string[], details: value(document.details ?? null) });
    }
  };
  return {
    run: (call, next) => result(next(call)),
    attempt: (call, next) => {
      call.mute();
      return result(next(call.kind === "model_call" ? { ...call, input: value(call.input) } : call));
    },
    recordedInput: (_, input) => value(input),
  };
}

/** An attempt that has ended. */
export interface Timed extends Omit<AttemptCall, "input" | "mute" | "idempotencyKey"> {
  readonly milliseconds: number;
  /** The code of its failure. */
  readonly failed: string | undefined;
}

/**
 * Passes every ended attempt to `report`, with the time it took. With `runState` it sets that state of every run, at the end of its
 * code, to the milliseconds since the start of its generation, by the times of the log.
 */
export function timing(report: (timed: Timed) => void, options: { runState?: string } = {}): Middleware {
  const { runState } = options;
  const attempt: Middleware["attempt"] = async (call, next) => {
    const { kind, name, run, attempt } = call;
    const began = performance.now();
    const end = (failed: string | undefined): void => report({ kind, name, run, attempt, milliseconds: performance.now() - began, failed });
    let result: unknown;
    try {
      result = await next(call);
    } catch (error) {
      end((JSON.parse(failureText(error)) as FailureDocument).code ?? "failed");
      throw error;
    }
    end(undefined);
    return result;
  };
  if (runState === undefined) return { attempt };
  return {
    attempt,
    async run(call, next) {
      const began = call.ctx.now().getTime();
      try {
        return await next(call);
      } finally {
        call.ctx.state.set(runState, call.ctx.now().getTime() - began);
      }
    },
  };
}
