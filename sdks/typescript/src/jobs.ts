/** Functions of steps and tasks: one attempt of each is a job. */

import { Canceled, Failure, OnwardError, failureText, type FailureOptions } from "./errors.js";
import { encode } from "./json.js";
import { chain, type attemptsOf, type AttemptCall } from "./middleware.js";
import type { NativeBridge } from "./native.js";
import { isThenable, type Run, type StepStart } from "./run.js";

/** The cost of an attempt for one model. */
export interface Spend {
  provider: string;
  model: string;
  /** Input tokens that were neither read from a cache nor written to one. */
  input?: number;
  cachedRead?: number;
  cachedWrite?: number;
  /** Output tokens, including those of reasoning. */
  output?: number;
  reasoning?: number;
  /** Dollars, as text: `"0.0021"`. */
  cost?: string;
}

/** One attempt of a step, as its function sees it. */
export class StepCtx {
  /** 1, 2, .. */
  readonly attempt: number;
  /** The same for every attempt of this step, also after a crash: pass it to the called system, which discards repeats by it. */
  readonly idempotencyKey: string;
  /** The header `traceparent`, in processes with tracing. */
  readonly trace: string | undefined;
  #controller: AbortController | undefined;
  #isCanceled = false;

  /** @internal */
  constructor(attempt: number, idempotencyKey: string, trace: string | null) {
    this.attempt = attempt;
    this.idempotencyKey = idempotencyKey;
    this.trace = trace ?? undefined;
  }

  /**
   * Aborts when the result is no longer needed: after a timeout, when the code gives up the call, and when the time is over that
   * `close()` waits. A cancel request aborts tasks; a running step it lets end.
   */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#isCanceled) this.#controller.abort(new Canceled("the attempt was canceled"));
    }
    return this.#controller.signal;
  }

  /** @internal Drops what the attempt streams from now on. */
  mute(): void {}

  /** @internal */
  cancel(): void {
    this.#isCanceled = true;
    this.#controller?.abort(new Canceled("the attempt was canceled"));
  }
}

/** One attempt of a task, as its function sees it. */
export class TaskCtx extends StepCtx {
  readonly #native: NativeBridge;
  readonly #job: number;
  #isMuted = false;

  /** @internal */
  override mute(): void {
    this.#isMuted = true;
  }

  /** @internal */
  constructor(native: NativeBridge, job: number, attempt: number, idempotencyKey: string, trace: string | null) {
    super(attempt, idempotencyKey, trace);
    this.#native = native;
    this.#job = job;
  }

  /** Returns whether the result is no longer needed. */
  isCanceled(): boolean {
    return this.#call("is_canceled", "{}") === true;
  }

  /** Shows that the attempt is alive, with its progress; the next attempt starts later if this stops. */
  heartbeat(progress?: unknown): void {
    const known = progress === undefined ? "" : `"progress":${encode(progress, "the progress of a task")}`;
    this.#call("heartbeat", `{${known}}`);
  }

  /** Adds a line to the ledger of the run. */
  spend({ provider, model, cost, input = 0, cachedRead = 0, cachedWrite = 0, output = 0, reasoning = 0 }: Spend): void {
    const tokens = { input, cached_read: cachedRead, cached_write: cachedWrite, output, reasoning };
    this.#call("spend", encode({ provider, model, tokens, cost }, "the spend of a task"));
  }

  /** Sends a part of the output to the readers of the run's stream; its form is `StreamFrame` of docs/openapi.json. */
  stream(frame: Record<string, unknown>): void {
    const text = encode({ frame }, "a frame of a stream");
    if (!this.#isMuted) this.#call("stream", text);
  }

  #call(verb: string, args: string): unknown {
    try {
      return JSON.parse(this.#native.task(this.#job, verb, args));
    } catch (error) {
      throw OnwardError.from(error);
    }
  }
}

/** The function of a step. */
export type StepFunction = { name: string; call: (step: StepCtx) => unknown; input?: unknown };

/** @internal Runs the functions of steps and tasks and reports their results. */
export class Jobs {
  /** Attempts that wait for something. */
  readonly #open = new Map<number, StepCtx>();
  #done: string[] = [];
  readonly #native: NativeBridge;
  /** Those of middlewares, outermost first. */
  readonly #around: ReturnType<typeof attemptsOf>;

  constructor(native: NativeBridge, around: ReturnType<typeof attemptsOf>) {
    this.#native = native;
    this.#around = around;
  }

  /** Starts the function of a step that was called in the current activation. */
  startStep({ run, job, step, attempt, key, trace }: StepStart): void {
    const ctx = new StepCtx(attempt, key, trace);
    this.#start(job, "step", step.name, ctx, this.#surrounded("step", step.name, run.info.id, step.input, (_, ctx) => step.call(ctx)), run);
  }

  /** Starts another attempt of a step, or a compensation. */
  startAttempt(
    job: number,
    run: string,
    step: StepFunction | undefined,
    name: string,
    attempt: number,
    key: string,
    trace: string | null,
  ): void {
    const missing = (): never => {
      throw new Failure(`the code has no function for step \`${name}\``);
    };
    const call = this.#surrounded("step", name, run, step?.input, (_, ctx) => (step?.call ?? missing)(ctx));
    this.#start(job, "step", name, new StepCtx(attempt, key, trace), call);
  }

  startTask(job: number, kind: string, code: ((input: unknown, task: TaskCtx) => unknown) | undefined, input: unknown, info: TaskInfo): void {
    const missing = (): never => {
      throw new Failure(`this process has no function for task \`${kind}\``);
    };
    const task = new TaskCtx(this.#native, job, info.attempt, info.idempotency_key, info.trace);
    const execute = (input: unknown, ctx: StepCtx): unknown => (code ?? missing)(input, ctx as TaskCtx);
    const what = typeof info.agent === "string" ? "tool" : "task";
    const call = info.is_scripted === true ? (ctx: StepCtx) => execute(input, ctx) : this.#surrounded(what, kind, info.run, input, execute);
    this.#start(job, "task", kind, task, call);
  }

  /** Starts the middlewares of a model call; `next` makes it. */
  startModelCall(job: number, name: string, input: unknown, info: TaskInfo, next: (call: AttemptCall, mute: boolean) => Promise<unknown>): void {
    const ctx = new StepCtx(info.attempt, info.idempotency_key, null);
    let isMuted = false;
    const mute = (): void => void (isMuted = true);
    const made = chain(this.#around, (call) => next(call, isMuted));
    const call = { kind: "model_call", name, run: info.run, attempt: info.attempt, idempotencyKey: info.idempotency_key, input, mute } as const;
    this.#start(job, "model call", name, ctx, () => made(call));
  }

  /** Returns the function of an attempt inside of the middlewares. */
  #surrounded(
    kind: AttemptCall["kind"],
    name: string,
    run: string,
    input: unknown,
    code: (input: unknown, ctx: StepCtx) => unknown,
  ): (ctx: StepCtx) => unknown {
    if (this.#around.length === 0) return (ctx) => code(input, ctx);
    return (ctx) => {
      const made = chain<AttemptCall>(this.#around, async (call) => code(call.input, ctx));
      const mute = (): void => ctx.mute();
      return made({ kind, name, run, attempt: ctx.attempt, idempotencyKey: ctx.idempotencyKey, input, mute });
    };
  }

  /** Cancels an attempt: its result is no longer needed. */
  cancel(job: number): void {
    this.#open.get(job)?.cancel();
  }

  #start(job: number, what: string, name: string, ctx: StepCtx, call: (ctx: StepCtx) => unknown, run?: Run): void {
    let output: unknown;
    try {
      output = call(ctx);
    } catch (error) {
      return this.#end(`[${job},0,${failureText(error)}]`, run);
    }
    if (!isThenable(output)) return this.#succeed(job, what, name, output, run);
    this.#open.set(job, ctx);
    Promise.resolve(output).then(
      (value) => {
        this.#open.delete(job);
        this.#succeed(job, what, name, value, run);
      },
      (error: unknown) => {
        this.#open.delete(job);
        this.#end(`[${job},0,${failureText(error)}]`, run);
      },
    );
  }

  #succeed(job: number, what: string, name: string, output: unknown, run: Run | undefined): void {
    let value: string;
    try {
      value = `[${job},1,${encode(output, `the result of ${what}`, name)}]`;
    } catch (error) {
      value = `[${job},0,${failureText(error)}]`;
    }
    this.#end(value, run);
  }

  /** Reports a result: with the activation if it is still out, with all others that end now otherwise. */
  #end(text: string, run: Run | undefined): void {
    if (run !== undefined && run.pendingSteps > 0) {
      run.pendingSteps--;
      run.finished.push(text);
      return;
    }
    if (this.#done.push(text) === 1) queueMicrotask(this.#report);
  }

  readonly #report = (): void => {
    const done = this.#done;
    this.#done = [];
    this.#native.finish(`[${done.join(",")}]`);
  };
}

/** @internal Facts about a task attempt. */
export interface TaskInfo {
  attempt: number;
  idempotency_key: string;
  trace: string | null;
  /** The agent whose tool it is; empty for a tool of all code, null for a plain task. */
  agent?: string | null;
  /** The run that made the call. */
  run: string;
  /** The bridge makes the call; middlewares surround it. */
  is_model_call?: boolean;
  /** The test kit calls the function for its answer. */
  is_scripted?: boolean;
}

/** Returns a failure after which there is no further attempt. */
export function fatal(message: string, options: Omit<FailureOptions, "retryable"> = {}): Failure {
  return new Failure(message, { ...options, retryable: false });
}
