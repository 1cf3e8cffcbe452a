/** Agents: runs whose code may depend on values that are not recorded, such as a prompt or a list of tools. */

import { Ctx, type Effect } from "./ctx.js";
import type { Entry } from "./documents.js";
import type { TaskCtx } from "./jobs.js";
import { encode, encodeArguments } from "./json.js";
import { nameOf, workflow, type Input, type Recorded, type types, type Workflow, type WorkflowName, type WorkflowOptions } from "./names.js";
import { memoArgument, optionalMs, retryArgument, type Budget, type Duration, type Memo, type Retry } from "./options.js";
import type { Run } from "./run.js";
import { jsonSchemaOf, validated, type Schema } from "./schema.js";

/** The role of an entry of a conversation: one of the usual ones, or another name. */
export type Role = "system" | "user" | "assistant" | "tool" | (string & {});

/** Settings of a tool. */
export interface ToolOptions<A> {
  /** What the tool does: the model reads it. */
  description: string;
  /** The arguments: a schema of zod, valibot or arktype, or a JSON schema. */
  input: Schema<A>;
  /** The JSON schema for the model, if the library of `input` cannot make one. */
  jsonSchema?: Record<string, unknown>;
  effect?: Effect;
  retry?: Retry;
  timeout?: Duration;
  /** A person decides each call. */
  needsApproval?: boolean;
  /** Not the key that started the run. */
  notByRequester?: boolean;
  resultBytesMax?: number;
}

/** A function that a model may call. */
export interface Tool {
  readonly name: string;
  readonly options: ToolOptions<unknown>;
  readonly code: (args: unknown, task: TaskCtx) => unknown;
}

/**
 * Defines a tool.
 *
 * @param code Receives the arguments of the model, checked. What it throws becomes a result that the model reads.
 */
export function tool<A = Record<string, unknown>>(name: string, options: ToolOptions<A>, code: (args: A, task: TaskCtx) => unknown): Tool {
  if (typeof code !== "function") throw new TypeError(`tool \`${name}\` needs a function`);
  if (!options.description) throw new TypeError(`tool \`${name}\` needs a description: the model reads it`);
  const { input } = options;
  const checked = async (args: unknown, task: TaskCtx): Promise<unknown> => code((await validated({ message: `the arguments of \`${name}\` do not fit` }, input, args)) as A, task);
  return { name, options: options as ToolOptions<unknown>, code: checked };
}

/** @internal Returns the settings of a tool for the bridge. */
export function toolArguments({ name, options }: Tool): Record<string, unknown> {
  const { effect, retry, timeout, needsApproval, notByRequester, resultBytesMax } = options;
  return {
    ...shownTool({ name, options }),
    class: effect,
    retry: retryArgument(retry),
    timeout_ms: optionalMs(timeout, "timeout"),
    needs_approval: needsApproval,
    not_by_requester: notByRequester,
    result_bytes_max: resultBytesMax,
  };
}

/** Returns what a model sees of a tool. */
function shownTool({ name, options }: Pick<Tool, "name" | "options">): Record<string, unknown> {
  return { name, description: options.description, input: JSON.stringify(jsonSchemaOf(`tool \`${name}\``, options.input, options.jsonSchema)) };
}

/** A part of a message. */
export type Block =
  | { type: "text"; text: string }
  | ({ type: "tool_call" } & ToolCall)
  | { type: "tool_result"; call_id: string; blocks: Block[]; is_error?: boolean }
  | { type: string; [field: string]: unknown };

/** A tool call of a model. */
export interface ToolCall {
  id: string;
  name: string;
  /** The text that the model wrote. */
  arguments: string;
}

/** The answer of a model; it can be appended to the conversation. */
export class ModelReply {
  readonly blocks: readonly Block[];
  readonly stop: string | undefined;
  readonly usage: Record<string, unknown> | undefined;
  readonly model: string;
  readonly #document: Record<string, unknown>;

  /** @internal */
  constructor(document: unknown) {
    this.#document = document as Record<string, unknown>;
    this.blocks = this.#document["blocks"] as Block[];
    this.stop = typeof this.#document["stop"] === "string" ? this.#document["stop"] : undefined;
    this.usage = this.#document["usage"] as Record<string, unknown> | undefined;
    this.model = (this.#document["model"] as string | undefined) ?? "";
  }

  get text(): string {
    return this.blocks.map((block) => (block.type === "text" ? (block["text"] as string) : "")).join("");
  }

  /** The tool calls of the answer; pass each to `ctx.tool(..)`. */
  get calls(): ToolCall[] {
    return this.blocks.filter((block) => block.type === "tool_call") as unknown as ToolCall[];
  }

  toJSON(): unknown {
    return this.#document;
  }
}

/** The result of a tool call; it can be appended to the conversation. */
export interface ToolOutcome {
  blocks: Block[];
}

/** Options of {@link AgentCtx.llm}. */
export interface ModelOptions {
  system?: string;
  tools?: readonly Tool[];
  /** `auto`, `any`, `none`, or the name of a tool. */
  toolChoice?: "auto" | "any" | "none" | { tool: string };
  maxTokens?: number;
  temperature?: number;
  /** A prompt after the conversation that is not part of it. */
  ask?: string;
  /** Sends the conversation up to this entry. */
  at?: string;
  /** Cuts longer texts in the middle. */
  truncateAt?: number;
  /** Uses the answer to an equal call of another run. */
  memo?: Memo;
  /** Further fields of the request to the provider. */
  extra?: Record<string, unknown>;
}

/** What a turn ends with. */
export type Turn<S, T> = { readonly next: S; readonly waitFor?: string } | { readonly done: T };

/** The context of an agent: that of a workflow, with a conversation, models, tools and turns. */
export class AgentCtx extends Ctx {
  /**
   * Repeats a turn until it is done. Every turn ends in a checkpoint, after which the function starts again.
   *
   * @param turn Returns `{ next: state }`, with `waitFor` to begin with the next signal of that name, or `{ done: value }`.
   */
  async turns<S, T>(state: S, turn: (state: S) => Promise<Turn<S, T>>): Promise<T> {
    const begun = (await this.#run.wait("turn_begin", encodeArguments({ state: state ?? null }, "the state of a turn"))) as S;
    const outcome = await turn(begun);
    if ("done" in outcome) return outcome.done;
    return this.#leave("turn_end", { state: outcome.next ?? null, signal: outcome.waitFor }, "the state of a turn");
  }

  /** Ends the turn with a state and starts the function again. */
  checkpoint(state: unknown): Promise<never> {
    return this.#leave("checkpoint", { state: state ?? null }, "the state of a turn");
  }

  /** Returns the state of the last checkpoint. */
  checkpointed<S = unknown>(): S | undefined {
    return (this.#run.value("checkpointed", "{}") as { value: S } | null)?.value;
  }

  /** Appends an entry to the conversation and returns its id; with a key, only once. */
  append(role: Role, content: unknown, options: { key?: string } = {}): string {
    const args = encodeArguments({ role, content, key: options.key }, "an entry of the conversation");
    return (this.#run.value("append", args) as { entry: string }).entry;
  }

  /** Returns the last summary and the entries after it, or the last entries. */
  messages(options: { last?: number } = {}): Promise<Entry[]> {
    return this.#run.wait("messages", encodeArguments(options, "the arguments of `messages`")) as Promise<Entry[]>;
  }

  entryCount(): number {
    return this.#run.value("entry_count", "{}") as number;
  }

  /** Returns the id of the last entry. */
  leaf(): string | undefined {
    return (this.#run.value("leaf", "{}") as string | null) ?? undefined;
  }

  /** Takes in the entries that came from outside, and returns their ids. */
  takeIn(): string[] {
    return this.#run.value("take_in", "{}") as string[];
  }

  /** Replaces the entries up to `covers` by a summary, for models. */
  compact(text: string, covers: string): string {
    return (this.#run.value("compact", encodeArguments({ text, covers }, "a summary")) as { entry: string }).entry;
  }

  /** Continues the conversation from an earlier entry. */
  async branch(entry: string): Promise<void> {
    await this.#run.wait("branch", encodeArguments({ entry }, "the id of an entry"));
  }

  /** Ends the turn; another agent continues the conversation as the same run. */
  handoff<I>(to: WorkflowName<I, unknown>, ...[input]: Input<I, never>): Promise<never> {
    return this.#leave("handoff", { kind: nameOf(to), input: input ?? null }, "the input of agent", nameOf(to));
  }

  /** Sends the conversation to a model. Its text streams to readers while it arrives. */
  llm(model: string, options: ModelOptions = {}): Promise<ModelReply> {
    const { system, tools, toolChoice, maxTokens, temperature, ask, at, truncateAt, memo, extra } = options;
    const args = {
      model,
      system,
      tools: tools?.map(shownTool),
      tool_choice: toolChoice,
      max_tokens: maxTokens,
      temperature_milli: temperature === undefined ? undefined : Math.round(temperature * 1000),
      ask,
      at,
      truncate_at: truncateAt,
      memo: memoArgument(memo),
      extra: extra && Object.fromEntries(Object.entries(extra).map(([field, value]) => [field, encode(value, "the field", field)])),
    };
    const reply = (document: unknown): ModelReply => new ModelReply(document);
    return this.#run.wait("llm", encodeArguments(args, "the request to model", model), reply) as Promise<ModelReply>;
  }

  /** Executes a tool call of a model. A failure becomes a result that the model reads. */
  tool(call: ToolCall): Promise<ToolOutcome> {
    const { id, name, arguments: args } = call;
    return this.#run.wait("tool", encodeArguments({ call: { id, name, arguments: args } }, "a call of tool", name)) as Promise<ToolOutcome>;
  }

  #leave(verb: string, args: object, what: string, name = ""): Promise<never> {
    this.#run.open(verb, encodeArguments(args, what, name));
    return this.#run.stop();
  }

  get #run(): Run {
    return Ctx.runOf(this);
  }
}

/** Defines an agent with code of its own; it is registered with the workflows. */
export function agent<I, O>(
  kind: string,
  code: (ctx: AgentCtx, input: I) => O | PromiseLike<O>,
  options: WorkflowOptions = {},
): Workflow<I, Recorded<Awaited<O>>> {
  const defined = workflow(kind, code as (ctx: Ctx, input: I) => O | PromiseLike<O>, options);
  return Object.assign(defined, { isAgent: true as const });
}

/** Settings of the ready-made agent. */
export interface AgentOptions {
  model: string;
  system?: string;
  tools?: readonly Tool[];
  /** Other agents that it calls as tools. */
  agentTools?: { name: string; description: string; kind: string }[];
  handoffTo?: string[];
  /** Waits for the next message instead of ending. */
  converse?: boolean;
  maxTurns?: number;
  maxToolCalls?: number;
  maxHandoffs?: number;
  maxDepth?: number;
  /** Replaces old entries by a summary once the model has read this many tokens. */
  compactAt?: number;
  budget?: Budget;
  stopAtBudget?: boolean;
}

/** What a ready-made agent ends with. */
export interface AgentOutcome {
  /** Why it ended: `done`, `max_turns`, `refused`, .. */
  stop: string;
  /** The last answer of the model. */
  text: string;
  turns: number;
}

/** The ready-made loop: calls the model and its tools until the model answers without tool calls. */
export class Agent {
  readonly kind: string;
  readonly options: AgentOptions;
  declare readonly [types]?: (input: string) => AgentOutcome;

  constructor(kind: string, options: AgentOptions) {
    this.kind = kind;
    this.options = options;
  }
}

/** @internal Returns the settings of a ready-made agent for the bridge. */
export function agentArguments({ kind, options }: Agent): Record<string, unknown> {
  return {
    name: kind,
    model: options.model,
    system: options.system,
    tools: options.tools?.map(toolArguments),
    agent_tools: options.agentTools,
    handoff_to: options.handoffTo,
    converse: options.converse,
    max_turns: options.maxTurns,
    max_tool_calls: options.maxToolCalls,
    max_handoffs: options.maxHandoffs,
    max_depth: options.maxDepth,
    compact_at: options.compactAt,
    budget: options.budget,
    stop_at_budget: options.stopAtBudget,
  };
}
