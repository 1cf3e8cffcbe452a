/**
 * Durable runs of the AI SDK (`ai`): in {@link durable}, calls of models and tools are recorded steps of the run.
 *
 * ```ts
 * const model = durableModel(provider("gpt-5"));
 * const tools = durableTools({ weather });
 *
 * const answer = workflow("answer", (ctx, question: string) =>
 *   durable(ctx, async () => (await generateText({ model, tools, prompt: question, stopWhen: stepCountIs(10) })).text),
 * );
 * ```
 *
 * Models and tools that are made durable do what they did before outside of {@link durable}.
 *
 * @module
 */

import { AsyncLocalStorage } from "node:async_hooks";
import type { Ctx } from "./ctx.js";
import { Failure, OnwardError, isError } from "./errors.js";
import { inCode, setStandIn } from "./guard.js";
import type { StepCtx } from "./jobs.js";
import type { Duration, Retry } from "./options.js";

/** Options of {@link durable}. */
export interface DurableOptions {
  /** Attempts of a model call; 3 by default. The `maxRetries` of the AI SDK has no effect. */
  modelRetry?: Retry;
  /** The time that one attempt of a model call may take. */
  modelTimeout?: Duration;
  /** Attempts of a tool call; 1 by default. */
  toolRetry?: Retry;
  /** The time that one attempt of a tool call may take. */
  toolTimeout?: Duration;
  /** The name under which watchers of the run receive the parts of an answer while it streams; `model` by default. */
  emit?: string;
}

/** What this module uses of a language model of the AI SDK, of the specifications `v2` and `v3`. */
interface Model {
  readonly specificationVersion: string;
  readonly provider: string;
  readonly modelId: string;
  readonly supportedUrls: unknown;
  doGenerate(options: never): PromiseLike<object>;
  doStream(options: never): PromiseLike<{ stream: ReadableStream }>;
}

type CallOptions = { abortSignal?: AbortSignal };
type Generate = (options: CallOptions) => PromiseLike<Record<string, unknown>>;
type Stream = (options: CallOptions) => PromiseLike<{ stream: ReadableStream<Part> }>;
type Part = { type: string; delta?: string; [field: string]: unknown };
type Execute = (input: unknown, options: CallOptions) => unknown;

/** The run in whose code the AI SDK runs. */
interface Scope {
  ctx: Ctx;
  options: DurableOptions;
  now(): number;
  random(): number;
}

const scopes = new AsyncLocalStorage<Scope>();
setStandIn(() => scopes.getStore());

/**
 * Calls functions of the AI SDK in workflow code. Clocks and random numbers that they read are those of the run.
 *
 * Await everything inside of `code`, also streams: what is read after it has ended is refused.
 */
export function durable<T>(ctx: Ctx, code: () => T, options: DurableOptions = {}): T {
  const random = generator(ctx.uuid());
  return scopes.run({ ctx, options, now: () => ctx.now().getTime(), random }, code);
}

/** Returns a model whose calls are steps in {@link durable}. */
export function durableModel<M extends Model>(model: M): M {
  if (typeof model !== "object" || model === null || typeof model.doGenerate !== "function") {
    throw new TypeError("durableModel(..) needs the model of a provider, such as `openai(\"gpt-5\")`, not its name");
  }
  const name = `model ${model.modelId}`;
  const doGenerate = model.doGenerate.bind(model) as unknown as Generate;
  const doStream = model.doStream.bind(model) as unknown as Stream;
  const wrapped = {
    specificationVersion: model.specificationVersion,
    provider: model.provider,
    modelId: model.modelId,
    get supportedUrls() {
      return model.supportedUrls;
    },
    async doGenerate(options: CallOptions): Promise<object> {
      const scope = current();
      if (scope === undefined) return doGenerate(options);
      const call = async (step: StepCtx): Promise<unknown> => {
        const { request, response, ...result } = await doGenerate(withSignal(options, step));
        return plain({ ...result, response: withoutBody(response) });
      };
      return revived(await modelStep(scope, name, call)) as object;
    },
    async doStream(options: CallOptions): Promise<object> {
      const scope = current();
      if (scope === undefined) return doStream(options);
      const call = async (step: StepCtx): Promise<unknown> => collect(scope, (await doStream(withSignal(options, step))).stream);
      return { stream: streamOf(revived(await modelStep(scope, name, call)) as Part[]) };
    },
  };
  return wrapped as unknown as M;
}

/** Returns tools whose functions run in steps in {@link durable}. A tool that uses `ctx` must not be among them. */
export function durableTools<T extends object>(tools: T): T {
  const wrapped: [string, unknown][] = Object.entries(tools).map(([name, tool]) => {
    const execute = (tool as { execute?: Execute }).execute;
    if (execute === undefined) return [name, tool];
    const durably: Execute = (input, options) => {
      const scope = current();
      if (scope === undefined) return execute.call(tool, input, options);
      const { toolRetry, toolTimeout } = scope.options;
      const call = async (step: StepCtx): Promise<unknown> => plain(await last(execute.call(tool, input, withSignal(options, step))));
      return scope.ctx.step(`tool ${name}`, call, defined({ retry: toolRetry, timeout: toolTimeout }));
    };
    return [name, { ...tool, execute: durably }];
  });
  return Object.fromEntries(wrapped) as T;
}

/** Returns the scope, in the code of its workflow. Functions of steps inherit it, and call models directly. */
function current(): Scope | undefined {
  const scope = scopes.getStore();
  if (scope === undefined && inCode()) {
    const hint = "call it in `durable(ctx, () => ..)`";
    throw new OnwardError("context_misused", "a model or tool of the AI SDK was called in workflow code outside of `durable`", hint, 400);
  }
  return inCode() ? scope : undefined;
}

function modelStep(scope: Scope, name: string, call: (step: StepCtx) => Promise<unknown>): Promise<unknown> {
  const { modelRetry = 3, modelTimeout } = scope.options;
  const attempt = async (step: StepCtx): Promise<unknown> => {
    try {
      return await call(step);
    } catch (error) {
      throw requestFailure(error);
    }
  };
  return scope.ctx.step(name, attempt, defined({ retry: modelRetry, timeout: modelTimeout }));
}

/** Returns an error of a request with what is known of its response. */
function requestFailure(error: unknown): unknown {
  if (!isError(error)) return error;
  const { isRetryable, statusCode, responseHeaders } = error as Error & {
    isRetryable?: unknown;
    statusCode?: unknown;
    responseHeaders?: Record<string, string>;
  };
  if (typeof isRetryable !== "boolean") return error;
  const seconds = Number(responseHeaders?.["retry-after"] ?? Number.NaN);
  return new Failure(`${error.name}: ${error.message}`, {
    retryable: isRetryable,
    data: { status: statusCode ?? null },
    ...(Number.isFinite(seconds) ? { retryAfterMs: seconds * 1000 } : {}),
  });
}

function withSignal<O extends CallOptions>(options: O, step: StepCtx): O {
  const signals = options.abortSignal === undefined ? [step.signal] : [options.abortSignal, step.signal];
  return { ...options, abortSignal: AbortSignal.any(signals) };
}

// ---- streams

/** Reads a stream to its end, sends its parts to watchers, and returns them with adjacent pieces of text merged. */
async function collect(scope: Scope, stream: ReadableStream<Part>): Promise<unknown> {
  const parts: Part[] = [];
  for await (const part of stream as unknown as AsyncIterable<Part>) {
    if (part.type === "error") throw part["error"];
    if (part.type === "raw") continue;
    send(scope, part);
    const before = parts.at(-1);
    const isDelta = typeof part["delta"] === "string";
    if (isDelta && before?.type === part.type && before["id"] === part["id"]) before["delta"] += part["delta"] as string;
    else parts.push({ ...part });
  }
  return plain(parts);
}

/** The values that are sent for the parts of a stream, as the streams of agents name them. */
const SENT: Record<string, (part: Part) => object> = {
  "text-delta": (part) => ({ type: "text", text: part["delta"] }),
  "reasoning-delta": (part) => ({ type: "reasoning", text: part["delta"] }),
  "tool-input-start": (part) => ({ type: "tool_call_begin", id: part["id"], name: part["toolName"] }),
  "tool-input-delta": (part) => ({ type: "tool_call_arguments", id: part["id"], text: part["delta"] }),
};

function send(scope: Scope, part: Part): void {
  const value = SENT[part.type]?.(part);
  if (value === undefined) return;
  try {
    scope.ctx.emit(scope.options.emit ?? "model", value);
  } catch {
    // The run may have been closed; the answer is not lost, because the step runs again elsewhere.
  }
}

function streamOf(parts: Part[]): ReadableStream<Part> {
  return new ReadableStream({
    start(controller) {
      for (const part of parts) controller.enqueue(part);
      controller.close();
    },
  });
}

/** Returns what a tool returned, or the last of what it yielded. */
async function last(output: unknown): Promise<unknown> {
  const value = await output;
  if (typeof value !== "object" || value === null || !(Symbol.asyncIterator in value)) return value;
  let found: unknown;
  for await (const item of value as AsyncIterable<unknown>) found = item;
  return found;
}

// ---- values

/** Returns a value as JSON has it: dates become ISO 8601 texts, bytes base64. */
function plain(value: unknown): unknown {
  if (value instanceof Date) return value.toISOString();
  if (value instanceof Uint8Array) return Buffer.from(value).toString("base64");
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== "object" || value === null) return value;
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, plain(item)]));
}

/** Returns what a step of a model recorded, with its time stamps as dates again. */
function revived(recorded: unknown): unknown {
  const items = Array.isArray(recorded) ? (recorded as Part[]) : [(recorded as { response?: Part }).response];
  for (const item of items) {
    if (typeof item?.["timestamp"] === "string") item["timestamp"] = new Date(item["timestamp"]);
  }
  return recorded;
}

/** Requests and responses as they were sent are for debugging, and large. */
function withoutBody(response: unknown): unknown {
  if (typeof response !== "object" || response === null) return response;
  const { body, ...rest } = response as Record<string, unknown>;
  return rest;
}

/** Returns options without those that are not given. */
function defined<O extends object>(options: O): { [K in keyof O]?: Exclude<O[K], undefined> } {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as ReturnType<typeof defined<O>>;
}

/** Returns random numbers from a seed (sfc32). They do not shift those of `ctx.random()`. */
function generator(seed: string): () => number {
  const bytes = Buffer.from(seed.replaceAll("-", ""), "hex");
  let [a, b, c, d] = [bytes.readUInt32LE(0), bytes.readUInt32LE(4), bytes.readUInt32LE(8), bytes.readUInt32LE(12)];
  return () => {
    const sum = (a + b + d) | 0;
    d = (d + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = ((c << 21) | (c >>> 11)) + sum | 0;
    return (sum >>> 0) / 2 ** 32;
  };
}
