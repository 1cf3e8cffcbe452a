/** Owns the form of the settings of a queue: what is entered, the settings that it is, and the fields that refusals belong to. */
import { cliLine } from "../../api/commands";
import type { Problem } from "../../api/errors";
import type { QueueSettings } from "../../api/model";
import { spanOf, spanText } from "../schedules/words";
import { type QueueRate, rateWord } from "./words";

export interface Entered {
  concurrency: string;
  keyConcurrency: string;
  rateStarts: string;
  ratePeriod: string;
  keyRateStarts: string;
  keyRatePeriod: string;
  depth: string;
  /** One `KEY = WEIGHT` in each line. */
  weights: string;
}

export type FieldName = keyof Entered;
export type FieldErrors = Partial<Record<FieldName, string>>;

function textOf(value: number | null | undefined): string {
  return value === null || value === undefined ? "" : String(value);
}

/** Returns what the form begins with. */
export function enteredOf(settings: QueueSettings): Entered {
  const { concurrency_max, key_concurrency_max, rate, key_rate, depth_max, weights = [] } = settings;
  return {
    concurrency: textOf(concurrency_max),
    keyConcurrency: textOf(key_concurrency_max),
    rateStarts: textOf(rate?.starts_max),
    ratePeriod: rate ? spanText(rate.period_ms) : "",
    keyRateStarts: textOf(key_rate?.starts_max),
    keyRatePeriod: key_rate ? spanText(key_rate.period_ms) : "",
    depth: textOf(depth_max),
    weights: weights.map(({ key, weight }) => `${key} = ${weight}`).join("\n"),
  };
}

/** Returns what is entered on top of newer settings: fields that were not changed have the newer values. */
export function rebase(entered: Entered, before: QueueSettings, fresh: QueueSettings): Entered {
  const [old, now] = [enteredOf(before), enteredOf(fresh)];
  const names = Object.keys(entered) as FieldName[];
  return Object.fromEntries(names.map((name) => [name, entered[name] === old[name] ? now[name] : entered[name]])) as unknown as Entered;
}

function numberOf(text: string, field: FieldName, errors: FieldErrors): number | undefined {
  const digits = text.trim().replaceAll(",", "");
  if (digits === "") return undefined;
  if (!/^\d{1,15}$/.test(digits)) errors[field] = "not a whole number";
  return Number(digits);
}

function rateOf(entered: Entered, starts: "rateStarts" | "keyRateStarts", period: "ratePeriod" | "keyRatePeriod", errors: FieldErrors): QueueRate | undefined {
  const starts_max = numberOf(entered[starts], starts, errors);
  const text = entered[period].trim();
  if (starts_max === undefined && text === "") return undefined;
  const period_ms = spanOf(text);
  if (starts_max === undefined) errors[starts] = "a rate needs a number of starts";
  if (text === "") errors[period] = "a rate needs a period such as 1m";
  else if (period_ms === null) errors[period] = "not a duration such as 10s or 1h 30m";
  return { starts_max: starts_max ?? 0, period_ms: period_ms ?? 0 };
}

function weightsOf(text: string, errors: FieldErrors): { key: string; weight: number }[] {
  const seen = new Map<string, number>();
  for (const line of text.split("\n").filter((one) => one.trim() !== "")) {
    const at = line.lastIndexOf("=");
    const [key, weight] = [line.slice(0, Math.max(0, at)).trim(), line.slice(at + 1).trim()];
    if (key === "" || !/^\d{1,9}$/.test(weight)) errors.weights = `${line.trim()}: not a key and its weight, such as tenant-7 = 3`;
    else if (seen.has(key)) errors.weights = `${key} is there twice`;
    else seen.set(key, Number(weight));
  }
  return [...seen].map(([key, weight]) => ({ key, weight }));
}

/** Returns the settings of the form, and the fields whose text is no value. A pause is no part of the form and stays. */
export function settingsOf(entered: Entered, before: QueueSettings): { settings: QueueSettings; errors: FieldErrors } {
  const errors: FieldErrors = {};
  const limits = {
    concurrency_max: numberOf(entered.concurrency, "concurrency", errors),
    key_concurrency_max: numberOf(entered.keyConcurrency, "keyConcurrency", errors),
    rate: rateOf(entered, "rateStarts", "ratePeriod", errors),
    key_rate: rateOf(entered, "keyRateStarts", "keyRatePeriod", errors),
    depth_max: numberOf(entered.depth, "depth", errors),
  };
  const given = Object.fromEntries(Object.entries(limits).filter(([, limit]) => limit !== undefined));
  const weights = weightsOf(entered.weights, errors);
  const settings: QueueSettings = { ...given, ...(before.paused && { paused: true }), ...(weights.length > 0 && { weights }) };
  return { settings, errors };
}

/** Returns the command that makes the same change. */
export function commandOf(queue: string, before: QueueSettings, after: QueueSettings): string {
  const word = (option: string, old: string | number | undefined, fresh: string | number | undefined) => (old === fresh ? [] : [option, fresh ?? "none"]);
  const rate = (of: QueueRate | null | undefined) => (of ? rateWord(of) : undefined);
  const number = (of: number | null | undefined) => of ?? undefined;
  const [old, fresh] = [before.weights ?? [], after.weights ?? []];
  const gone = old.filter(({ key }) => !fresh.some((of) => of.key === key)).map(({ key }) => ({ key, weight: 1 }));
  const set = fresh.filter(({ key, weight }) => !old.some((of) => of.key === key && of.weight === weight));
  return cliLine(
    "queue", "set", queue,
    ...word("--concurrency", number(before.concurrency_max), number(after.concurrency_max)),
    ...word("--key-concurrency", number(before.key_concurrency_max), number(after.key_concurrency_max)),
    ...word("--rate", rate(before.rate), rate(after.rate)),
    ...word("--key-rate", rate(before.key_rate), rate(after.key_rate)),
    ...word("--depth", number(before.depth_max), number(after.depth_max)),
    ...[...gone, ...set].flatMap(({ key, weight }) => ["--weight", `${key}=${weight}`]),
  );
}

const FIELDS: [RegExp, FieldName][] = [
  [/key_concurrency_max/, "keyConcurrency"],
  [/concurrency_max/, "concurrency"],
  [/key_rate\.period_ms/, "keyRatePeriod"],
  [/key_rate/, "keyRateStarts"],
  [/rate\.period_ms/, "ratePeriod"],
  [/rate\b/, "rateStarts"],
  [/weights/, "weights"],
  [/depth_max/, "depth"],
];

/** Returns the field that a refusal names, as in `rate.starts_max` is 0; null if it names none. */
export function refusedField({ code, detail }: Problem): FieldName | null {
  if (code === "name_invalid") return "weights";
  if (code !== "queue_invalid") return null;
  return FIELDS.find(([pattern]) => pattern.test(detail))?.[1] ?? null;
}
