/**
 * @internal The loop of rounds. A round takes a batch of work and plays one activation of each run in it.
 *
 * It has three parts, each a macrotask of its own, because Node.js runs all microtasks between them:
 *
 * 1. The answers are delivered. In the microtasks that follow, only workflow code runs, of all runs in the batch, each to
 *    quiescence; runs are independent, so their order does not matter. `guard` refuses clocks and timers meanwhile.
 * 2. The functions of steps and tasks start, and callers get their replies.
 * 3. All activations are handed back in one call, with the results of steps that have ended by then.
 */

// The guard and fake timers of tests replace the global.
import { setImmediate } from "node:timers";
import type { Ctx } from "./ctx.js";
import { Failure, OnwardError, type ErrorDocument, type FailureDocument } from "./errors.js";
import { enterCode, leaveCode } from "./guard.js";
import { Jobs, type TaskCtx, type TaskInfo } from "./jobs.js";
import { encodeArguments } from "./json.js";
import { attemptsOf, chain, runsOf, type AttemptCall, type Middleware, type RunCall } from "./middleware.js";
import { argumentOf } from "./names.js";
import { native, type NativeBridge } from "./native.js";
import { Run, type RunInfo, type StepStart } from "./run.js";

/** The most pieces of work of one round. */
const BATCH_MAX = 1024;

/** A piece of work, as `onward-node/src/batch.rs` writes it. */
type Work =
  | [type: 0, run: number, info: RunInfo, input: unknown, now: number]
  | [type: 1, run: number, call: number, ok: 0 | 1, value: unknown, now: number]
  | [type: 2, run: number, update: string, name: string, input: unknown, now: number]
  | Later;

/** Work that waits until no workflow code runs. */
type Later =
  | Attempt
  | [type: 4, job: number, kind: string, input: unknown, info: TaskInfo]
  | [type: 5, job: number]
  | [type: 6, query: number, run: number, name: string, input: unknown]
  | [type: 7, run: number]
  | [type: 8, request: number, ok: 0 | 1, value: unknown]
  | [type: 9, request: number, value: unknown]
  | [type: 10];

type Attempt =
  [type: 3, job: number, run: number, isUndo: 0 | 1, number: number, name: string, attempt: number, key: string, trace: string | null];

/** The code that a host can run. */
export interface Code {
  /** By kind, and by {@link versionKey}. */
  workflows: ReadonlyMap<string, (ctx: Ctx, input: unknown) => unknown>;
  /** By kind, and tools by {@link toolKey}. */
  tasks: ReadonlyMap<string, (input: unknown, task: TaskCtx) => unknown>;
  context(run: Run): Ctx;
  /** The first one is the outermost. */
  middlewares: readonly Middleware[];
}

/** Returns the key of a tool among the tasks; the agent is empty for the tools of all code. */
export function toolKey(agent: string, tool: string): string {
  return `${agent}\0${tool}`;
}

/** Returns the key of the code of a version among the workflows. */
export function versionKey(kind: string, version: string): string {
  return `${kind}\0${version}`;
}

/** What waits for the reply of a request. */
export interface Requester {
  item?(value: unknown): void;
  /** Takes the value, or the document of an error. */
  reply(ok: boolean, value: unknown): void;
}

export class Host {
  readonly #code: Code;
  #native!: NativeBridge;
  #jobs!: Jobs;
  readonly #runs = new Map<number, Run>();
  readonly #requests = new Map<number, Requester>();
  /** Runs whose activation was delivered and is not handed back yet. */
  #played: Run[] = [];
  #later: Later[] = [];
  /** Steps that were called in this round. */
  readonly #started: StepStart[] = [];
  #isRound = false;
  #isInCode = false;
  #isFull = false;
  #onEnded: (() => void) | undefined;

  private constructor(code: Code) {
    this.#code = code;
  }

  /** Starts a bridge. */
  static async start(settings: string, code: Code): Promise<Host> {
    const host = new Host(code);
    try {
      // Wakes that come before the bridge is here are not lost: the first round is below.
      host.#native = await native().start(settings, () => host.#wake());
    } catch (error) {
      throw OnwardError.from(error);
    }
    host.#jobs = new Jobs(host.#native, attemptsOf(code.middlewares));
    host.#wake();
    return host;
  }

  /** Makes a request and returns its number. */
  request(verb: string, args: string, requester: Requester): number {
    let request: number;
    try {
      request = this.#native.request(verb, args);
    } catch (error) {
      throw OnwardError.from(error);
    }
    this.#requests.set(request, requester);
    return request;
  }

  /** Makes a request and returns its reply. */
  async reply<T>(verb: string, args: string): Promise<T> {
    const [ok, value] = await new Promise<[boolean, unknown]>((replied) => {
      this.request(verb, args, { reply: (ok, value) => replied([ok, value]) });
    });
    // Made here, its stack names those who wait.
    if (!ok) throw OnwardError.of(value as ErrorDocument);
    return value as T;
  }

  /** Forgets a request: nothing of it is delivered any more. */
  abandon(request: number): void {
    if (this.#requests.delete(request)) this.#native.abandon(request);
  }

  /** Ends everything within a time; returns when nothing is left. */
  close(timeoutMs: number): Promise<void> {
    return new Promise((ended) => {
      this.#onEnded = ended;
      this.#native.shutDown(timeoutMs);
    });
  }

  stats(): number[] {
    return this.#native.stats();
  }

  #wake(): void {
    if (this.#isRound || this.#native === undefined) return;
    this.#isRound = true;
    // All in one phase of the event loop: no I/O in between.
    setImmediate(this.#deliver);
    setImmediate(this.#start);
    setImmediate(this.#handBack);
  }

  /** Delivers the answers of a batch. */
  readonly #deliver = (): void => {
    const batch = JSON.parse(this.#native.take(BATCH_MAX)) as Work[];
    this.#isFull = batch.length === BATCH_MAX;
    for (const work of batch) {
      if (work[0] > 2) {
        this.#later.push(work as Later);
        continue;
      }
      if (!this.#isInCode) {
        this.#isInCode = true;
        enterCode();
      }
      this.#play(work as Exclude<Work, Later>);
    }
  };

  #play(work: Exclude<Work, Later>): void {
    const run = work[0] === 0 ? this.#begin(work[1], work[2]) : this.#runs.get(work[1]);
    if (run === undefined) return; // it was closed
    this.#played.push(run);
    switch (work[0]) {
      case 0:
        run.now = work[4];
        return this.#run(run, work[3]);
      case 1:
        run.now = work[5];
        return run.answer(work[2], work[3], work[4]);
      case 2:
        run.now = work[5];
        return run.update(work[2], work[3], work[4]);
    }
  }

  #begin(number: number, info: RunInfo): Run {
    const run = new Run(number, info, this.#native, this.#started, this.#code.middlewares);
    this.#runs.set(number, run);
    return run;
  }

  #run(run: Run, input: unknown): void {
    const { kind, version } = run.info;
    const ofVersion = version === null ? undefined : this.#code.workflows.get(versionKey(kind, version));
    const code = ofVersion ?? this.#code.workflows.get(kind);
    run.start(() => {
      if (code === undefined) throw new Failure(`this process has no workflow \`${run.info.kind}\``);
      const ctx = this.#code.context(run);
      if (this.#code.middlewares.length === 0) return code(ctx, argumentOf(code, 2, input));
      const last = async (call: RunCall): Promise<unknown> => code(call.ctx, argumentOf(code, 2, call.input));
      return chain(runsOf(this.#code.middlewares), last)({ ctx, kind: run.info.kind, input });
    });
  }

  /** Starts functions of steps and tasks, and does what else waited for workflow code to end. */
  readonly #start = (): void => {
    if (this.#isInCode) leaveCode();
    this.#isInCode = false;
    for (const step of this.#started) this.#jobs.startStep(step);
    this.#started.length = 0;
    const later = this.#later;
    if (later.length > 0) this.#later = [];
    for (const work of later) this.#handle(work);
  };

  /** Hands back all activations of the round. */
  readonly #handBack = (): void => {
    const played = this.#played;
    if (played.length > 0) {
      this.#played = [];
      this.#native.handBack(`[${played.map((run) => run.handBack()).join(",")}]`);
    }
    this.#isRound = false;
    if (this.#isFull) this.#wake();
  };

  #handle(work: Later): void {
    switch (work[0]) {
      case 3:
        return this.#attempt(work);
      case 4:
        return this.#task(work[1], work[2], work[3], work[4]);
      case 5:
        return this.#jobs.cancel(work[1]);
      case 6:
        return this.#answerQuery(work[1], work[2], work[3], work[4]);
      case 7:
        return this.#closeRun(work[1]);
      case 8:
        return this.#reply(work[1], work[2], work[3]);
      case 9:
        return this.#requests.get(work[1])?.item?.(work[2]);
      case 10:
        return this.#end();
    }
  }

  #attempt([, job, number, isUndo, call, name, attempt, key, trace]: Attempt): void {
    const run = this.#runs.get(number);
    const step = (isUndo === 1 ? run?.undos : run?.steps)?.get(call);
    this.#jobs.startAttempt(job, run?.info.id ?? "", step, name, attempt, key, trace);
  }

  #task(job: number, kind: string, input: unknown, info: TaskInfo): void {
    if (info.is_model_call === true) {
      return this.#jobs.startModelCall(job, kind, input, info, (call, mute) => this.#attemptNext(job, call, mute));
    }
    const agent = info.agent ?? undefined;
    const code = this.#code.tasks.get(agent === undefined ? kind : toolKey(agent, kind));
    const ofTask = code && ((input: unknown, task: TaskCtx) => code(argumentOf(code, 1, input), task));
    this.#jobs.startTask(job, kind, ofTask, input, info);
  }

  /** Lets the bridge make a model call, and returns its reply. */
  async #attemptNext(job: number, { input }: AttemptCall, mute: boolean): Promise<unknown> {
    const args = encodeArguments({ job, input: input ?? null, mute }, "the request to the model");
    const reply = await this.reply<{ value?: unknown; failure?: FailureDocument }>("attempt_next", args);
    if (reply.failure !== undefined) throw Failure.of(reply.failure);
    return reply.value;
  }

  #answerQuery(query: number, number: number, name: string, input: unknown): void {
    const answer = this.#runs.get(number)?.query(name, input);
    this.#native.answerQuery(query, answer?.[0] ?? false, answer?.[1] ?? null);
  }

  #closeRun(number: number): void {
    const run = this.#runs.get(number);
    if (run !== undefined) run.isStopped = true;
    this.#runs.delete(number);
  }

  #reply(request: number, ok: 0 | 1, value: unknown): void {
    const requester = this.#requests.get(request);
    this.#requests.delete(request);
    requester?.reply(ok === 1, value);
  }

  /** Drops the bridge. What still waits fails. */
  #end(): void {
    const ended: ErrorDocument = { code: "shut_down", message: "this Onward was closed", hint: "start another one", status: 503 };
    for (const requester of this.#requests.values()) requester.reply(false, ended);
    this.#requests.clear();
    this.#runs.clear();
    this.#native.close();
    this.#onEnded?.();
  }
}
