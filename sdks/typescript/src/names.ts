/** Definitions of workflows, tasks and signals: a name with its types. */

import type { Ctx } from "./ctx.js";
import type { TaskCtx } from "./jobs.js";
import { jsonSchemaOf, type Schema } from "./schema.js";
import { optionalMs, retryArgument, type Duration, type Retry } from "./options.js";

/** Settings of a workflow. */
export interface WorkflowOptions {
  /**
   * The version of the code; runs stay with the version that started them. Of several workflows with the same kind, the first
   * is the current one, and the others continue the runs of their versions.
   */
  version?: string;
  /** Further versions whose runs this code can continue. */
  previous?: string[];
  /** Records the inputs of steps. */
  recordInputs?: boolean;
  /** Cancels runs that last longer, unless their start sets another deadline. */
  deadline?: Duration;
  /** Hides the kind from callers without the scope `operate`. */
  internal?: boolean;
  /** JSON schemas that callers see and that inputs are checked with. */
  inputSchema?: object;
  /** An output that does not fit fails the run with `output_invalid`. */
  outputSchema?: object;
  /** Schemas of signals by name; a signal of a caller that does not fit is refused with `signal_invalid`. */
  signals?: Record<string, Schema<unknown>>;
  /** Schemas of updates by name; an update that does not fit is refused with `update_invalid`. */
  updates?: Record<string, Schema<unknown>>;
  /** Schemas of the answers of updates by name; an answer that does not fit fails the update with `output_invalid`. */
  updateAnswers?: Record<string, Schema<unknown>>;
}

/** Options of a task kind that a call does not set itself. */
export interface TaskDefaults {
  queue?: string;
  /** Higher first. */
  priority?: number;
  retry?: Retry;
  /** The time that one attempt may take. */
  timeout?: Duration;
  /** The time for all attempts and the delays between them. */
  totalTimeout?: Duration;
  /** The time until the first attempt starts. */
  queuedTimeout?: Duration;
  /** An attempt without a heartbeat for this long counts as lost. */
  heartbeat?: Duration;
}

/** Settings of a task kind, and defaults of its calls: `{ retry: 5 }`. */
export interface TaskKindOptions extends TaskDefaults {
  internal?: boolean;
  inputSchema?: object;
  outputSchema?: object;
}

export type WorkflowFunction<I, O> = (ctx: Ctx, input: I) => O | PromiseLike<O>;
export type TaskFunction<I, O> = (input: I, task: TaskCtx) => O | PromiseLike<O>;

/** Names the types of a definition; no value has it. */
export declare const types: unique symbol;

/** A workflow: its kind and its code. */
export interface Workflow<I, O> {
  readonly kind: string;
  readonly options: WorkflowOptions;
  readonly code: WorkflowFunction<I, O>;
  /** Its code may depend on values that are not recorded: see `agent`. */
  readonly isAgent?: boolean;
  readonly [types]?: (input: I) => O;
}

/** A task kind and its function. */
export interface Task<I, O> {
  readonly kind: string;
  readonly options: TaskKindOptions;
  readonly code: TaskFunction<I, O>;
  readonly [types]?: (input: I) => O;
}

/** The name of a signal with the type of its payload. */
export interface Signal<T> {
  readonly name: string;
  readonly [types]?: (payload: T) => void;
}

/** A workflow of another process or language: its kind, with the types of input and output. */
export type WorkflowName<I, O> = string | Pick<Workflow<I, O>, "kind" | typeof types>;
export type TaskName<I, O> = string | Pick<Task<I, O>, "kind" | typeof types>;
export type SignalName<T> = string | Signal<T>;

/** A value as the log returns it: `undefined` is recorded as `null`. */
export type Recorded<T> = T extends undefined ? null : T;

/** The arguments after the name: the input may be left out where the code takes none, or a default. */
export type Input<I, Options> = unknown extends I
  ? [input?: I, options?: Options]
  : undefined extends I
    ? [input?: I, options?: Options]
    : [input: I, options?: Options];

/**
 * Defines a workflow.
 *
 * @param kind The name under which its runs are stored: it must stay the same.
 * @param code A function that is replayed after a crash: everything it does outside of itself is done through `ctx`.
 */
export function workflow<I, O>(kind: string, code: WorkflowFunction<I, O>, options: WorkflowOptions = {}): Workflow<I, Recorded<Awaited<O>>> {
  return define("workflow", kind, code, options) as Workflow<I, Recorded<Awaited<O>>>;
}

/** Defines a task kind: work on a queue, executed by any worker that has its function. */
export function task<I, O>(kind: string, code: TaskFunction<I, O>, options: TaskKindOptions = {}): Task<I, Recorded<Awaited<O>>> {
  return define("task", kind, code, options) as Task<I, Recorded<Awaited<O>>>;
}

/** Names a signal with the type of its payload. */
export function signal<T>(name: string): Signal<T> {
  return { name };
}

/** What each definition defines. Their types do not differ where code has no parameters. */
const defined = new WeakMap<object, "workflow" | "task">();

function define(what: "workflow" | "task", kind: string, code: unknown, options: object): object {
  if (typeof kind !== "string" || kind === "") throw new TypeError(`the name of a ${what} is not text`);
  if (typeof code !== "function") throw new TypeError(`${what} \`${kind}\` needs a function`);
  const definition = { kind, code, options };
  defined.set(definition, what);
  return definition;
}

/** Checks the definitions that were passed in an option. */
export function checkOption(option: "workflows" | "tasks", definitions: readonly unknown[]): void {
  if (!Array.isArray(definitions)) throw new TypeError(`the option \`${option}\` is not an array`);
  for (const definition of definitions as unknown[]) {
    if (typeof definition !== "object" || definition === null || !("kind" in definition && "code" in definition)) {
      throw new TypeError(`the option \`${option}\` has an entry that is no definition: use \`${option.slice(0, -1)}(..)\``);
    }
    const what = defined.get(definition);
    if (what !== undefined && `${what}s` !== option) {
      throw new TypeError(`\`${String(definition.kind)}\` is a ${what}: pass it in the option \`${what}s\``);
    }
  }
}

/**
 * Returns the value for a parameter of code. JSON has no `undefined`, so an argument that was left out arrives as `null`; a
 * parameter with a default receives the default.
 *
 * @param required The number of parameters without a default that this one is the last of.
 */
export function argumentOf(code: { readonly length: number }, required: number, value: unknown): unknown {
  return value === null && code.length < required ? undefined : value;
}

/** @internal Returns the JSON schemas of signals, updates or answers by name. */
export function namedSchemas(what: string, schemas: Record<string, Schema<unknown>> = {}): Record<string, unknown> {
  return Object.fromEntries(Object.entries(schemas).map(([name, schema]) => [name, jsonSchemaOf(`${what} \`${name}\``, schema)]));
}

/** @internal Returns the options of a task that its kind may have defaults for. */
export function taskDefaults(options: TaskDefaults): Record<string, unknown> {
  return {
    queue: options.queue,
    priority: options.priority,
    retry: retryArgument(options.retry),
    timeout_ms: optionalMs(options.timeout, "timeout"),
    total_timeout_ms: optionalMs(options.totalTimeout, "totalTimeout"),
    queued_timeout_ms: optionalMs(options.queuedTimeout, "queuedTimeout"),
    heartbeat_ms: optionalMs(options.heartbeat, "heartbeat"),
  };
}

/** Returns the kind of a workflow or task, or the name of a signal. */
export function nameOf(named: string | { readonly kind: string } | { readonly name: string }): string {
  if (typeof named === "string") return named;
  const name: unknown = typeof named === "object" && named !== null ? ("kind" in named ? named.kind : named.name) : undefined;
  if (typeof name === "string") return name;
  throw new TypeError(`expected a definition of this package or its name, got ${named === null ? "null" : typeof named}`);
}
