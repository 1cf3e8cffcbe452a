/** Durations, retries and budgets, as callers write them and as the bridge reads them. */

import { types } from "node:util";

/** A span of time; its parts are added. */
export interface Duration {
  days?: number;
  hours?: number;
  minutes?: number;
  seconds?: number;
  milliseconds?: number;
}

/** The number of attempts in all, or more detail. */
export type Retry =
  | number
  | {
      /** The number of attempts in all; 0 for no limit. */
      attempts: number;
      /** The delay before the second attempt; one second by default. */
      firstDelay?: Duration;
      /** The factor from one delay to the next; 2 by default. */
      growth?: number;
      maxDelay?: Duration;
    };

/** How the result of a call is used again by equal calls of other runs. */
export interface Memo {
  /** For how long. */
  ttl: Duration;
  /**
   * Calls with the same key have the same result. Without it, calls with the same input have; a step then needs `input`.
   * It is stored in plain text, also if payloads are encrypted.
   */
  key?: string;
  /** All runs of the namespace (the default), or those with the same root run. */
  scope?: "namespace" | "tree";
}

/** Limits of what a run and its children may spend. */
export interface Budget {
  tokens?: number;
  /** Dollars, as text: `"2.50"`. */
  cost?: string;
  seconds?: number;
  turns?: number;
}

/** What was spent. */
export interface BudgetUse {
  tokens: number;
  cost: string;
}

/** The value of an attribute by which runs are listed; numbers are integers. */
export type AttributeValue = string | number | boolean | Date;

/** Returns the milliseconds of a duration. */
export function milliseconds(span: Duration, what: string): number {
  if (typeof span !== "object" || span === null) {
    throw new TypeError(`${what} is not a duration: write { seconds: 5 }, with days, hours, minutes, seconds or milliseconds`);
  }
  const { days = 0, hours = 0, minutes = 0, seconds = 0, milliseconds = 0, ...others } = span;
  const unknown = Object.keys(others)[0];
  const total = Math.round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + milliseconds);
  if (unknown !== undefined || !Number.isSafeInteger(total) || total < 0) {
    const why = unknown === undefined ? `${total} ms` : `\`${unknown}\``;
    throw new RangeError(`${what} is not a duration (${why}): use days, hours, minutes, seconds or milliseconds, not negative`);
  }
  return total;
}

/** Returns the milliseconds of an optional duration. */
export function optionalMs(span: Duration | undefined, what: string): number | undefined {
  return span === undefined ? undefined : milliseconds(span, what);
}

/** Returns the retry policy of the bridge. */
export function retryArgument(retry: Retry | undefined): unknown {
  if (retry === undefined) return undefined;
  if (typeof retry !== "object" || retry === null) return wholeNumber(retry, "retry");
  return {
    attempts_max: wholeNumber(retry.attempts, "retry.attempts"),
    first_delay_ms: optionalMs(retry.firstDelay, "firstDelay"),
    growth_percent: retry.growth === undefined ? undefined : wholeNumber(Math.round(retry.growth * 100), "retry.growth in percent"),
    delay_max_ms: optionalMs(retry.maxDelay, "maxDelay"),
  };
}

/** Returns the memo of the bridge. */
export function memoArgument(memo: Memo | undefined): unknown {
  if (memo === undefined) return undefined;
  return { ttl_ms: optionalMs(memo.ttl, "memo.ttl"), key: memo.key, scope: memo.scope };
}

/** The greatest number of 32 bits. */
const COUNT_MAX = 0xffff_ffff;

function wholeNumber(value: number, what: string): number {
  if (Number.isInteger(value) && value >= 0 && value <= COUNT_MAX) return value;
  throw new RangeError(`${what} is ${String(value)}: use a whole number from 0 to ${COUNT_MAX}`);
}

/** Returns the attribute value of the bridge. */
export function attributeArgument(name: string, value: AttributeValue): unknown {
  const type = attributeType(name, value);
  return type === "time" ? { time: (value as Date).getTime() } : value;
}

/** Returns the attribute value of the API, which names its type. */
export function typedAttribute(name: string, value: AttributeValue): Record<string, unknown> {
  const type = attributeType(name, value);
  return { [type]: type === "time" ? (value as Date).toISOString() : value };
}

function attributeType(name: string, value: AttributeValue): "text" | "int" | "bool" | "time" {
  if (typeof value === "string") return "text";
  if (typeof value === "boolean") return "bool";
  if (Number.isSafeInteger(value)) return "int";
  if (types.isDate(value) && value.getTime() >= 0) return "time";
  const shown = typeof value === "number" || types.isDate(value) ? String(value) : `a value of type ${typeof value}`;
  throw new RangeError(`attribute \`${name}\` is ${shown}: use text, an integer, a boolean, or a date since 1970`);
}
