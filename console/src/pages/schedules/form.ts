/** Owns the form of a definition: what is entered, the request that it is, and the fields that errors of the server belong to. */
import type { Problem } from "../../api/errors";
import { parseJson, printJson } from "../../api/json";
import { type Attributes, type Overlap, type Schedule, type ScheduleSpec, type Schemas, jsonOf } from "../../api/model";
import { cliLine } from "../../api/commands";
import { enteredJson } from "../../ui/JsonInput";
import { intervalText, spanOf, spanText } from "./words";

export type PutSchedule = Schemas["PutSchedule"];

/** The texts of the form; the input of the runs is a value of its own. */
export interface Entered {
  id: string;
  kind: string;
  version: string;
  template: boolean;
  cron: string;
  every: string;
  at: string;
  zone: string;
  /** The rest of the specification as JSON. */
  more: string;
  overlap: Overlap;
  catchUp: string;
  bufferMax: string;
  pauseOnFailure: boolean;
  deadline: string;
  attributes: string;
  force: boolean;
}

export type FieldName = keyof Entered | "input";
export type FieldErrors = Partial<Record<FieldName, string>>;

const EMPTY: Entered = {
  id: "", kind: "", version: "", template: false, cron: "", every: "", at: "", zone: "", more: "", overlap: "skip",
  catchUp: "", bufferMax: "", pauseOnFailure: false, deadline: "", attributes: "", force: false,
};

/** Returns what the form begins with: the stored definition, or nothing. */
export function enteredOf(schedule: Schedule | null, kind = ""): Entered {
  if (schedule === null) return { ...EMPTY, kind };
  const { cron = [], every = [], at = [], time_zone, ...more } = schedule.spec;
  const { options } = schedule;
  return {
    id: schedule.schedule,
    kind: schedule.kind,
    version: schedule.version ?? "",
    template: schedule.template ?? false,
    cron: cron.join("\n"),
    every: every.map(intervalText).join("\n"),
    at: at.join("\n"),
    zone: time_zone ?? "",
    more: Object.keys(more).length === 0 ? "" : printJson(more, 2),
    overlap: options.overlap,
    catchUp: options.catch_up_ms === null || options.catch_up_ms === undefined ? "" : spanText(options.catch_up_ms),
    bufferMax: options.buffer_max === null || options.buffer_max === undefined ? "" : String(options.buffer_max),
    pauseOnFailure: options.pause_on_failure ?? false,
    deadline: schedule.deadline_ms === null || schedule.deadline_ms === undefined ? "" : spanText(schedule.deadline_ms),
    attributes: Object.keys(schedule.attributes ?? {}).length === 0 ? "" : printJson(schedule.attributes),
    force: false,
  };
}

/** Returns whether the form can hold the input of a schedule: it is JSON. */
export function isEditable(schedule: Schedule): boolean {
  return jsonOf(schedule.input) !== undefined;
}

function linesOf(text: string): string[] {
  return text.split("\n").map((line) => line.trim()).filter((line) => line !== "");
}

const SPAN = "not a duration such as 15m or 1h 30m";

/** Reads a specification; `errors` gets what is no value at all. */
function specOf(entered: Entered, errors: FieldErrors): ScheduleSpec {
  const every = linesOf(entered.every).flatMap((line) => {
    const [interval, offset, ...rest] = line.split("+");
    const every_ms = spanOf(interval ?? "");
    const offset_ms = offset === undefined ? 0 : spanOf(offset);
    if (every_ms === null || offset_ms === null || rest.length > 0) errors.every = `${line}: ${SPAN}`;
    return [{ every_ms: every_ms ?? 0, ...(offset_ms ? { offset_ms } : {}) }];
  });
  const more = objectOf(entered.more, "more", errors);
  const [cron, at] = [linesOf(entered.cron), linesOf(entered.at)];
  return {
    ...(more as ScheduleSpec),
    ...(cron.length > 0 && { cron }),
    ...(every.length > 0 && { every }),
    ...(at.length > 0 && { at }),
    ...(entered.zone.trim() && { time_zone: entered.zone.trim() }),
  };
}

function objectOf(text: string, field: FieldName, errors: FieldErrors): Record<string, unknown> {
  const entered = enteredJson(text);
  if (!entered.ok || entered.value === undefined) {
    // The control shows what is wrong with the text.
    if (!entered.ok) errors[field] = entered.error;
    return {};
  }
  if (typeof entered.value === "object" && entered.value !== null && !Array.isArray(entered.value)) return entered.value as Record<string, unknown>;
  errors[field] = "not a JSON object";
  return {};
}

function spanField(text: string, field: FieldName, errors: FieldErrors): number | undefined {
  if (text.trim() === "") return undefined;
  const ms = spanOf(text);
  if (ms === null) errors[field] = SPAN;
  return ms ?? undefined;
}

/** Returns the request of the form, and the fields whose text is no value. */
export function putOf(entered: Entered, input: unknown, before: Schedule | null): { body: PutSchedule; errors: FieldErrors } {
  const errors: FieldErrors = {};
  const catchUp = spanField(entered.catchUp, "catchUp", errors);
  const deadline = spanField(entered.deadline, "deadline", errors);
  const bufferMax = entered.bufferMax.trim();
  if (bufferMax !== "" && !/^\d{1,9}$/.test(bufferMax)) errors.bufferMax = "not a number";
  const attributes = objectOf(entered.attributes, "attributes", errors) as Attributes;
  const body: PutSchedule = {
    kind: entered.kind,
    ...(input !== undefined && { input }),
    ...(entered.template && { template: true }),
    ...(entered.version && { version: entered.version }),
    ...(Object.keys(attributes).length > 0 && { attributes }),
    ...(deadline !== undefined && { deadline_ms: deadline }),
    // The form has no budget: that of the stored definition stays.
    ...(before?.budget && { budget: before.budget }),
    spec: specOf(entered, errors),
    options: {
      overlap: entered.overlap,
      ...(catchUp !== undefined && { catch_up_ms: catchUp }),
      ...(bufferMax !== "" && !errors.bufferMax && { buffer_max: Number(bufferMax) }),
      ...(entered.pauseOnFailure && { pause_on_failure: true }),
    },
    ...(entered.force && { force: true }),
  };
  return { body, errors };
}

/** Returns the command that does the same; null if it needs a file. */
export function commandOf(id: string, { spec, options = {}, ...body }: PutSchedule): string | null {
  const { cron = [], every = [], at = [], time_zone, ...more } = spec;
  if (Object.keys(more).length > 0 || every.length > 1 || body.budget) return null;
  return cliLine(
    "schedule", "create", id || "ID", "--kind", body.kind || "KIND",
    ...(body.input === undefined ? [] : ["--input", printJson(body.input)]),
    body.template && "--template",
    ...cron.flatMap((expression) => ["--cron", expression]),
    ...every.flatMap(({ every_ms, offset_ms }) => ["--every", spanText(every_ms), ...(offset_ms ? ["--offset", spanText(offset_ms)] : [])]),
    ...at.flatMap((time) => ["--at", time]),
    ...(time_zone ? ["--zone", time_zone] : []),
    ...(options.overlap && options.overlap !== "skip" ? ["--overlap", options.overlap] : []),
    ...(options.catch_up_ms === undefined ? [] : ["--catch-up", spanText(options.catch_up_ms)]),
    ...(options.buffer_max === undefined ? [] : ["--buffer-max", options.buffer_max]),
    options.pause_on_failure && "--pause-on-failure",
    ...(body.deadline_ms === undefined ? [] : ["--deadline", spanText(body.deadline_ms)]),
    ...(body.version ? ["--version", body.version] : []),
    ...Object.entries(body.attributes ?? {}).flatMap(([name, value]) => ["--attribute", `${name}=${printJson(value)}`]),
    body.force && "--force",
  );
}

const FIELDS: Record<string, FieldName> = {
  "spec.cron": "cron", "spec.every": "every", "spec.at": "at", "spec.time_zone": "zone",
  "spec.calendars": "more", "spec.except": "more", "spec.start_at": "more", "spec.end_at": "more", "spec.jitter_ms": "more",
  "options.catch_up_ms": "catchUp", "options.buffer_max": "bufferMax",
  "target.input": "input", "target.attributes": "attributes",
};

/** Returns the field that a refusal names, as in `spec.cron[0], character 3: …`; null if it names none. */
export function refusedField(problem: Problem): FieldName | null {
  if (problem.code === "kind_not_found") return "kind";
  if (problem.code !== "schedule_invalid") return null;
  const part = /\b(?:spec|options|target)\.[a-z_]+/.exec(problem.detail)?.[0];
  return (part && FIELDS[part]) || null;
}

/** Returns a refusal as the text of its field. */
export function refusalText({ detail, hint }: Problem): string {
  return hint ? `${detail}. ${hint.charAt(0).toUpperCase()}${hint.slice(1)}.` : detail;
}

/** Returns a copy of the JSON of an input, for the form. */
export function inputOf(schedule: Schedule | null): unknown {
  const input = jsonOf(schedule?.input);
  return input === undefined ? undefined : parseJson(printJson(input));
}
