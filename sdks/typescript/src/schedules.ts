/** Schedules: runs that start by the clock. */

import { types } from "node:util";
import type { Onward, RunHandle } from "./client.js";
import { OnwardError } from "./errors.js";
import { optionalMs, typedAttribute, milliseconds, type AttributeValue, type Budget, type Duration } from "./options.js";

/** What happens to a slot while a run of the schedule is running. */
export type Overlap = "skip" | "buffer_one" | "buffer_all" | "cancel_other" | "terminate_other" | "allow_all";

/** The times of a schedule. */
export interface ScheduleTimes {
  /** Expressions of 5 fields, or of 6 with seconds in front. */
  cron?: string | readonly string[];
  /** Intervals. */
  every?: Duration | readonly Duration[];
  /** The time by which the intervals are later. */
  offset?: Duration;
  /** Single times. */
  at?: Date | readonly Date[];
  /** The IANA name of the time zone; UTC by default. */
  zone?: string;
  /** Dates such as `2026-12-25`, and ranges such as `2026-12-24/2027-01-01`, that have no slots. */
  exceptDates?: string | readonly string[];
  startAt?: Date;
  /** Slots are before this time. */
  endAt?: Date;
  /** The longest delay of a slot. */
  jitter?: Duration;
  /** A specification as the API writes it (`calendars`, `except`, ..), to which the other fields add. */
  spec?: Record<string, unknown>;
}

/** The times of a schedule, what it starts, and how. */
export interface ScheduleOptions extends ScheduleTimes {
  /** The input of the runs. */
  input?: unknown;
  /** The texts of the input are templates, rendered for each slot: `{{ slot.date }}`. */
  template?: boolean;
  /** What happens to a slot while a run is running; the default skips it. */
  overlap?: Overlap;
  /** The age up to which a slot is started late; a day by default. */
  catchUp?: Duration;
  /** Pauses the schedule when a run fails. */
  pauseOnFailure?: boolean;
  /** The most slots that wait with `overlap: "buffer_all"`; 100 by default. */
  bufferMax?: number;
  /** The version of the code; the current one at each start by default. */
  version?: string;
  attributes?: Record<string, AttributeValue>;
  /** Cancels a run after this time; time while it is paused does not count. */
  deadline?: Duration;
  /** The budget of each run. */
  budget?: Budget;
  /** Also if no worker is known to have the kind. */
  force?: boolean;
}

/** A time of a schedule, and when it is due: later by its jitter. */
export interface Slot {
  slot: Date;
  dueAt: Date;
}

/** A line of the history: a run, or slots without one. */
export interface ScheduleLine {
  at: Date;
  /** The slot of the run, or the first one without a run. */
  slot: Date;
  /** The id of the run; undefined for slots without one. */
  run: string | undefined;
  cause: "clock" | "backfill" | "trigger";
  outcome: "running" | "completed" | "failed" | "canceled" | "terminated" | "existed" | "skipped";
  /** The code of the failure, or why the slots have no run: `overlap`, `paused`, `missed`, .. */
  reason: string | undefined;
  endedAt: Date | undefined;
  /** The last of the slots without a run. */
  lastSlot: Date;
  /** The number of slots. */
  count: number;
}

/** Counts since the schedule was created. */
export interface ScheduleTotals {
  started: number;
  completed: number;
  failed: number;
  /** Slots without a run, missed ones included. */
  skipped: number;
  missed: number;
}

/** A schedule at one moment. */
export interface ScheduleView {
  id: string;
  kind: string;
  input: unknown;
  /** The specification, as the API writes it. */
  spec: Record<string, unknown>;
  overlap: Overlap;
  /** The number of changes of the definition. */
  revision: number;
  /** The note of the pause; undefined while the schedule is active. */
  paused: string | undefined;
  /** The ids of runs that are running, oldest first. */
  running: string[];
  /** The ids of runs that wait for another one to end. */
  waiting: string[];
  /** The next slots; none while the schedule is paused. */
  next: Slot[];
  /** The last lines, oldest first; empty in lists. */
  history: ScheduleLine[];
  totals: ScheduleTotals;
  /** Everything that the API says. */
  details: Record<string, unknown>;
}

/** The run of a trigger. */
export interface Triggered<O> {
  run: RunHandle<O>;
  /** `buffered` starts when another run has ended. */
  outcome: "started" | "buffered" | "skipped" | "existed";
}

/** Options of {@link ScheduleHandle.trigger} and {@link ScheduleHandle.backfill}. */
export interface TriggerOptions {
  /** With an id, a repeat starts nothing. */
  id?: string;
  overlap?: Overlap;
}

/** A schedule, by its id; it need not exist. */
export class ScheduleHandle<O = unknown> {
  readonly id: string;
  readonly #onward: Onward;

  /** @internal */
  constructor(onward: Onward, id: string) {
    this.#onward = onward;
    this.id = id;
  }

  /** Returns definition, state, next slots and history. */
  async read(): Promise<ScheduleView> {
    return scheduleOf(await this.#execute<ScheduleDocument>("read_schedule"));
  }

  /** Pauses the schedule: its slots are skipped until it is resumed. */
  async pause(note = ""): Promise<ScheduleView> {
    return scheduleOf(await this.#execute<ScheduleDocument>("pause_schedule", { note }));
  }

  /** Resumes the schedule; the slots of the pause stay skipped. */
  async resume(note = ""): Promise<ScheduleView> {
    return scheduleOf(await this.#execute<ScheduleDocument>("resume_schedule", { note }));
  }

  /** Starts a run at once, also while the schedule is paused. */
  async trigger({ id, overlap }: TriggerOptions = {}): Promise<Triggered<O>> {
    const reply = await this.#execute<{ run: string; outcome: Triggered<O>["outcome"] }>("trigger_schedule", { request_id: id, overlap });
    return { run: this.#onward.run<O>(reply.run), outcome: reply.outcome };
  }

  /**
   * Starts the slots from `from` on and before `until` that have no run yet, one after the other by default. Returns while the
   * runs are starting.
   */
  async backfill(from: Date, until: Date, { id, overlap }: TriggerOptions = {}): Promise<ScheduleView> {
    const args = { from: timeText(from, "from"), until: timeText(until, "until"), request_id: id, overlap };
    return scheduleOf(await this.#execute<ScheduleDocument>("backfill_schedule", args));
  }

  /** Returns the next slots, also while the schedule is paused. */
  async nextSlots(count = 10, options: { after?: Date } = {}): Promise<Slot[]> {
    const after = options.after === undefined ? undefined : timeText(options.after, "after");
    return (await this.#execute<{ slots: SlotDocument[] }>("list_slots", { limit: count, after })).slots.map(slotOf);
  }

  /** Returns the handle of the run of a slot; `result` also waits for its start, if that was decided. */
  runAt(slot: Date): RunHandle<O> {
    return this.#onward.run<O>(`${this.id}@${timeText(slot, "slot").replace(".000Z", "Z")}`);
  }

  /** Deletes the schedule. Runs that it started continue. */
  async delete(): Promise<void> {
    await this.#execute("delete_schedule");
  }

  #execute<T>(verb: string, args: Record<string, unknown> = {}): Promise<T> {
    return this.#onward.execute<T>(verb, { schedule: this.id, ...args });
  }
}

/** @internal Returns the arguments of `put_schedule`. */
export function putArguments(schedule: string, kind: string, options: ScheduleOptions): object {
  const { input, template, overlap, catchUp, pauseOnFailure, bufferMax, version, attributes, deadline, budget, force, ...times } = options;
  const named = Object.entries(attributes ?? {}).map(([name, value]) => ({ name, value: typedAttribute(name, value) }));
  const deadline_ms = optionalMs(deadline, "deadline");
  const target = { kind, input: { json: input ?? null }, is_template: template ?? false, version, attributes: named, deadline_ms };
  const policy = { overlap, catch_up_ms: optionalMs(catchUp, "catchUp"), pause_on_failure: pauseOnFailure, buffer_max: bufferMax };
  return { schedule, definition: { target, spec: specOf(times), options: policy }, budget, force: force ?? false };
}

/** @internal Returns the specification of the API. */
export function specOf(times: ScheduleTimes): Record<string, unknown> {
  const { cron, every, offset, at, zone, exceptDates, startAt, endAt, jitter, spec = {}, ...others } = times;
  const unknown = Object.keys(others)[0];
  if (unknown !== undefined) {
    throw new OnwardError("value_invalid", `a schedule has no option \`${unknown}\``, "see the type `ScheduleOptions`", 400);
  }
  const offset_ms = optionalMs(offset, "offset") ?? 0;
  const added: Record<string, unknown[]> = {
    cron: several(cron),
    every: several(every).map((span) => ({ every_ms: milliseconds(span, "every"), offset_ms })),
    at: several(at).map((time) => timeText(time, "at")),
    except: several(exceptDates).map((dates) => ({ dates: [dates] })),
  };
  const lists = Object.entries(added).filter(([, values]) => values.length > 0);
  const single = {
    time_zone: zone,
    start_at: startAt && timeText(startAt, "startAt"),
    end_at: endAt && timeText(endAt, "endAt"),
    jitter_ms: optionalMs(jitter, "jitter"),
  };
  return {
    ...spec,
    ...Object.fromEntries(lists.map(([name, values]) => [name, [...((spec[name] as unknown[] | undefined) ?? []), ...values]])),
    ...Object.fromEntries(Object.entries(single).filter(([, value]) => value !== undefined)),
  };
}

function several<T>(value: T | readonly T[] | undefined): T[] {
  if (value === undefined) return [];
  return Array.isArray(value) ? [...(value as readonly T[])] : [value as T];
}

/** @internal Returns a time as the API writes it. */
export function timeText(time: Date, what: string): string {
  if (types.isDate(time) && time.getTime() >= 0) return time.toISOString();
  throw new RangeError(`${what} is not a date since 1970`);
}

/** @internal */
export interface SlotDocument {
  slot: string;
  due_at: string;
}

interface FiringDocument {
  slot: string;
  cause: ScheduleLine["cause"];
  run: string;
}

interface LineDocument {
  at: string;
  started?: FiringDocument;
  ended?: { ending: Exclude<ScheduleLine["outcome"], "running" | "skipped">; code?: string };
  ended_at?: string;
  skipped?: { first: string; last: string; count: number; reason: string; cause: ScheduleLine["cause"] };
}

/** @internal A schedule as the engine writes it. */
export interface ScheduleDocument {
  schedule: string;
  definition: {
    target: { kind: string; input: { json?: unknown } };
    spec: Record<string, unknown>;
    options: { overlap: Overlap };
  };
  revision: number;
  paused?: { note: string } | null;
  running: { firing: FiringDocument }[];
  buffered: FiringDocument[];
  history: LineDocument[];
  totals: ScheduleTotals;
  next: SlotDocument[];
}

/** @internal Returns the slot of a document. */
export function slotOf({ slot, due_at }: SlotDocument): Slot {
  return { slot: new Date(slot), dueAt: new Date(due_at) };
}

/** @internal Returns the schedule of a document. */
export function scheduleOf(document: ScheduleDocument): ScheduleView {
  const { schedule, definition, revision, paused, running, buffered, history, totals, next } = document;
  return {
    id: schedule,
    kind: definition.target.kind,
    input: definition.target.input.json,
    spec: definition.spec,
    overlap: definition.options.overlap,
    revision,
    paused: paused?.note,
    running: running.map(({ firing }) => firing.run),
    waiting: buffered.map(({ run }) => run),
    next: next.map(slotOf),
    history: history.map(lineOf),
    totals,
    details: document as unknown as Record<string, unknown>,
  };
}

function lineOf({ at, started, ended, ended_at, skipped }: LineDocument): ScheduleLine {
  const firing = started ?? { slot: skipped?.first ?? at, cause: skipped?.cause ?? "clock", run: undefined };
  const slot = new Date(firing.slot);
  return {
    at: new Date(at),
    slot,
    run: firing.run,
    cause: firing.cause,
    outcome: skipped === undefined ? (ended?.ending ?? "running") : "skipped",
    reason: skipped?.reason ?? ended?.code,
    endedAt: ended_at === undefined ? undefined : new Date(ended_at),
    lastSlot: skipped === undefined ? slot : new Date(skipped.last),
    count: skipped?.count ?? 1,
  };
}
