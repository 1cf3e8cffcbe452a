/**
 * The test kit: code of workflows and agents with scripted answers, in virtual time, without a store.
 *
 * ```ts
 * await using kit = await TestKit.open({ workflows: [order] });
 * const outcome = await kit.play(order, "a teapot", {
 *   steps: { charge: ["paid"] },
 *   signals: [{ name: "payment", value: 42, after: { days: 2 } }],
 *   check: "crash everywhere",
 * });
 * assert.equal(outcome.value, "paid 42");
 * ```
 *
 * @packageDocumentation
 */

import { codeOf, settingsOf, type WorkerOptions } from "./client.js";
import type { LogRecord } from "./documents.js";
import { Failure, failureText, type FailureDocument } from "./errors.js";
import { Host } from "./host.js";
import { encode, encodeArguments } from "./json.js";
import { nameOf, type Input, type WorkflowName } from "./names.js";
import { optionalMs, type Duration } from "./options.js";

/** A result: a value, or an error that is thrown. */
export type Scripted = unknown;

/** Results by attempt, of which the last repeats; `"function"` calls the function of this process. */
export type Answers = Scripted[] | "function";

/** What happens after a time. */
export interface After {
  /** Virtual time since the start. */
  after?: Duration;
}

/** The world around a run. */
export interface Script {
  id?: string;
  /** Results of steps by name, in the order of their calls; other steps run their functions. */
  steps?: Record<string, Scripted[]>;
  tasks?: Record<string, Answers>;
  children?: Record<string, Answers>;
  approvals?: Record<string, ({ approved: boolean; feedback?: string; answer?: unknown } & After)[]>;
  promises?: Record<string, Scripted>;
  signals?: ({ name: string; value?: unknown } & After)[];
  updates?: ({ name: string; input?: unknown } & After)[];
  cancel?: { reason?: string } & After;
  /** How many generations are played; one by default. */
  generations?: number;
  /**
   * - `crash everywhere`: the code dies after each commit and is replayed; every end must be the same.
   * - `deterministic`: the run is played twice and must make the same calls.
   * - `schedules`: so many random orders of what happens at the same time; `schedule` repeats one of them.
   */
  check?: "crash everywhere" | "deterministic" | { schedules: number } | { schedule: number };
}

/** The result of a script. */
export class ScriptOutcome<O> {
  /** The result of the run, if it has completed. */
  readonly value: O | undefined;
  /** Why it failed. */
  readonly failure: Failure | undefined;
  /** It still waits, for what the script does not have. */
  readonly isOpen: boolean;
  readonly isCanceled: boolean;
  readonly waitsFor: readonly string[];
  /** Virtual time. */
  readonly elapsedMs: number;
  /** Names of the steps whose functions ran. */
  readonly stepsRun: readonly string[];
  readonly stepsScripted: readonly string[];
  /** The answers of the updates. */
  readonly updates: readonly unknown[];
  /** A log for each generation. */
  readonly logs: readonly LogRecord[][];

  /** @internal */
  constructor(document: OutcomeDocument) {
    this.value = document.value as O | undefined;
    this.failure = document.failure && Failure.of(document.failure);
    this.isOpen = document.is_open;
    this.isCanceled = document.is_canceled;
    this.waitsFor = document.waits_for;
    this.elapsedMs = document.elapsed_ms;
    this.stepsRun = document.steps_run;
    this.stepsScripted = document.steps_scripted;
    this.updates = document.updates.map(({ value, failure }) => (failure === undefined ? value : Failure.of(failure)));
    this.logs = document.logs;
  }
}

interface OutcomeDocument {
  value?: unknown;
  failure?: FailureDocument;
  is_open: boolean;
  is_canceled: boolean;
  waits_for: string[];
  elapsed_ms: number;
  steps_run: string[];
  steps_scripted: string[];
  updates: { value?: unknown; failure?: FailureDocument }[];
  logs: LogRecord[][];
}

/** The code of a recorded run makes other calls than the log has. */
export class Diverged extends Error {
  /** Where, what was recorded and what was called. */
  readonly report: Record<string, unknown>;

  constructor(report: Record<string, unknown>) {
    super(`the code diverges from the log: ${JSON.stringify(report)}`);
    this.name = "Diverged";
    this.report = report;
  }
}

/** Plays scripts and recorded logs with the code of this process. */
export class TestKit implements AsyncDisposable {
  readonly #host: Host;

  private constructor(host: Host) {
    this.#host = host;
  }

  static async open(options: Pick<WorkerOptions, "workflows" | "tasks" | "tools" | "middleware">): Promise<TestKit> {
    const settings = encodeArguments(settingsOf("memory:", options), "the settings");
    return new TestKit(await Host.start(settings, codeOf(options)));
  }

  /**
   * Plays a run.
   *
   * @throws {OnwardError} with the report if a check fails.
   */
  async play<I, O>(workflow: WorkflowName<I, O>, ...[input, script = {}]: Input<I, Script>): Promise<ScriptOutcome<O>> {
    const args = encodeArguments({ kind: nameOf(workflow), input: input ?? null, ...scriptArguments(script) }, "the script of", nameOf(workflow));
    return new ScriptOutcome<O>(await this.#host.reply<OutcomeDocument>("script", args));
  }

  /**
   * Replays a recorded log, as `run.log()` returns it, with the code of now.
   *
   * @param earlier The logs of earlier generations.
   * @throws {Diverged} if the code makes other calls.
   */
  async replay<I, O>(workflow: WorkflowName<I, O>, run: string, records: LogRecord[], earlier: LogRecord[][] = []): Promise<void> {
    const args = encode({ kind: nameOf(workflow), run, records, earlier }, "the log of run", run);
    const report = await this.#host.reply<Record<string, unknown> | null>("replay", args);
    if (report !== null) throw new Diverged(report);
  }

  close(): Promise<void> {
    return this.#host.close(0);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

function scriptArguments(script: Script): Record<string, unknown> {
  const { steps, tasks, children, approvals, promises, signals, updates, cancel, check, ...others } = script;
  return {
    ...others,
    steps: mapped(steps, (results) => results.map(scripted)),
    tasks: mapped(tasks, answers),
    children: mapped(children, answers),
    approvals: mapped(approvals, (decisions) => decisions.map(timed)),
    promises: mapped(promises, scripted),
    signals: signals?.map(({ value, ...signal }) => timed({ value: value ?? null, ...signal })),
    updates: updates?.map(({ input, ...update }) => timed({ value: input ?? null, ...update })),
    cancel: cancel && timed(cancel),
    check: check === "crash everywhere" ? "crash_everywhere" : check,
  };
}

function mapped<T>(values: Record<string, T> | undefined, map: (value: T) => unknown): Record<string, unknown> | undefined {
  return values && Object.fromEntries(Object.entries(values).map(([name, value]) => [name, map(value)]));
}

function answers(answers: Answers): unknown {
  return answers === "function" ? answers : answers.map(scripted);
}

function scripted(result: Scripted): unknown {
  return result instanceof Error ? { failure: JSON.parse(failureText(result)) as unknown } : { value: result ?? null };
}

function timed<T extends After>({ after, ...event }: T): unknown {
  return { ...event, after_ms: optionalMs(after, "after") };
}
