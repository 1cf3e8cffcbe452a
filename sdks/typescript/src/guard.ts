/**
 * What workflow code must not use: clocks, random numbers, timers and the network. While workflow code runs, the globals for them
 * throw an error that names the replacement; at all other times they are those of Node.js.
 */

import { WorkflowMisuse } from "./errors.js";

const CLOCK = "`ctx.now()`";
const RANDOM = "`ctx.random()` or `ctx.uuid()`";
const TIMER = "`ctx.sleep(..)`";
const STEP = "`ctx.step(..)`";

let codeRuns = false;

/** Returns whether workflow code runs now. */
export function inCode(): boolean {
  return codeRuns;
}

function refuse(name: string, replacement: string, why: string): (...args: unknown[]) => never {
  return () => {
    throw new WorkflowMisuse(`\`${name}\` ${why} in workflow code: use ${replacement}`);
  };
}

const unrepeatable = "is not deterministic";
const foreign = "is not recorded";

const RealDate = Date;
const noNow = refuse("new Date()", CLOCK, unrepeatable);

const GuardedDate = function (this: unknown, ...args: unknown[]): unknown {
  if (args.length === 0 || new.target === undefined) return noNow();
  return Reflect.construct(RealDate, args, new.target === GuardedDate ? RealDate : new.target);
} as unknown as DateConstructor;
Object.defineProperty(GuardedDate, "prototype", { value: RealDate.prototype });
Object.defineProperty(GuardedDate, "name", { value: "Date" });
Object.assign(GuardedDate, { now: refuse("Date.now()", CLOCK, unrepeatable), parse: RealDate.parse, UTC: RealDate.UTC });

const realQueueMicrotask = queueMicrotask;

/** Errors of plain microtasks end the process, which is more than a mistake in one run deserves. */
function guardedQueueMicrotask(callback: () => void): void {
  realQueueMicrotask(() => {
    try {
      callback();
    } catch (error) {
      warn(error);
    }
  });
}

interface Refused {
  holder: Record<string, unknown>;
  name: string;
  /** What workflow code gets. */
  guarded: unknown;
  /** What was there before, to be put back. */
  before: unknown;
}

const noHrtime = refuse("process.hrtime()", CLOCK, unrepeatable);
const noBigint = refuse("process.hrtime.bigint()", CLOCK, unrepeatable);

const REFUSED: Refused[] = [
  replaced(globalThis, "Date", GuardedDate),
  replaced(RealDate, "now", refuse("Date.now()", CLOCK, unrepeatable)),
  replaced(Math, "random", refuse("Math.random()", RANDOM, unrepeatable)),
  replaced(performance, "now", refuse("performance.now()", CLOCK, unrepeatable)),
  replaced(process, "hrtime", Object.assign(noHrtime, { bigint: noBigint })),
  replaced(crypto, "randomUUID", refuse("crypto.randomUUID()", RANDOM, unrepeatable)),
  replaced(crypto, "getRandomValues", refuse("crypto.getRandomValues()", RANDOM, unrepeatable)),
  replaced(globalThis, "setTimeout", refuse("setTimeout", TIMER, foreign)),
  replaced(globalThis, "setInterval", refuse("setInterval", TIMER, foreign)),
  replaced(globalThis, "setImmediate", refuse("setImmediate", TIMER, foreign)),
  replaced(AbortSignal, "timeout", refuse("AbortSignal.timeout()", "`ctx.timeout(..)`", foreign)),
  replaced(globalThis, "fetch", refuse("fetch", STEP, foreign)),
  replaced(globalThis, "queueMicrotask", guardedQueueMicrotask),
].filter((entry) => Object.getOwnPropertyDescriptor(entry.holder, entry.name)?.writable === true);

/** Finds the object that has the property: methods are those of a prototype. */
function replaced(object: object, name: string, guarded: unknown): Refused {
  let holder = object;
  while (!Object.hasOwn(holder, name)) {
    const next: unknown = Object.getPrototypeOf(holder);
    if (typeof next !== "object" || next === null) break;
    holder = next;
  }
  return { holder: holder as Record<string, unknown>, name, guarded, before: undefined };
}

const UNHANDLED = "unhandledRejection";
type Listener = (reason: unknown) => void;

/** Listeners of the process, which are not for workflow code. */
let listeners: Listener[] = [];

/** Begins to refuse: workflow code runs from now on. */
export function enterCode(): void {
  codeRuns = true;
  for (const entry of REFUSED) {
    entry.before = entry.holder[entry.name];
    entry.holder[entry.name] = entry.guarded;
  }
  listeners = process.rawListeners(UNHANDLED) as Listener[];
  if (listeners.length > 0) process.removeAllListeners(UNHANDLED);
  process.on(UNHANDLED, warn);
}

/** Ends what {@link enterCode} began. */
export function leaveCode(): void {
  codeRuns = false;
  for (const entry of REFUSED) entry.holder[entry.name] = entry.before;
  process.removeListener(UNHANDLED, warn);
  for (const listener of listeners) process.on(UNHANDLED, listener);
}

function warn(reason: unknown): void {
  const detail = reason instanceof Error ? (reason.stack ?? reason.message) : String(reason);
  const message = "a promise of workflow code was rejected and nothing awaits it";
  process.emitWarning(message, { type: "OnwardWarning", code: "ONWARD_UNHANDLED", detail });
}
