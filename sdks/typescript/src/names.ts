/** Definitions of workflows, tasks and signals: a name with its types. */

import type { Ctx } from "./ctx.js";
import type { TaskCtx } from "./jobs.js";

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
  /** Hides the kind from callers without the scope `operate`. */
  internal?: boolean;
  /** JSON schemas that callers see and that inputs are checked with. */
  inputSchema?: object;
  outputSchema?: object;
}

/** Settings of a task kind. */
export interface TaskKindOptions {
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

/** The arguments after the name: the input may be left out where the code takes none. */
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
export function workflow<I, O>(kind: string, code: WorkflowFunction<I, O>, options: WorkflowOptions = {}): Workflow<I, Awaited<O>> {
  checkDefinition("workflow", kind, code);
  return { kind, code, options } as Workflow<I, Awaited<O>>;
}

/** Defines a task kind: work on a queue, executed by any worker that has its function. */
export function task<I, O>(kind: string, code: TaskFunction<I, O>, options: TaskKindOptions = {}): Task<I, Awaited<O>> {
  checkDefinition("task", kind, code);
  return { kind, code, options } as Task<I, Awaited<O>>;
}

/** Names a signal with the type of its payload. */
export function signal<T>(name: string): Signal<T> {
  return { name };
}

function checkDefinition(what: string, kind: string, code: unknown): void {
  if (typeof kind !== "string" || kind === "") throw new TypeError(`the name of a ${what} is not text`);
  if (typeof code !== "function") throw new TypeError(`${what} \`${kind}\` needs a function`);
}

/** Returns the kind of a workflow or task, or the name of a signal. */
export function nameOf(named: string | { readonly kind: string } | { readonly name: string }): string {
  if (typeof named === "string") return named;
  return "kind" in named ? named.kind : named.name;
}
