/** Durations, retries and budgets, as callers write them and as the bridge reads them. */

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

/** The value of an attribute by which runs are listed. */
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
  if (retry === undefined || typeof retry === "number") return retry;
  return {
    attempts_max: retry.attempts,
    first_delay_ms: optionalMs(retry.firstDelay, "firstDelay"),
    growth_percent: retry.growth === undefined ? undefined : Math.round(retry.growth * 100),
    delay_max_ms: optionalMs(retry.maxDelay, "maxDelay"),
  };
}

/** Returns the attribute value of the bridge. */
export function attributeArgument(value: AttributeValue): unknown {
  return value instanceof Date ? { time: value.getTime() } : value;
}

/** Returns the attribute value of the API, which names its type. */
export function typedAttribute(value: AttributeValue): Record<string, unknown> {
  if (value instanceof Date) return { time: value.toISOString() };
  return { [typeof value === "string" ? "text" : typeof value === "number" ? "int" : "bool"]: value };
}
