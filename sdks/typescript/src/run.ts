/** @internal The code object of one run: what it waits for, and its functions. */

import { Failure, OnwardError, WorkflowMisuse, failureText, isError, type ErrorDocument, type FailureDocument } from "./errors.js";
import { inCode } from "./guard.js";
import { encode } from "./json.js";
import type { StepFunction } from "./jobs.js";
import type { Middleware } from "./middleware.js";
import { argumentOf } from "./names.js";
import type { NativeBridge } from "./native.js";

/** The facts of a run that its code knows from the start. */
export interface RunInfo {
  id: string;
  kind: string;
  version: string | null;
  generation: number;
  is_agent: boolean;
  nesting: number;
  parent: string | null;
  is_called: boolean;
}

/** A step that may run when the code is quiescent. */
export interface StepStart {
  run: Run;
  job: number;
  step: StepFunction;
  attempt: number;
  key: string;
  trace: string | null;
}

/** The reply to a call, as the bridge writes it. */
type Called =
  | [type: 0, value: unknown]
  | [type: 1, call: number, ok: 0 | 1, value: unknown]
  | [type: 2, call: number, info: Record<string, unknown>]
  | [type: 3, call: number, job: number, attempt: number, key: string, trace: string | null]
  | [type: 4, isStopped: 0 | 1, error: ErrorDocument];

interface Wait {
  promise: Promise<unknown>;
  resolve(value: unknown): void;
  reject(error: Error): void;
}

/** The function of a query or update. */
export type Handler = (input: unknown) => unknown;

const ignore = (): void => {};

/** The number of the call that a promise is the answer of. */
const CALL = Symbol("onward.call");

/** Returns whether a promise is the answer of a call, and not made from one. */
export function isAnswer(promise: unknown): boolean {
  return typeof promise === "object" && promise !== null && CALL in promise;
}

function ofCall(promise: Promise<unknown>, call: number): Promise<unknown> {
  return Object.assign(promise, { [CALL]: call });
}

/** Verbs that code may use at any time: they read, or are not recorded. */
const AT_ANY_TIME = new Set(["state_get", "state_keys", "is_canceled", "spent", "budget_left", "emit"]);

/** Thrown where the code must not go on. What catches it cannot make calls. */
class Stopped extends Error {}

export class Run {
  /** The time of the last event. */
  now = 0;
  /** The outcome of the code, as the bridge reads it: `[1,value]` or `[0,failure]`. */
  end: string | undefined;
  /** Why the run must be paused. */
  misuse: string | undefined;
  /** The code must not go on: it diverged, was closed, or has asked for its own end. */
  isStopped = false;
  /** Step jobs that ended during the activation. */
  finished: string[] = [];
  /** Step jobs of the activation that still run. */
  pendingSteps = 0;
  readonly waits = new Map<number, Wait>();
  steps: Map<number, StepFunction> | undefined;
  undos: Map<number, StepFunction> | undefined;
  queries: Map<string, Handler> | undefined;
  updates: Map<string, Handler> | undefined;

  constructor(
    readonly number: number,
    readonly info: RunInfo,
    private readonly native: NativeBridge,
    private readonly started: StepStart[],
    /** The first one is the outermost. */
    readonly middlewares: readonly Middleware[],
  ) {}

  /** Starts the code. */
  start(code: () => unknown): void {
    let output: unknown;
    try {
      output = code();
    } catch (error) {
      return this.fail(error);
    }
    if (isThenable(output)) {
      Promise.resolve(output).then(
        (value) => this.succeed(value),
        (error: unknown) => this.fail(error),
      );
    } else {
      this.succeed(output);
    }
  }

  private succeed(output: unknown): void {
    try {
      this.endWith(`[1,${encode(output, "the result of workflow", this.info.kind)}]`);
    } catch (error) {
      this.fail(error);
    }
  }

  private fail(error: unknown): void {
    if (isError(error)) {
      if (error instanceof Stopped) return;
      if (error instanceof WorkflowMisuse) this.misuse ??= error.message;
    }
    this.endWith(`[0,${failureText(error)}]`);
  }

  private endWith(end: string): void {
    if (inCode()) this.end ??= end;
    else this.misuse ??= this.foreignPromise();
  }

  /** Describes code that awaits what Onward does not know. */
  foreignPromise(): string {
    return (
      `the code of workflow \`${this.info.kind}\` awaits a promise that Onward does not know (a timer, fetch, I/O, a client): ` +
      "do it in `ctx.step(..)`, or wait with `ctx.sleep(..)` or `ctx.signal(..)`"
    );
  }

  /** Makes a call that has its reply at once. */
  value(verb: string, args: string): unknown {
    const called = this.call(verb, args);
    switch (called[0]) {
      case 0:
        return called[1];
      case 4:
        throw this.refusal(called);
      default:
        throw new Error(`the call ${verb} waits`);
    }
  }

  /** Makes a call that waits. */
  wait(verb: string, args: string, convert?: (value: unknown) => unknown): Promise<unknown> {
    return this.open(verb, args, convert).promise;
  }

  /** Makes a call that waits, and returns its number and what is known of it. */
  open(verb: string, args: string, convert?: (value: unknown) => unknown): Opened {
    if (this.isStopped && inCode()) return { call: -1, info: {}, promise: this.stop() };
    const called = this.call(verb, args);
    switch (called[0]) {
      case 1:
        return { call: called[1], info: {}, promise: ofCall(settled(called[2], called[3], convert), called[1]) };
      case 2:
        return { call: called[1], info: called[2], promise: this.pending(called[1], convert) };
      case 4:
        // Code that is stopped gets nothing, so that it does not go on.
        if (called[1] === 1) return { call: -1, info: {}, promise: this.stop() };
        return { call: -1, info: {}, promise: rejected(this.refusal(called)) };
      default:
        throw new Error(`the call ${verb} does not wait`);
    }
  }

  /** Makes the call of a step. Its function starts when the code is quiescent. */
  step(args: string, step: StepFunction): Promise<unknown> {
    if (this.isStopped && inCode()) return this.stop();
    const called = this.call("step", args);
    switch (called[0]) {
      case 3:
        this.started.push({ run: this, job: called[2], step, attempt: called[3], key: called[4], trace: called[5] });
        this.pendingSteps++;
        break;
      case 2:
        break;
      case 1:
        return ofCall(settled(called[2], called[3]), called[1]);
      case 4:
        return called[1] === 1 ? this.stop() : rejected(this.refusal(called));
      default:
        throw new Error("a step waits");
    }
    // Kept for further attempts.
    (this.steps ??= new Map()).set(called[1], step);
    return this.pending(called[1]);
  }

  /** Stops the code; returns a promise that is never settled. */
  stop(): Promise<never> {
    this.isStopped = true;
    return new Promise(ignore);
  }

  /** Answers a call. */
  answer(call: number, ok: number, value: unknown): void {
    const wait = this.waits.get(call);
    this.steps?.delete(call);
    if (wait === undefined) return;
    this.waits.delete(call);
    if (ok === 1) return wait.resolve(value);
    // Code may drop what it waits for; that is no error.
    wait.promise.catch(ignore);
    wait.reject(Failure.of(value as FailureDocument));
  }

  /** Tells the engine that the code no longer waits for these calls. */
  drop(promises: Iterable<unknown>): void {
    for (const promise of promises) {
      const call = (promise as { [CALL]?: number })[CALL];
      if (call === undefined || this.waits.get(call)?.promise !== promise) continue;
      this.waits.delete(call);
      this.steps?.delete(call);
      this.report("drop", `{"call":${call}}`);
    }
  }

  /** Calls the handler of an update, and reports its answer. */
  update(id: string, name: string, input: unknown): void {
    const update = JSON.stringify(id);
    let output: unknown;
    try {
      output = callHandler(this.updates?.get(name), "update", name, input);
    } catch (error) {
      return this.failUpdate(update, error);
    }
    if (!isThenable(output)) return this.answerUpdate(update, name, output);
    this.report("update_accept", `{"update":${update}}`);
    Promise.resolve(output).then(
      (value) => this.answerUpdate(update, name, value),
      (error: unknown) => this.failUpdate(update, error),
    );
  }

  private answerUpdate(update: string, name: string, output: unknown): void {
    let result: string;
    try {
      result = encode(output, "the answer of update", name);
    } catch (error) {
      return this.failUpdate(update, error);
    }
    this.endUpdate(`{"update":${update},"result":${result}}`);
  }

  private failUpdate(update: string, error: unknown): void {
    if (isError(error) && error instanceof Stopped) return;
    this.endUpdate(`{"update":${update},"failure":${failureText(error)}}`);
  }

  private endUpdate(answer: string): void {
    if (inCode()) this.report("update_answer", answer);
    else this.misuse ??= this.foreignPromise();
  }

  /** Makes a call that is not one of the code; does nothing after the run has stopped. */
  private report(verb: string, args: string): void {
    if (this.isStopped) return;
    const called = this.call(verb, args);
    if (called[0] === 4 && called[1] === 1) this.isStopped = true;
  }

  /** Returns the answer of a query, or `undefined` if the code has no such query. */
  query(name: string, input: unknown): [ok: boolean, answer: string] | undefined {
    const handler = this.queries?.get(name);
    if (handler === undefined) return undefined;
    try {
      return [true, encode(callHandler(handler, "query", name, input), "the answer of query", name)];
    } catch (error) {
      return [false, failureText(error)];
    }
  }

  /** Returns the text with which the activation is handed back, and forgets what it has said. */
  handBack(): string {
    let end = "null";
    if (!this.isStopped && this.end === undefined && this.waits.size === 0 && this.updates === undefined) {
      this.misuse ??= this.foreignPromise();
    }
    if (this.misuse !== undefined && !this.isStopped) {
      this.isStopped = true;
      this.native.call(this.number, "misuse", JSON.stringify({ message: this.misuse }));
    }
    if (this.end !== undefined && !this.isStopped) end = this.end;
    const text = `[${this.number},[${this.finished.join(",")}],${end}]`;
    if (this.finished.length > 0) this.finished = [];
    this.end = undefined;
    this.pendingSteps = 0;
    return text;
  }

  private call(verb: string, args: string): Called {
    if (!inCode() && !AT_ANY_TIME.has(verb)) throw outside(verb);
    if (this.isStopped) throw new Stopped("this run has stopped");
    return JSON.parse(this.native.call(this.number, verb, args)) as Called;
  }

  private pending(call: number, convert?: (value: unknown) => unknown): Promise<unknown> {
    let resolve!: (value: unknown) => void;
    let reject!: (error: Error) => void;
    const promise = new Promise((ok, failed) => {
      resolve = convert === undefined ? ok : (value) => ok(convert(value));
      reject = failed;
    });
    this.waits.set(call, { promise, resolve, reject });
    return ofCall(promise, call);
  }

  private refusal(called: Called & [4, ...unknown[]]): Error {
    if (called[1] === 0) return called[2].failure ? Failure.of(called[2].failure) : OnwardError.of(called[2]);
    this.isStopped = true;
    return new Stopped(called[2].message);
  }
}

interface Opened {
  call: number;
  info: Record<string, unknown>;
  promise: Promise<unknown>;
}

function outside(verb: string): OnwardError {
  const message = `\`ctx\` was used outside of the code of its run (${verb})`;
  return new OnwardError("context_misused", message, "use it in the workflow function, not in steps, queries, callbacks or after its end", 400);
}

function callHandler(handler: Handler | undefined, what: string, name: string, input: unknown): unknown {
  if (handler === undefined) throw new Failure(`the code has no ${what} \`${name}\``, { retryable: false });
  const output = handler(argumentOf(handler, 1, input));
  if (what === "query" && isThenable(output)) {
    output.then(ignore, ignore);
    throw new Failure(`the handler of query \`${name}\` is async; it must answer at once`, { retryable: false });
  }
  return output;
}

function settled(ok: number, value: unknown, convert?: (value: unknown) => unknown): Promise<unknown> {
  if (ok === 1) return Promise.resolve(convert === undefined ? value : convert(value));
  return rejected(Failure.of(value as FailureDocument));
}

function rejected(error: unknown): Promise<never> {
  const promise = Promise.reject(error);
  promise.catch(ignore);
  return promise;
}

export function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof value === "object" && value !== null && typeof (value as { then?: unknown }).then === "function";
}
