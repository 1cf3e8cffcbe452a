/**
 * What workflow code must not use: clocks, random numbers, timers and the network. While workflow code runs, the globals for them
 * throw an error that names the replacement; at all other times they are those of Node.js.
 */

import { WorkflowMisuse } from "./errors.js";

const CLOCK = "`ctx.now()`";
const RANDOM = "`ctx.random()` or `ctx.uuid()`";
const TIMER = "`ctx.sleep(..)`";
const STEP = "`ctx.step(..)`";

const unrepeatable = "is not deterministic";
const foreign = "is not recorded";

let codeRuns = false;

/** Returns whether workflow code runs now. */
export function inCode(): boolean {
  return codeRuns;
}

/** What the code of a framework gets instead of a refusal: values of its run. */
export interface StandIn {
  /** Milliseconds since 1970. */
  now(): number;
  /** A number from 0 up to 1. */
  random(): number;
}

let standIn: () => StandIn | undefined = () => undefined;

/** Sets what finds out whether the code that runs now is a framework's. */
export function setStandIn(find: () => StandIn | undefined): void {
  standIn = find;
}

function refuse(name: string, replacement: string, why: string): (...args: unknown[]) => never {
  return () => {
    throw new WorkflowMisuse(`\`${name}\` ${why} in workflow code: use ${replacement}`);
  };
}

/** Returns a function that is refused, except in the code of a framework, which gets `value`. */
function replace<A extends unknown[], T>(name: string, replacement: string, value: (run: StandIn, ...args: A) => T): (...args: A) => T {
  const refused = refuse(name, replacement, unrepeatable);
  return (...args) => {
    const run = standIn();
    return run === undefined ? refused() : value(run, ...args);
  };
}

const RealDate = Date;
const now = replace("new Date()", CLOCK, (run) => run.now());

const GuardedDate = function (this: unknown, ...args: unknown[]): unknown {
  if (new.target === undefined) return new RealDate(now()).toString();
  if (args.length === 0) args = [now()];
  return Reflect.construct(RealDate, args, new.target === GuardedDate ? RealDate : new.target);
} as unknown as DateConstructor;
Object.defineProperty(GuardedDate, "prototype", { value: RealDate.prototype });
Object.defineProperty(GuardedDate, "name", { value: "Date" });
Object.assign(GuardedDate, { now: replace("Date.now()", CLOCK, (run) => run.now()), parse: RealDate.parse, UTC: RealDate.UTC });

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
  replaced(RealDate, "now", GuardedDate.now),
  replaced(Math, "random", replace("Math.random()", RANDOM, (run) => run.random())),
  replaced(performance, "now", replace("performance.now()", CLOCK, (run) => run.now())),
  replaced(process, "hrtime", Object.assign(noHrtime, { bigint: noBigint })),
  replaced(crypto, "randomUUID", replace("crypto.randomUUID()", RANDOM, uuid)),
  replaced(crypto, "getRandomValues", replace("crypto.getRandomValues()", RANDOM, randomValues)),
  replaced(globalThis, "setTimeout", refuse("setTimeout", TIMER, foreign)),
  replaced(globalThis, "setInterval", refuse("setInterval", TIMER, foreign)),
  replaced(globalThis, "setImmediate", refuse("setImmediate", TIMER, foreign)),
  replaced(AbortSignal, "timeout", refuse("AbortSignal.timeout()", "`ctx.timeout(..)`", foreign)),
  replaced(globalThis, "fetch", refuse("fetch", STEP, foreign)),
  replaced(globalThis, "queueMicrotask", guardedQueueMicrotask),
].filter((entry) => Object.getOwnPropertyDescriptor(entry.holder, entry.name)?.writable === true);

function randomValues<T extends ArrayBufferView>(run: StandIn, array: T): T {
  const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
  for (let index = 0; index < bytes.length; index++) bytes[index] = Math.floor(run.random() * 256);
  return array;
}

function uuid(run: StandIn): string {
  const bytes = randomValues(run, new Uint8Array(16));
  bytes[6] = (bytes[6]! & 0x0f) | 0x40;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  const hex = Buffer.from(bytes).toString("hex");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

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
