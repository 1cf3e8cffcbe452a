/**
 * Values and JSON text. `JSON.stringify` drops or changes what JSON cannot represent; here it is refused, with its path.
 */

import { types } from "node:util";

/** A value that JSON cannot represent. Its message names the value, the path inside of it, and the reason. */
export class ValueRefused extends TypeError {
  readonly code = "value_invalid";
  /** The place inside of the value: `$` is the whole, `$.items[2].price` a part. */
  readonly path: string;

  constructor(what: string, path: string, reason: string) {
    super(`${what} is not JSON at ${path}: ${reason}`);
    this.name = "ValueRefused";
    this.path = path;
  }
}

interface Problem {
  reason: string;
  /** The keys that lead to it, innermost first. */
  keys: (string | number)[];
}

/** Deeper values are searched for cycles. */
const DEPTH_CHECKED = 100;

/** Classes whose objects JSON would turn into `{}` without an error; the checks also know those of other realms. */
const NOT_DATA: [is: (value: unknown) => boolean, name: string][] = [
  [types.isMap, "a Map"],
  [types.isSet, "a Set"],
  [types.isWeakMap, "a WeakMap"],
  [types.isWeakSet, "a WeakSet"],
  [types.isPromise, "a Promise"],
  [types.isRegExp, "a RegExp"],
  [types.isNativeError, "an Error"],
  [(value) => value instanceof Error, "an Error"],
];

/**
 * Returns the JSON text of a value. `undefined` is `null` as the whole value and in arrays, and is left out of objects.
 *
 * @throws {ValueRefused} naming `what`, the path and the reason.
 */
export function encode(value: unknown, what: string, name = ""): string {
  if (value === undefined || value === null) return "null";
  const problem = problemOf(value, 0);
  if (problem !== undefined) throw refusal(problem.keys.reverse(), problem.reason, what, name);
  return JSON.stringify(value);
}

/**
 * @internal Returns the JSON text of the arguments of a call. A path begins inside of the argument.
 *
 * @throws {ValueRefused} naming `what`, the path and the reason.
 */
export function encodeArguments(args: object, what: string, name = ""): string {
  const problem = problemOf(args, 0);
  if (problem !== undefined) throw refusal(problem.keys.reverse().slice(1), problem.reason, what, name);
  return JSON.stringify(args);
}

function refusal(keys: (string | number)[], reason: string, what: string, name: string): ValueRefused {
  return new ValueRefused(name === "" ? what : `${what} \`${name}\``, `$${keys.map(step).join("")}`, reason);
}

function step(key: string | number): string {
  if (typeof key === "number") return `[${key}]`;
  return /^[A-Za-z_$][\w$]*$/.test(key) ? `.${key}` : `[${JSON.stringify(key)}]`;
}

function refused(reason: string): Problem {
  return { reason, keys: [] };
}

function problemOf(value: unknown, depth: number): Problem | undefined {
  switch (typeof value) {
    case "string":
      return value.isWellFormed() ? undefined : refused("a lone surrogate is not text");
    case "number":
      return Number.isFinite(value) ? undefined : refused("NaN and infinities have no JSON; use null or a string");
    case "boolean":
      return undefined;
    case "object":
      return value === null ? undefined : problemOfObject(value, depth);
    case "bigint":
      return refused("a BigInt has no JSON; use a string");
    default:
      return refused(`a ${typeof value} has no JSON`);
  }
}

function problemOfObject(value: object, depth: number): Problem | undefined {
  if (depth > DEPTH_CHECKED) {
    throw new TooDeep();
  }
  try {
    return problemOfParts(value, depth);
  } catch (error) {
    if (depth > 0 || !(error instanceof TooDeep)) throw error;
    return cycleIn(value, new Set());
  }
}

function problemOfParts(value: object, depth: number): Problem | undefined {
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length; index++) {
      const problem = value[index] === undefined ? undefined : problemOf(value[index], depth + 1);
      if (problem !== undefined) return inside(problem, index);
    }
    return undefined;
  }
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) {
    const reason = refusedClass(value);
    if (reason !== undefined) return refused(reason);
  }
  if (hasToJson(value)) {
    const replacement = value.toJSON();
    return replacement === undefined ? undefined : problemOf(replacement, depth + 1);
  }
  for (const key of Object.keys(value)) {
    const part = (value as Record<string, unknown>)[key];
    if (!key.isWellFormed()) return refused("a lone surrogate in a key is not text");
    if (part === undefined) continue;
    const problem = problemOf(part, depth + 1);
    if (problem !== undefined) return inside(problem, key);
  }
  return undefined;
}

function inside(problem: Problem, key: string | number): Problem {
  problem.keys.push(key);
  return problem;
}

function refusedClass(value: object): string | undefined {
  if (types.isDate(value)) return "a date has no JSON; use an ISO 8601 string, as of toISOString()";
  if (ArrayBuffer.isView(value) || types.isAnyArrayBuffer(value)) return "bytes have no JSON; use base64 text";
  if (types.isBoxedPrimitive(value)) return problemOf(value.valueOf(), 0)?.reason;
  const known = NOT_DATA.find(([is]) => is(value));
  return known === undefined ? undefined : `${known[1]} has no JSON`;
}

function hasToJson(value: object): value is { toJSON(): unknown } {
  return typeof (value as { toJSON?: unknown }).toJSON === "function";
}

/** A value that is nested too deeply for the fast check. */
class TooDeep extends Error {}

/** Returns the first cycle, or that the value is too deep. */
function cycleIn(value: unknown, ancestors: Set<unknown>): Problem | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  if (ancestors.has(value)) return refused("the value contains itself");
  if (ancestors.size > DEPTH_CHECKED) return refused(`it is nested more than ${DEPTH_CHECKED} levels deep`);
  ancestors.add(value);
  const parts: Iterable<[string | number, unknown]> = Array.isArray(value) ? value.entries() : Object.entries(value);
  for (const [key, part] of parts) {
    const problem = cycleIn(part, ancestors);
    if (problem !== undefined) return inside(problem, key);
  }
  ancestors.delete(value);
  return undefined;
}
