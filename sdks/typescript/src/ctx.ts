/** The context of workflow code: everything that reaches outside of it. */

import { AsyncResource } from "node:async_hooks";
import { Failure, OnwardError, type Canceled } from "./errors.js";
import { encode, encodeArguments } from "./json.js";
import type { StepCtx } from "./jobs.js";
import { nameOf, taskDefaults, type Input, type Recorded, type SignalName, type TaskDefaults, type TaskName, type WorkflowName } from "./names.js";
import {
  attributeArgument,
  milliseconds,
  memoArgument,
  optionalMs,
  retryArgument,
  type AttributeValue,
  type Budget,
  type BudgetUse,
  type Duration,
  type Memo,
  type Retry,
} from "./options.js";
import { RandomGenerator } from "./random.js";
import { recordedInput } from "./middleware.js";
import { isAnswer, type Handler, type Run } from "./run.js";
import { jsonSchemaOf, validatedNow, type Schema } from "./schema.js";

/** Options of {@link Ctx.step}. */
export interface StepOptions {
  /** The number of attempts in all (1 by default), or more detail. */
  retry?: Retry;
  /** The time that one attempt may take. */
  timeout?: Duration;
  /** Recorded with the step and compared on replay: what the function depends on. */
  input?: unknown;
  /** Records the input, to be read by people. */
  record?: boolean;
  /** Uses the result of an equal step of another run. */
  memo?: Memo;
}

/** What a repeated attempt of a task does. */
export type Effect = "pure" | "keyed" | "at_least_once" | "at_most_once";

/** Options of {@link Ctx.task}. */
export interface TaskOptions extends TaskDefaults {
  /** The tenant or account whose limits and share of the queue apply. */
  key?: string;
  idempotencyKey?: string;
  /** The task reports costs, so it does not start when the budget is exhausted. */
  costs?: boolean;
  effect?: Effect;
  /** Uses the result of an equal task of another run; not for a task that runs at most once. */
  memo?: Memo;
}

/** Options of {@link Ctx.child}. */
export interface ChildOptions {
  id?: string;
  version?: string;
  /** What happens to the child when this run ends before it; `cancel` by default. */
  onParentClose?: "cancel" | "terminate" | "abandon";
  /** Begins the child when this queue lets it in; it holds a slot until it ends. */
  queue?: string;
  /** The key whose limits and share of the queue apply to the child; needs a queue. */
  key?: string;
  /** Higher begins first; needs a queue. */
  priority?: number;
  budget?: Budget;
}

/** Options of {@link Ctx.approval}. */
export interface ApprovalOptions {
  title: string;
  description?: string;
  /** Data for the person who decides. */
  show?: unknown;
  /** Names of the keys that may decide; all with the scope by default. */
  deciders?: string[];
  /** The key that started the run must not decide. */
  notByRequester?: boolean;
  /** Without a decision for this long, it is disapproved as expired. */
  within?: Duration;
}

/** Options of {@link Ctx.approval} with a structured answer. */
export interface AnswerOptions<A> extends ApprovalOptions {
  /** The answer that approving needs: a schema of zod, valibot or arktype, or a JSON schema. It is checked where it enters. */
  answer: Schema<A>;
  /** The JSON schema of the answer, if the library of `answer` cannot make one. */
  jsonSchema?: Record<string, unknown>;
}

/** The decision about an approval that requires a structured answer. */
export interface Answered<A> extends Decision {
  /** The answer; `undefined` if it was not approved. */
  answer: A | undefined;
}

/** The decision about an approval. */
export interface Decision {
  approved: boolean;
  feedback: string | undefined;
  decidedBy: string | undefined;
  expired: boolean;
}

/** The call that was answered first. */
export type Selected<T extends Record<string, Promise<unknown>>> = {
  [K in keyof T]: { readonly key: K; readonly value: Awaited<T[K]> };
}[keyof T];

/** A wait that can be named from outside. */
export type Identified<T> = Promise<T> & { readonly id: string };

/** A task or child that runs. */
export type Cancelable<T> = Promise<T> & {
  /** Asks it to end; awaiting it then fails with `canceled`, unless it was too late. */
  cancel(): string;
};

/** A child that runs. */
export type Child<T> = Cancelable<T> & {
  readonly runId: string;
  signal<P>(name: SignalName<P>, ...[payload]: Input<P, never>): void;
};

/**
 * What workflow code uses instead of clocks, random numbers, timers and I/O. Calls are numbered in the order in which they are
 * made, and a replay must make the same calls.
 */
export class Ctx {
  readonly #run: Run;

  /** @internal */
  constructor(run: Run) {
    this.#run = run;
  }

  get runId(): string {
    return this.#run.info.id;
  }

  get kind(): string {
    return this.#run.info.kind;
  }

  /** Counts how often the run has continued as new, was retried, or made a checkpoint. */
  get generation(): number {
    return this.#run.info.generation;
  }

  /** The number of ancestors: 0 for a run that no other run started. */
  get nesting(): number {
    return this.#run.info.nesting;
  }

  /** Whether another run awaits this one. */
  get isCalled(): boolean {
    return this.#run.info.is_called;
  }

  /** The run that started this one. */
  get parent(): { readonly runId: string; message(value: unknown): void } | undefined {
    const runId = this.#run.info.parent;
    if (runId === null) return undefined;
    return { runId, message: (value) => this.#do("parent_message", { value }, "a message to the parent") };
  }

  /** The header `traceparent` of this run, in processes with tracing. */
  get trace(): string | undefined {
    return (this.#run.value("trace", "{}") as string | null) ?? undefined;
  }

  // ---- steps and tasks

  #stepArguments(name: string, { retry, timeout, input, record, memo }: StepOptions): string {
    const { middlewares } = this.#run;
    const isShown = input !== undefined && middlewares.length > 0;
    const record_as = isShown ? recordedInput(middlewares, name, JSON.parse(encode(input, "the input of step", name))) : undefined;
    const timeout_ms = optionalMs(timeout, "timeout");
    const args = { name, retry: retryArgument(retry), timeout_ms, input, record, record_as, memo: memoArgument(memo) };
    return encodeArguments(args, "the input of step", name);
  }

  /**
   * Runs a function in this process and records its result. A recorded step never runs again; one that was running when the
   * process died may run again.
   */
  step<T>(name: string, code: (step: StepCtx) => T | PromiseLike<T>, options?: StepOptions): Promise<Recorded<Awaited<T>>> {
    if (typeof name !== "string") throw new TypeError(`the name of a step is text, not ${typeof name}`);
    if (typeof code !== "function") throw new TypeError(`step \`${name}\` needs a function`);
    const args = options === undefined ? `{"name":${encode(name, "the name of a step")}}` : this.#stepArguments(name, options);
    return this.#run.step(args, { name, call: inContext(code), input: options?.input }) as Promise<Recorded<Awaited<T>>>;
  }

  /** Queues a task and waits for its result; any worker that has its function executes it. */
  task<I, O>(task: TaskName<I, O>, ...[input, options]: Input<I, TaskOptions>): Cancelable<O> {
    const { call, promise } = this.#open("task", taskArguments(nameOf(task), input, options), "the input of task", nameOf(task));
    return Object.assign(promise as Promise<O>, { cancel: () => this.#cancel(call) });
  }

  // ---- time, random numbers

  /** Returns the time of the event that the code handles now. */
  now(): Date {
    return new Date(this.#run.now);
  }

  /** Waits; the timer continues while no process runs. */
  sleep(span: Duration): Promise<void> {
    return this.#run.wait("sleep", `{"ms":${milliseconds(span, "the time to sleep")}}`, nothing) as Promise<void>;
  }

  /** Waits until a time. */
  sleepUntil(time: Date): Promise<void> {
    const until = Math.max(0, time.getTime());
    if (Number.isNaN(until)) throw new RangeError("the time to sleep until is an invalid date");
    return this.#run.wait("sleep", `{"until":${until}}`, nothing) as Promise<void>;
  }

  /**
   * Waits for a promise for at most `span`, then gives it up and fails with the code `timed_out`. The calls behind a
   * `Promise.all(..)` or an async function go on waiting.
   */
  async timeout<T>(promise: Promise<T>, span: Duration): Promise<T> {
    const timer = this.sleep(span);
    try {
      const isLate = await Promise.race([promise.then(() => false), timer.then(() => true)]);
      if (!isLate) return await promise;
    } finally {
      this.#run.drop([promise, timer]);
    }
    throw new Failure(`nothing came within ${milliseconds(span, "the timeout")} ms`, { code: "timed_out" });
  }

  /**
   * Waits for the first of several calls of `ctx`, by name, and gives up the others: their timers stop, and a signal that
   * arrives later stays in the mailbox. With `Promise.race`, the losers go on waiting.
   *
   * ```ts
   * const first = await ctx.select({ item: ctx.signal<string>("add").recv(), late: ctx.sleep({ days: 1 }) });
   * if (first.key === "item") items.push(first.value);
   * ```
   */
  async select<T extends Record<string, Promise<unknown>>>(calls: T): Promise<Selected<T>> {
    const promises = Object.entries(calls);
    if (promises.length === 0) throw new TypeError("there is no call to wait for: pass at least one");
    const unknown = promises.find(([, promise]) => !isAnswer(promise));
    if (unknown !== undefined) {
      const why = `\`${unknown[0]}\` is not a call of \`ctx\` itself, so it cannot be given up`;
      throw new TypeError(`${why}: pass the call without \`then\`, or use \`Promise.race\``);
    }
    const keyed = promises.map(async ([key, promise]) => ({ key, value: await promise }));
    try {
      return (await Promise.race(keyed)) as Selected<T>;
    } finally {
      for (const promise of keyed) promise.catch(() => {});
      this.#run.drop(Object.values(calls));
    }
  }

  /** Waits for the first of several calls of `ctx` like {@link Ctx.select}, without names. */
  async race<T extends readonly Promise<unknown>[]>(calls: T): Promise<Awaited<T[number]>> {
    return (await this.select(Object.fromEntries(calls.entries()))).value as Awaited<T[number]>;
  }

  /** Gives up a promise of `ctx`: the code no longer waits for it. */
  drop(...promises: Promise<unknown>[]): void {
    this.#run.drop(promises);
  }

  /** Returns a random UUID that a replay repeats. */
  uuid(): string {
    return this.#run.value("uuid", "{}") as string;
  }

  /** Returns a random number from 0 up to 1 that a replay repeats. */
  random(): number {
    return Number(BigInt(this.#run.value("random", "{}") as string) >> 11n) / 2 ** 53;
  }

  /**
   * Returns a generator of random numbers, with ranges, choices and shuffles: its numbers are the same in every replay, and in
   * every language for the same log.
   */
  randomGenerator(): RandomGenerator {
    return new RandomGenerator(BigInt(this.#run.value("random", "{}") as string));
  }

  /** Returns which version of a change this run uses: `max` if it is new, what was recorded otherwise. */
  version(change: string, min: number, max: number): number {
    return this.#run.value("version", encodeArguments({ change, min, max }, "a version")) as number;
  }

  // ---- signals

  /** Returns the mailbox of one signal name. */
  signal<T = unknown>(name: SignalName<T>): Mailbox<T> {
    return new Mailbox<T>(this.#run, nameOf(name));
  }

  /** Returns the mailbox of all names that match a pattern, in which `*` stands for any text. */
  signals<T = unknown>(pattern: string): PatternMailbox<T> {
    return new PatternMailbox<T>(this.#run, pattern);
  }

  /** Sends a signal to another run, exactly once. */
  sendSignal<T>(run: string, name: SignalName<T>, ...[payload]: Input<T, never>): void {
    this.#do("send_signal", { run, name: nameOf(name), value: payload ?? null }, "the payload of signal", nameOf(name));
  }

  // ---- approvals, promises

  /** Requests a decision of a person, with a structured answer, and waits for it. */
  approval<A>(name: string, options: AnswerOptions<A>): Identified<Answered<A>>;
  /** Requests a decision of a person and waits for it. */
  approval(name: string, options: ApprovalOptions): Identified<Decision>;
  approval(name: string, options: ApprovalOptions & { answer?: Schema<unknown>; jsonSchema?: Record<string, unknown> }): Identified<Decision> {
    const { title, description, show, deciders, notByRequester, within, answer, jsonSchema } = options;
    const what = `the answer of approval \`${name}\``;
    const answer_schema = answer && jsonSchemaOf(what, answer, jsonSchema);
    const others = { not_by_requester: notByRequester, within_ms: optionalMs(within, "within"), answer_schema };
    const read = answer === undefined ? decision : (document: unknown) => answered(what, answer, document as Record<string, unknown>);
    return identified(this.#open("approval", { name, title, description, show, deciders, ...others }, "approval", name, read));
  }

  /** Hands out an id and waits for the value with which a caller resolves it. */
  promise<T = unknown>(name: string, options: { within?: Duration } = {}): Identified<T> {
    return identified(this.#open("promise", { name, within_ms: optionalMs(options.within, "within") }, "promise", name));
  }

  // ---- children

  /** Starts another run and waits for its result. */
  child<I, O>(workflow: WorkflowName<I, O>, ...[input, options = {}]: Input<I, ChildOptions>): Child<O> {
    const { id, version, onParentClose, budget, queue, key, priority } = options;
    const args = { kind: nameOf(workflow), input: input ?? null, id, version, on_parent_close: onParentClose, budget, queue, key, priority };
    const { call, info, promise } = this.#open("child", args, "the input of workflow", nameOf(workflow));
    const runId = info["run"] as string;
    return Object.assign(promise as Promise<O>, {
      runId,
      cancel: () => this.#cancel(call),
      signal: <P>(name: SignalName<P>, ...payload: Input<P, never>) => this.sendSignal(runId, name, ...payload),
    });
  }

  /** Starts another run that may outlive this generation. */
  spawn<I, O>(workflow: WorkflowName<I, O>, ...[input, options = {}]: Input<I, { budget?: Budget }>): Spawned<O> {
    const args = encodeArguments({ kind: nameOf(workflow), input: input ?? null, budget: options.budget }, "the input of workflow", nameOf(workflow));
    return this.spawned((this.#run.value("spawn", args) as { run: string }).run);
  }

  /** Returns the handle of a run that this run spawned, from its id. */
  spawned<O = unknown>(runId: string): Spawned<O> {
    return new Spawned<O>(this.#run, runId);
  }

  // ---- state of the run

  /** Named values that are recorded and that callers can read. */
  get state(): State {
    return new State(this.#run);
  }

  /** Sets a value by which runs are listed. */
  setAttribute(name: string, value: AttributeValue): void {
    this.#do("attribute_set", { name, value: attributeArgument(name, value) }, "attribute", name);
  }

  clearAttribute(name: string): void {
    this.#do("attribute_clear", { name }, "attribute", name);
  }

  /** Sends a value to the current readers of the run, also from a step. It is not recorded, and not repeated on replay. */
  emit(name: string, value: unknown, options: { internal?: boolean; meta?: Record<string, unknown> } = {}): void {
    this.#do("emit", { name, value: value ?? null, internal: options.internal, meta: options.meta }, "what is emitted as", name);
  }

  /** Limits what the run may spend. */
  setBudget(budget: Budget): void {
    this.#do("set_budget", { budget }, "the budget");
  }

  spent(): BudgetUse {
    return this.#run.value("spent", "{}") as BudgetUse;
  }

  budgetLeft(): Budget {
    return this.#run.value("budget_left", "{}") as Budget;
  }

  // ---- queries, updates

  /** Registers the handler of a query: it reads the memory of the code, is not recorded, and must change nothing. */
  query<I = unknown>(name: string, handler: (input: I) => unknown): void {
    checkHandler("query", name, handler);
    (this.#run.queries ??= new Map()).set(name, handler as Handler);
  }

  /**
   * Registers the handler of an update: it changes what the code remembers, and its result is recorded. It runs again on replay
   * and must be deterministic. Updates that arrived before wait for it.
   *
   * An async handler may await calls of the context; the update is answered when it returns. Several may be in flight, beside the
   * code. If the code ends or continues as new before, the update fails with `update_abandoned`: see {@link updatesFinished}.
   */
  update<I = unknown>(name: string, handler: (input: I) => unknown): void {
    checkHandler("update", name, handler);
    (this.#run.updates ??= new Map()).set(name, handler as Handler);
    const kept = this.#run.value("update", encodeArguments({ name }, "update", name)) as { update: string; input: unknown }[];
    for (const { update, input } of kept) this.#run.update(update, name, input);
  }

  /** Waits until no async handler of an update is in flight. Not for handlers, which would wait for themselves. */
  updatesFinished(): Promise<void> {
    return this.#run.wait("updates_finished", "{}", () => undefined) as Promise<void>;
  }

  // ---- the end of the run

  /** Registers a compensation: if the run fails or is canceled, all run as steps, latest first, before it ends. */
  onFailure(name: string, undo: (step: StepCtx) => unknown): void {
    if (typeof undo !== "function") throw new TypeError(`compensation \`${name}\` needs a function`);
    const number = this.#run.value("on_failure", encodeArguments({ name }, "compensation", name)) as number;
    (this.#run.undos ??= new Map()).set(number, { name, call: inContext(undo) });
  }

  /** Ends this generation and starts the next one with a new log. */
  continueAsNew(input?: unknown): Promise<never> {
    return this.#end("continue_as_new", { input: input ?? null }, "the input of workflow", this.kind);
  }

  /** Returns whether the run was asked to end. */
  isCanceled(): boolean {
    return this.#run.value("is_canceled", "{}") as boolean;
  }

  /** Waits for a cancel request and returns its failure. Until it is dropped, the request does not interrupt other waits. */
  canceled(): Promise<Canceled> {
    return this.#run.wait("canceled", "{}", (failure) => Failure.of(failure as { message: string })) as Promise<Canceled>;
  }

  /** @internal The run, for other modules of this package. */
  static runOf(ctx: Ctx): Run {
    return ctx.#run;
  }

  #open(verb: string, args: object, what: string, name: string, convert?: (value: unknown) => unknown): ReturnType<Run["open"]> {
    return this.#run.open(verb, encodeArguments(args, what, name), convert);
  }

  #do(verb: string, args: object, what: string, name = ""): void {
    this.#run.value(verb, encodeArguments(args, what, name));
  }

  #end(verb: string, args: object, what: string, name: string): Promise<never> {
    this.#run.open(verb, encodeArguments(args, what, name));
    return this.#run.stop();
  }

  #cancel(call: number): string {
    return this.#run.value("cancel", `{"call":${call}}`) as string;
  }
}

/** The mailbox of one signal name: first in, first out; signals that arrive early are kept. */
export class Mailbox<T> {
  readonly #run: Run;
  readonly #name: string;

  /** @internal */
  constructor(run: Run, name: string) {
    this.#run = run;
    this.#name = name;
  }

  /** Waits for the next signal. With a timeout, `undefined` comes after it, and later signals stay in the mailbox. */
  recv(): Promise<T>;
  recv(options: { timeout: Duration }): Promise<T | undefined>;
  recv(options?: { timeout: Duration }): Promise<T | undefined> {
    return receive(this.#run, "signal", this.#name, options) as Promise<T | undefined>;
  }

  /** Returns whether a signal is there. */
  has(): boolean {
    return poll(this.#run, "has", "signal", this.#name) as boolean;
  }

  count(): number {
    return poll(this.#run, "count", "signal", this.#name) as number;
  }

  /** Takes the next signal, if one is there. */
  tryRecv(): T | undefined {
    return (poll(this.#run, "try_recv", "signal", this.#name) as { value: T } | null)?.value;
  }

  /** Takes all signals that are there. */
  drain(): T[] {
    return this.drainWithSender().map(({ value }) => value);
  }

  /** Takes all signals that are there, each with the run that sent it. */
  drainWithSender(): { from: string | undefined; value: T }[] {
    const drained = poll(this.#run, "drain", "signal", this.#name) as { from: string | null; value: T }[];
    return drained.map(({ from, value }) => ({ from: from ?? undefined, value }));
  }
}

/** A signal with its name. */
export interface Named<T> {
  name: string;
  value: T;
}

/** The mailbox of all names that match a pattern. */
export class PatternMailbox<T> {
  readonly #run: Run;
  readonly #pattern: string;

  /** @internal */
  constructor(run: Run, pattern: string) {
    this.#run = run;
    this.#pattern = pattern;
  }

  recv(): Promise<Named<T>>;
  recv(options: { timeout: Duration }): Promise<Named<T> | undefined>;
  recv(options?: { timeout: Duration }): Promise<Named<T> | undefined> {
    return receive(this.#run, "pattern", this.#pattern, options) as Promise<Named<T> | undefined>;
  }

  has(): boolean {
    return poll(this.#run, "has", "pattern", this.#pattern) as boolean;
  }

  count(): number {
    return poll(this.#run, "count", "pattern", this.#pattern) as number;
  }

  tryRecv(): Named<T> | undefined {
    return (poll(this.#run, "try_recv", "pattern", this.#pattern) as Named<T> | null) ?? undefined;
  }

  drain(): Named<T>[] {
    const drained = poll(this.#run, "drain", "pattern", this.#pattern) as Named<T>[];
    return drained.map(({ name, value }) => ({ name, value }));
  }
}

/** Named values of a run. */
export class State {
  readonly #run: Run;

  /** @internal */
  constructor(run: Run) {
    this.#run = run;
  }

  set(key: string, value: unknown): void {
    this.#run.value("state_set", encodeArguments({ key, value: value ?? null }, "state", key));
  }

  get<T = unknown>(key: string): T | undefined {
    return (this.#run.value("state_get", encodeArguments({ key }, "state", key)) as { value: T } | null)?.value;
  }

  clear(key: string): void {
    this.#run.value("state_clear", encodeArguments({ key }, "state", key));
  }

  keys(): string[] {
    return this.#run.value("state_keys", "{}") as string[];
  }
}

/** A run that this run spawned. Its id can be kept, and {@link Ctx.spawned} makes a handle of it again. */
export class Spawned<O> {
  readonly #run: Run;
  readonly runId: string;

  /** @internal */
  constructor(run: Run, runId: string) {
    this.#run = run;
    this.runId = runId;
  }

  /** Sends a message; it arrives once and in order, or is dropped if the run has ended. */
  message(value: unknown): void {
    this.#run.value("spawned_message", encodeArguments({ run: this.runId, value: value ?? null }, "a message to run", this.runId));
  }

  /** Waits for the result, which may be read more than once. */
  result(): Promise<O> {
    return this.#run.wait("spawned_result", encodeArguments({ run: this.runId }, "run", this.runId)) as Promise<O>;
  }

  cancel(): void {
    this.#run.value("spawned_cancel", encodeArguments({ run: this.runId }, "run", this.runId));
  }

  toJSON(): string {
    return this.runId;
  }
}

/** @internal Returns the arguments of a task. */
export function taskArguments(kind: string, input: unknown, options: TaskOptions = {}): object {
  return {
    kind,
    input: input ?? null,
    ...taskDefaults(options),
    key: options.key,
    idempotency_key: options.idempotencyKey,
    costs: options.costs,
    class: options.effect,
    memo: memoArgument(options.memo),
  };
}


function receive(run: Run, by: "signal" | "pattern", name: string, options?: { timeout: Duration }): Promise<unknown> {
  const timeout_ms = optionalMs(options?.timeout, "timeout");
  const taken = timeout_ms === undefined ? undefined : (answer: unknown) => (answer as { value: unknown } | null)?.value;
  return run.wait("recv", encodeArguments({ [by]: name, timeout_ms }, "signal", name), taken);
}

function poll(run: Run, verb: string, by: "signal" | "pattern", name: string): unknown {
  return run.value(verb, encodeArguments({ [by]: name }, "signal", name));
}

function decision(answer: unknown): Decision {
  const { approved, feedback, decided_by, expired } = answer as Record<string, unknown>;
  return {
    approved: approved === true,
    feedback: (feedback as string | null) ?? undefined,
    decidedBy: (decided_by as string | null) ?? undefined,
    expired: expired === true,
  };
}

function answered(what: string, schema: Schema<unknown>, document: Record<string, unknown>): Answered<unknown> {
  const found = decision(document);
  const problem = { message: `${what} does not fit`, code: "answer_invalid" };
  return { ...found, answer: found.approved ? validatedNow(problem, schema, document["answer"]) : undefined };
}

function identified<T>({ info, promise }: ReturnType<Run["open"]>): Identified<T> {
  return Object.assign(promise as Promise<T>, { id: info["id"] as string });
}

function checkHandler(what: string, name: string, handler: unknown): void {
  if (typeof handler !== "function") throw new OnwardError("arguments_invalid", `${what} \`${name}\` needs a function`);
}

/** Returns a function that sees the `AsyncLocalStorage` values of the code that passes it. */
function inContext<T>(code: (step: StepCtx) => T): (step: StepCtx) => T {
  // `AsyncResource.bind` registers each function for garbage collection, which takes longer than the step.
  const resource = new AsyncResource("OnwardStep", { requireManualDestroy: true });
  return (step) => resource.runInAsyncScope(code, undefined, step);
}

function nothing(): void {}
