/** Starting runs and reading, signaling and ending them. */

import { AgentCtx, agentArguments, toolArguments, type Agent, type Role, type Tool } from "./agent.js";
import { attributeArgument, optionalMs, typedAttribute, type AttributeValue, type Budget, type Duration } from "./options.js";
import { Ctx, taskArguments, type TaskOptions } from "./ctx.js";
import { summaryOf, viewOf, type HeadDocument, type RunSummary, type ViewDocument, type Entry, type EntryPage, type LiveFrame, type LogRecord, type Receipt, type RunStatus, type RunView, type TaskView } from "./documents.js";
import { Failure, OnwardError, WorkflowMisuse, failureText, type ErrorDocument, type FailureDocument } from "./errors.js";
import { inCode } from "./guard.js";
import { Host, toolKey, versionKey, type Code } from "./host.js";
import type { TaskCtx } from "./jobs.js";
import { encode, encodeArguments } from "./json.js";
import type { Middleware } from "./middleware.js";
import { ScheduleHandle, putArguments, scheduleOf, slotOf, specOf, timeText, type ScheduleDocument, type ScheduleOptions, type ScheduleTimes, type ScheduleView, type Slot, type SlotDocument } from "./schedules.js";
import { checkOption, nameOf, namedSchemas, taskDefaults, type Input, type SignalName, type Task, type TaskName, type Workflow, type WorkflowName } from "./names.js";


/** A definition with any types. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any -- functions are contravariant in their input
export type AnyWorkflow = Workflow<any, any>;
// eslint-disable-next-line @typescript-eslint/no-explicit-any -- as above
export type AnyTask = Task<any, any>;

/** What a process executes, and how much of it. */
export interface WorkerOptions {
  workflows?: readonly AnyWorkflow[];
  tasks?: readonly AnyTask[];
  /** Ready-made agents. */
  agents?: readonly Agent[];
  /** Tools that the code of agents calls with `ctx.tool(..)`. */
  tools?: readonly Tool[];
  /** The namespace; `default` by default, or that of the key. */
  namespace?: string;
  /** Queues of tasks that this process works on; the default queue if there are none. */
  queues?: string[];
  /** Starts runs only when a caller drives them. */
  onDemand?: boolean;
  /** Threads of the engine. */
  threads?: number;
  tasksMax?: number;
  runsMax?: number;
  /** Runs whose code is kept in memory while they wait. */
  cachedRunsMax?: number;
  lease?: Duration;
  retention?: Duration;
  /** The time that steps and tasks get to end when this is closed; ten seconds by default. */
  shutdownTimeout?: Duration;
  /** Code around runs and attempts; the first one is the outermost. */
  middleware?: readonly Middleware[];
  /** Replays runs beside their execution, to find code that is not deterministic. */
  checkReplay?: "off" | "doubling" | "every";
  /** Models and their providers, as in the tables `models` and `providers` of the settings file. */
  models?: { providers?: Record<string, Record<string, unknown>>; models?: Record<string, Record<string, unknown>> };
  /** Keys of providers, by the name in `key_env`; those of the environment by default. */
  modelKeys?: Record<string, string>;
}

/** Options of a connection to a server. */
export interface ConnectOptions extends WorkerOptions {
  key?: string;
  /** A root certificate, as PEM text. */
  rootCertificate?: string;
}

/** Options of {@link Onward.start}. */
export interface StartOptions {
  /** The id: starting it again with the same input returns the same run. */
  id?: string;
  version?: string;
  attributes?: Record<string, AttributeValue>;
  budget?: Budget;
  /** Begins the code at this time; the run exists before, keeps signals and can be canceled. */
  at?: Date;
  /** Begins the code this long after the start, instead of `at`. */
  after?: Duration;
  /** Begins the code when this queue lets the run in; it holds a slot until it ends. */
  queue?: string;
  /** The key whose limits and share of the queue apply to the run. */
  key?: string;
  /** Higher begins first; one level is worth a minute of waiting. */
  priority?: number;
  /** Cancels the run after this time; time before `at` and while it is paused does not count. */
  deadline?: Duration;
  /** The header `traceparent` of the caller. */
  trace?: string;
  /** A signal that is sent with the start. */
  signal?: SentSignal;
}

/** A signal of a caller. With an id, it arrives once, however often it is sent. */
export interface SentSignal {
  name: string;
  payload?: unknown;
  id?: string;
}

/** An id makes a repeat of a request harmless. */
export interface RequestOptions {
  id?: string;
}

/** Options of {@link RunHandle.fork}. */
export interface ForkOptions extends RequestOptions {
  /** The last event to keep. */
  index?: number;
  generation?: number;
  version?: string;
  reason?: string;
  dropSignals?: boolean;
  restartChildren?: boolean;
  includeOutcomeUnknown?: boolean;
}

/** Who decides, and why. */
export interface DecideOptions extends RequestOptions {
  feedback?: string;
  decidedBy?: string;
}

/** The engine in this process, or a connection to a server: it starts runs, and executes those whose code it has. */
export class Onward implements AsyncDisposable {
  readonly #host: Host;
  readonly #shutdownMs: number;
  #closed: Promise<void> | undefined;

  private constructor(host: Host, shutdownMs: number) {
    this.#host = host;
    this.#shutdownMs = shutdownMs;
  }

  /** Opens a directory, or makes it; `memory:` keeps nothing. One process at a time can have it. */
  static embedded(directory: string, options: WorkerOptions = {}): Promise<Onward> {
    return Onward.#open(directory, options);
  }

  /** Opens a PostgreSQL database, which any number of processes can share. */
  static async postgres(url: string, options: WorkerOptions = {}): Promise<Onward> {
    return Onward.#open(addressOf(url, ["postgres:", "postgresql:"]), options);
  }

  /** Connects to a server at an `http` or `https` address. */
  static async connect(url: string, options: ConnectOptions = {}): Promise<Onward> {
    return Onward.#open(addressOf(url, ["http:", "https:"]), options);
  }

  static async #open(store: string, options: ConnectOptions): Promise<Onward> {
    if (inCode()) throw inWorkflow("Onward");
    const settings = settingsOf(store, options);
    const host = await Host.start(encodeArguments(settings, "the settings"), codeOf(options));
    return new Onward(host, settings.shutdown_timeout_ms ?? 10_000);
  }

  /** Starts a run. */
  async start<I, O>(workflow: WorkflowName<I, O>, ...[input, options = {}]: Input<I, StartOptions>): Promise<RunHandle<O>> {
    const { attributes, signal, deadline, at, after, ...others } = options;
    const named = Object.entries(attributes ?? {}).map(([name, value]) => [name, attributeArgument(name, value)]);
    const args = {
      kind: nameOf(workflow),
      input: input ?? null,
      ...others,
      attributes: Object.fromEntries(named) as object,
      signal: signalArgument(signal),
      deadline_ms: optionalMs(deadline, "deadline"),
      at: at && timeText(at, "at"),
      after_ms: optionalMs(after, "after"),
    };
    const { id } = await this.request<{ id: string }>("start", args, "the input of workflow", nameOf(workflow));
    return this.run(id);
  }

  /** Returns the handle of a run, which need not exist. */
  run<O = unknown>(id: string): RunHandle<O> {
    return new RunHandle<O>(this, id);
  }

  /** Queues a task without a workflow. */
  async startTask<I, O>(task: TaskName<I, O>, ...[input, options = {}]: Input<I, TaskOptions & RequestOptions>): Promise<TaskHandle<O>> {
    const args = { ...taskArguments(nameOf(task), input, options), id: options.id };
    const { id } = await this.request<{ id: string }>("start_task", args, "the input of task", nameOf(task));
    return this.task(id);
  }

  /** Returns the handle of a standalone task. */
  task<O = unknown>(id: string): TaskHandle<O> {
    return new TaskHandle<O>(this, id);
  }

  /**
   * Stores a schedule, which starts runs of a workflow by the clock. An equal definition changes nothing, another one replaces that
   * of the id.
   */
  async putSchedule<I, O>(id: string, workflow: WorkflowName<I, O>, options: ScheduleOptions): Promise<ScheduleHandle<O>> {
    await this.request("put_schedule", putArguments(id, nameOf(workflow), options), "the definition of schedule", id);
    return new ScheduleHandle<O>(this, id);
  }

  /** Returns the handle of a schedule, which need not exist. */
  schedule<O = unknown>(id: string): ScheduleHandle<O> {
    return new ScheduleHandle<O>(this, id);
  }

  /** Iterates over the schedules, latest first, without their histories. */
  async *schedules(): AsyncGenerator<ScheduleView> {
    let cursor: string | null | undefined;
    do {
      const page: SchedulePage = await this.execute<SchedulePage>("list_schedules", { cursor });
      yield* page.schedules.map(scheduleOf);
      cursor = page.next;
    } while (cursor !== null && cursor !== undefined);
  }

  /** Returns the next slots of times that are not stored. */
  async previewSlots(times: ScheduleTimes, count = 10): Promise<Slot[]> {
    return (await this.execute<{ slots: SlotDocument[] }>("list_slots", { spec: specOf(times), limit: count })).slots.map(slotOf);
  }

  /** Approves what a run asks; `approval` is the id that `ctx.approval(..)` has, and `answer` what it requires. */
  approve(approval: string, options: DecideOptions & { answer?: unknown } = {}): Promise<Receipt> {
    return this.execute("approve", { approval, answer: options.answer, ...decided(options) });
  }

  /** Disapproves what a run asks. */
  disapprove(approval: string, options: DecideOptions = {}): Promise<Receipt> {
    return this.execute("disapprove", { approval, ...decided(options) });
  }

  /** Resolves a promise; `promise` is the id that `ctx.promise(..)` has. */
  resolve(promise: string, value?: unknown, options: RequestOptions = {}): Promise<Receipt> {
    return this.request("resolve", { value: value ?? null, promise, ...options }, "the value of promise", promise);
  }

  /** Rejects a promise: the code that awaits it gets this error. */
  reject(promise: string, error: unknown, options: RequestOptions = {}): Promise<Receipt> {
    const failure: unknown = JSON.parse(failureText(error));
    return this.request("reject", { failure, promise, ...options }, "the failure of promise", promise);
  }

  /** Iterates over the runs that match, latest first. */
  async *listRuns(filter: RunFilter = {}): AsyncGenerator<RunSummary> {
    const { kind, status, attributes, version } = filter;
    const query = {
      kind,
      statuses: status,
      versions: version === undefined ? undefined : [version],
      attributes: Object.entries(attributes ?? {}).map(([name, value]) => ({ name, values: [typedAttribute(name, value)] })),
    };
    let cursor: string | null | undefined;
    do {
      const page: RunPage = await this.execute<RunPage>("list_runs", { ...query, cursor });
      yield* page.runs.map(summaryOf);
      cursor = page.next;
    } while (cursor !== null);
  }

  /**
   * Invalidates the memo with a key, or all whose keys begin with a prefix; returns how many there were. With `run`, memos of the
   * tree of that run are meant, otherwise those of the namespace.
   */
  async invalidateMemos(which: ({ key: string } | { prefix: string }) & { run?: string }): Promise<number> {
    const [key, is_prefix] = "prefix" in which ? [which.prefix, true] : [which.key, false];
    const reply = await this.execute<{ invalidated: number }>("invalidate_memos", { key, is_prefix, run: which.run });
    return reply.invalidated;
  }

  /**
   * Makes a request of the API by its name, with its own documents: `count_runs`, `list_approvals`,
   * `delete_run`, `read_timeline`, `list_workers`, ..
   */
  async execute<T = Receipt>(verb: string, args: Record<string, unknown> = {}): Promise<T> {
    if (inCode()) throw inWorkflow(verb);
    return this.#host.reply<T>(verb, encode(args, "the request", verb));
  }

  /**
   * Makes a request that streams: ends when the stream ends, or when the iterator is left.
   *
   * @internal
   */
  stream<T>(verb: string, args: Record<string, unknown>): AsyncIterableIterator<T> {
    if (inCode()) throw inWorkflow(verb);
    return new Items<T>(this.#host, verb, encodeArguments(args, "the arguments of", verb));
  }

  /** Stops taking work, lets steps and tasks end, and closes. Runs go on at the next start. */
  close(options: { timeout?: Duration } = {}): Promise<void> {
    this.#closed ??= this.#host.close(optionalMs(options.timeout, "timeout") ?? this.#shutdownMs);
    return this.#closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** @internal The numbers of runs in memory, jobs, requests, and queued pieces of work, for tests. */
  stats(): number[] {
    return this.#host.stats();
  }

  /** @internal Makes a request; a value that is refused is `what`. */
  async request<T>(verb: string, args: object, what: string, name: string): Promise<T> {
    if (inCode()) throw inWorkflow(verb);
    return this.#host.reply<T>(verb, encodeArguments(args, what, name));
  }
}

/** Which runs are listed: those that match all of it. */
export interface RunFilter {
  kind?: string;
  status?: RunStatus[];
  version?: string;
  attributes?: Record<string, AttributeValue>;
}

interface SchedulePage {
  schedules: ScheduleDocument[];
  next?: string | null;
}

interface RunPage {
  runs: HeadDocument[];
  next: string | null;
}

/** The state of a run after it was executed on demand. */
export interface Driven<O> {
  state: "waiting" | "paused" | "ended";
  /** The result, if the run has completed. */
  output: O | undefined;
  /** Why it failed or was canceled. */
  failure: Failure | undefined;
}

interface DrivenDocument<O> {
  state: Driven<O>["state"];
  output: O | null;
  failure: FailureDocument | null;
}

/** A run or task, by its id. */
abstract class Handle {
  readonly id: string;
  readonly #onward: Onward;
  readonly #what: "run" | "task";

  /** @internal */
  constructor(onward: Onward, what: "run" | "task", id: string) {
    this.id = id;
    this.#onward = onward;
    this.#what = what;
  }

  /** @internal The engine or server that has it. */
  protected get onward(): Onward {
    return this.#onward;
  }

  /** @internal Makes a request about it; a value that is refused is `what`. */
  protected request<T>(verb: string, args: object = {}, what = "the request", name = verb): Promise<T> {
    return this.#onward.request<T>(verb, { [this.#what]: this.id, ...args }, what, name);
  }
}

/** A run. */
export class RunHandle<O = unknown> extends Handle {
  /** @internal */
  constructor(onward: Onward, id: string) {
    super(onward, "run", id);
  }

  /**
   * Waits for the result.
   *
   * @throws {RunFailed} with the failure, if the run failed, was canceled or terminated.
   */
  result(): Promise<O> {
    return this.request<O>("result");
  }

  /** Sends a signal. With an id, it arrives once, however often it is sent. */
  async signal<T>(name: SignalName<T>, ...[payload, options = {}]: Input<T, RequestOptions>): Promise<Receipt> {
    return this.request("signal", { value: payload ?? null, name: nameOf(name), ...options }, "the payload of signal", nameOf(name));
  }

  /** Sends a message: to a run that spawned children or is one, or to an agent. */
  message(value: unknown, options: RequestOptions = {}): Promise<Receipt> {
    return this.request("message", { value: value ?? null, ...options }, "a message to run", this.id);
  }

  /** Appends an entry to the conversation of an agent. */
  append(role: Role, content: unknown, options: RequestOptions = {}): Promise<Receipt> {
    return this.request("append", { content: content ?? null, role, ...options }, "an entry of run", this.id);
  }

  /** Reads the memory of the code. */
  query<T = unknown>(name: string, input?: unknown): Promise<T> {
    return this.request<T>("query", { input: input ?? null, name }, "the input of query", name);
  }

  /** Changes the memory of the code and waits for the answer. */
  update<T = unknown>(name: string, input?: unknown, options: RequestOptions = {}): Promise<T> {
    return this.request<T>("update", { input: input ?? null, name, ...options }, "the input of update", name);
  }

  /** Returns the run as it is now. */
  async view(): Promise<RunView> {
    return viewOf(await this.request<ViewDocument>("view"));
  }

  /** Returns whether the run waits, has ended, .. */
  async status(): Promise<RunStatus> {
    return (await this.view()).status;
  }

  /** Returns a value that the code has set with `ctx.state.set(..)`. */
  async state<T = unknown>(key: string): Promise<T | undefined> {
    return (await this.view()).state[key] as T | undefined;
  }

  /** Waits until the run has one of these states, or is closed. */
  async waitForStatus(...status: RunStatus[]): Promise<RunView> {
    return viewOf(await this.request<ViewDocument>("wait", { status }));
  }

  /** Waits until the code has set a state value (to `value`, if it is given), or the run is closed. */
  async waitForState(key: string, value?: unknown): Promise<RunView> {
    return viewOf(await this.request<ViewDocument>("wait", { state: { key, value } }, "state", key));
  }

  /** Asks the run to end: its code can clean up. */
  cancel(reason = ""): Promise<Receipt> {
    return this.request("cancel", { reason });
  }

  /** Ends the run at once. */
  terminate(reason = ""): Promise<Receipt> {
    return this.request("terminate", { reason });
  }

  pause(reason = ""): Promise<Receipt> {
    return this.request("pause", { reason });
  }

  resume(options: { budget?: Budget } = {}): Promise<Receipt> {
    return this.request("resume", options);
  }

  /** Continues a failed run from its failure. */
  async retry(options: RequestOptions & { reason?: string; includeOutcomeUnknown?: boolean } = {}): Promise<void> {
    const { includeOutcomeUnknown, ...others } = options;
    await this.request("retry", { ...others, include_outcome_unknown: includeOutcomeUnknown });
  }

  /** Starts a run that continues from a copy of the log. */
  async fork(options: ForkOptions = {}): Promise<RunHandle<O>> {
    const { id } = await this.request<{ id: string }>("fork", forkArguments(options));
    return new RunHandle<O>(this.onward, id);
  }

  /** Forks the run and ends it. */
  async reset(options: ForkOptions = {}): Promise<RunHandle<O>> {
    const { id } = await this.request<{ id: string }>("reset", forkArguments(options));
    return new RunHandle<O>(this.onward, id);
  }

  /** Returns the events of a generation; of the current one by default. */
  log(options: { generation?: number } = {}): Promise<LogRecord[]> {
    return this.request("log", options);
  }

  /** Returns a page of the conversation of an agent. */
  entries(options: { limit?: number; before?: string; leaf?: string } = {}): Promise<EntryPage> {
    return this.request("entries", options);
  }

  /** Iterates over the whole conversation, latest first. */
  async *conversation(): AsyncGenerator<Entry> {
    let page = await this.entries();
    yield* page.entries.reverse();
    while (page.before !== null) {
      page = await this.entries({ before: page.before });
      yield* page.entries.reverse();
    }
  }

  /** Iterates over what happens in the run, until it is closed. */
  watch(options: { from?: number; after?: { generation: number; index: number } } = {}): AsyncIterableIterator<LiveFrame> {
    return this.onward.stream("watch", { run: this.id, ...options });
  }

  /** Iterates over what tasks emit, until the run is closed. */
  stream(options: { offset?: string } = {}): AsyncIterableIterator<LiveFrame> {
    return this.onward.stream("stream", { run: this.id, ...options });
  }

  /** Iterates over the events of the log, also those that come later. */
  attach(options: { from?: number } = {}): AsyncIterableIterator<LogRecord> {
    return this.onward.stream("attach", { run: this.id, ...options });
  }

  /** Executes the run here until it waits, is paused or has ended, where runs are executed on demand (`onDemand`). */
  async drive(options: { signal?: SentSignal } = {}): Promise<Driven<O>> {
    return drivenOf(await this.request<DrivenDocument<O>>("drive", { signal: signalArgument(options.signal) }));
  }
}

/** A standalone task. */
export class TaskHandle<O = unknown> extends Handle {
  /** @internal */
  constructor(onward: Onward, id: string) {
    super(onward, "task", id);
  }

  /** Waits for the result. */
  result(): Promise<O> {
    return this.request<O>("task_result");
  }

  view(): Promise<TaskView> {
    return this.request<TaskView>("task_view");
  }

  cancel(reason = ""): Promise<Receipt> {
    return this.request("task_cancel", { reason });
  }
}

/** The items of a request that streams. */
class Items<T> implements AsyncIterableIterator<T> {
  readonly #host: Host;
  #request: number | undefined;
  readonly #items: T[] = [];
  #waiting: { resolve(result: IteratorResult<T>): void; reject(error: Error): void } | undefined;
  #end: { error?: Error } | undefined;

  constructor(host: Host, verb: string, args: string) {
    this.#host = host;
    this.#request = host.request(verb, args, {
      item: (value) => this.#item(value as T),
      reply: (ok, value) => this.#finish(ok ? {} : { error: OnwardError.of(value as ErrorDocument) }),
    });
  }

  next(): Promise<IteratorResult<T>> {
    if (this.#items.length > 0) return Promise.resolve({ done: false, value: this.#items.shift() as T });
    const end = this.#end;
    if (end === undefined) return new Promise((resolve, reject) => (this.#waiting = { resolve, reject }));
    this.#end = {};
    return end.error === undefined ? Promise.resolve({ done: true, value: undefined }) : Promise.reject(end.error);
  }

  return(): Promise<IteratorResult<T>> {
    if (this.#request !== undefined) this.#host.abandon(this.#request);
    this.#items.length = 0;
    this.#finish({});
    return Promise.resolve({ done: true, value: undefined });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  #item(value: T): void {
    const waiting = this.#waiting;
    this.#waiting = undefined;
    if (waiting === undefined) this.#items.push(value);
    else waiting.resolve({ done: false, value });
  }

  #finish(end: { error?: Error }): void {
    this.#request = undefined;
    const waiting = this.#waiting;
    this.#waiting = undefined;
    this.#end = waiting === undefined ? end : {};
    if (waiting === undefined) return;
    if (end.error === undefined) waiting.resolve({ done: true, value: undefined });
    else waiting.reject(end.error);
  }
}

function signalArgument(signal: SentSignal | undefined): object | undefined {
  return signal && { value: signal.payload ?? null, name: signal.name, id: signal.id };
}

function drivenOf<O>({ state, output, failure }: DrivenDocument<O>): Driven<O> {
  const hasCompleted = state === "ended" && failure === null;
  return { state, output: hasCompleted ? (output as O) : undefined, failure: failure === null ? undefined : Failure.of(failure) };
}

function decided({ feedback, decidedBy, id }: DecideOptions): Record<string, unknown> {
  return { feedback, decided_by: decidedBy, id };
}

function forkArguments({ dropSignals, restartChildren, includeOutcomeUnknown, ...others }: ForkOptions): object {
  return {
    ...others,
    drop_signals: dropSignals,
    restart_children: restartChildren,
    include_outcome_unknown: includeOutcomeUnknown,
  };
}

/** @internal Returns the settings of the bridge. */
export function settingsOf(store: string, options: ConnectOptions): { shutdown_timeout_ms: number | undefined; [name: string]: unknown } {
  const all = options.workflows ?? [];
  checkOption("workflows", all);
  checkOption("tasks", options.tasks ?? []);
  // The first of a kind is its current code; the others are the code of other versions.
  const others = all.filter((workflow, index) => all.slice(0, index).some((first) => isOtherVersion(first, workflow)));
  const kinds = all.filter((workflow) => !others.includes(workflow)).map((current) => ({
    kind: current.kind,
    agent: current.isAgent,
    version: current.options.version,
    previous: others
      .filter((other) => isOtherVersion(current, other))
      .flatMap(versionsOf)
      .concat(current.options.previous ?? []),
    record_inputs: current.options.recordInputs,
    internal: current.options.internal,
    defaults: { deadline_ms: optionalMs(current.options.deadline, "deadline") },
    input_schema: current.options.inputSchema,
    output_schema: current.options.outputSchema,
    signals: namedSchemas("signal", current.options.signals),
    updates: namedSchemas("update", current.options.updates),
  }));
  const tasks = (options.tasks ?? []).map(({ kind, options }) => ({
    kind,
    internal: options.internal,
    defaults: taskDefaults(options),
    input_schema: options.inputSchema,
    output_schema: options.outputSchema,
  }));
  return {
    store,
    key: options.key,
    namespace: options.namespace,
    root_certificate: options.rootCertificate,
    kinds,
    tasks,
    tools: options.tools?.map(toolArguments),
    agents: options.agents?.map(agentArguments),
    models: options.models,
    model_keys: options.modelKeys,
    queues: options.queues,
    on_demand: options.onDemand,
    threads: options.threads,
    tasks_max: options.tasksMax,
    runs_max: options.runsMax,
    cached_runs_max: options.cachedRunsMax,
    lease_ms: optionalMs(options.lease, "lease"),
    retention_ms: optionalMs(options.retention, "retention"),
    shutdown_timeout_ms: optionalMs(options.shutdownTimeout, "shutdownTimeout"),
    check_replay: options.checkReplay,
    middleware: (options.middleware?.length ?? 0) > 0,
  };
}

/** Returns whether these are the same kind with different versions. */
function isOtherVersion(one: AnyWorkflow, other: AnyWorkflow): boolean {
  return one.kind === other.kind && one.options.version !== other.options.version && other.options.version !== undefined;
}

/** Returns the versions of runs that this code continues. */
function versionsOf({ options }: AnyWorkflow): string[] {
  return [...(options.version === undefined ? [] : [options.version]), ...(options.previous ?? [])];
}

/** @internal Returns the functions of workflows and tasks, by kind. */
export function codeOf(options: WorkerOptions): Code {
  type Run = (ctx: Ctx, input: unknown) => unknown;
  type Execute = (input: unknown, task: TaskCtx) => unknown;
  const workflows = new Map<string, Run>();
  for (const workflow of options.workflows ?? []) {
    const keys = [workflow.kind, ...versionsOf(workflow).map((version) => versionKey(workflow.kind, version))];
    for (const key of keys) if (!workflows.has(key)) workflows.set(key, workflow.code as Run);
  }
  const tasks = new Map<string, Execute>((options.tasks ?? []).map(({ kind, code }) => [kind, code as Execute]));
  for (const { name, code } of options.tools ?? []) tasks.set(toolKey("", name), code);
  for (const { kind, options: { tools = [] } } of options.agents ?? []) {
    for (const { name, code } of tools) tasks.set(toolKey(kind, name), code);
  }
  return { workflows, tasks, context: (run) => (run.info.is_agent ? new AgentCtx(run) : new Ctx(run)), middlewares: options.middleware ?? [] };
}

/** Any other text is the name of a directory. */
function addressOf(url: string, schemes: string[]): string {
  if (schemes.some((scheme) => url.startsWith(`${scheme}//`))) return url;
  const hint = `use an address that begins with ${schemes.map((scheme) => `${scheme}//`).join(" or ")}`;
  throw new OnwardError("value_invalid", `\`${url}\` is no such address`, hint, 400);
}

function inWorkflow(verb: string): WorkflowMisuse {
  const instead = "use `ctx.child(..)`, `ctx.spawn(..)` or `ctx.sendSignal(..)`, or call it in `ctx.step(..)`";
  return new WorkflowMisuse(`\`${verb}\` is a request of a caller, which workflow code would repeat on replay: ${instead}`);
}
