/** What code throws, and what is recorded of it; errors of calls, with hints that TypeScript programs can follow. */

import assert from "node:assert/strict";
import { AsyncLocalStorage } from "node:async_hooks";
import { test } from "node:test";
import { runInNewContext } from "node:vm";
import { Failure, Onward, OnwardError, RunFailed, task, workflow } from "onward";
import { TestKit } from "onward/testing";
import { failureOf, inMemory } from "./kit.js";

const cyclic = new Error("cyclic");
cyclic.cause = new TypeError("between", { cause: cyclic });
const cyclicObject: { self?: unknown } = {};
cyclicObject.self = cyclicObject;
const hostile = new Proxy({}, {
  getPrototypeOf() {
    throw new Error("of the trap");
  },
});

/** What is thrown, the recorded name and message, and the causes. */
const thrown: Record<string, [value: unknown, name: string, message: string, causes?: string[]]> = {
  undefined: [undefined, "undefined", "undefined"],
  null: [null, "null", "null"],
  text: ["only text", "string", "only text"],
  "an object with a message": [{ message: "of an object", code: 5 }, "object", "of an object"],
  "an object": [{ status: 404 }, "object", '{"status":404}'],
  "an object without a prototype": [Object.create(null), "object", "{}"],
  "a cyclic object": [cyclicObject, "object", "[object Object]"],
  "a hostile object": [hostile, "object", "[object Object]"],
  "an error of another realm": [runInNewContext("new RangeError('far away', { cause: new Error('there') })"), "RangeError", "far away", ["Error: there"]],
  "a cyclic cause": [cyclic, "Error", "cyclic", ["TypeError: between"]],
  "several errors": [new AggregateError([new Error("a"), new TypeError("b")], "both"), "AggregateError", "both", ["Error: a", "TypeError: b"]],
  "several errors and a cause": [
    new AggregateError([new Error("a")], "one", { cause: new Error("c") }),
    "AggregateError",
    "one",
    ["Error: c", "Error: a"],
  ],
  "a time that has passed": [new Failure("busy", { retryAfterMs: -5.5 }), "Failure", "busy"],
  "a fraction of a millisecond": [new Failure("busy", { retryAfterMs: 0.25 }), "Failure", "busy"],
  "an error of a caller": [new OnwardError("run_not_found", "run x not found"), "OnwardError", "run x not found"],
};

const throws = (name: string): never => {
  throw thrown[name]?.[0];
};
const thrower = task("thrower", throws);
const stepThrows = workflow("step-throws", (ctx, name: string) => ctx.step("throws", () => throws(name)));
const taskThrows = workflow("task-throws", (ctx, name: string) => ctx.task(thrower, name));
const codeThrows = workflow("code-throws", async (_, name: string) => throws(name));

const large = workflow("large", async (ctx, how: string) => {
  const text = "x".repeat(17_000_000);
  if (how === "state") ctx.state.set("notes", text);
  return ctx.step("reads", () => text);
});

const wrong: Record<string, [call: (ctx: Parameters<typeof calls.code>[0]) => unknown, message: RegExp]> = {
  "a name that is missing": [(ctx) => ctx.step(undefined as never, () => 1), /the name of a step is text, not undefined/],
  "negative attempts": [(ctx) => ctx.step("s", () => 1, { retry: -1 }), /retry is -1: use a whole number/],
  "half an attempt": [(ctx) => ctx.step("s", () => 1, { retry: { attempts: 1.5 } }), /retry.attempts is 1.5: use a whole number/],
  "a fraction as an attribute": [(ctx) => ctx.setAttribute("size", 1.5), /attribute `size` is 1.5: use text, an integer, a boolean, or a date/],
  "no date": [(ctx) => ctx.setAttribute("at", new Date(Number.NaN)), /attribute `at` is Invalid Date: use/],
  "no calls": [(ctx) => ctx.select({}), /no call to wait for: pass at least one/],
  "no definition": [(ctx) => ctx.child(undefined as never), /expected a definition of this package or its name, got undefined/],
};
const calls = workflow("calls", async (ctx, name: string): Promise<unknown> => wrong[name]?.[0](ctx));

const storage = new AsyncLocalStorage<string>();
const inContext = workflow("in-context", (ctx) =>
  storage.run("of the request", async () => {
    const seen = [await ctx.step("first", () => storage.getStore())];
    await ctx.sleep({ milliseconds: 2 });
    const retried = await ctx.step("again", ({ attempt }) => {
      if (attempt === 1) throw new Error("not yet");
      return storage.getStore();
    }, { retry: { attempts: 2, firstDelay: { milliseconds: 1 } } });
    return [...seen, retried, storage.getStore()];
  }),
);

const onward = await inMemory({ workflows: [stepThrows, taskThrows, codeThrows, large, calls, inContext], tasks: [thrower] });

for (const [title, [, name, message, causes = []]] of Object.entries(thrown)) {
  test(`thrown: ${title}`, async () => {
    for (const kind of [stepThrows, taskThrows, codeThrows]) {
      const failure = await failureOf(onward.start(kind, title));
      assert.deepEqual([failure.name, failure.message, failure.causes], [name, message, causes], kind.kind);
    }
  });
}

test("an error of a caller keeps its code", async () => {
  assert.equal((await failureOf(onward.start(stepThrows, "an error of a caller"))).code, "run_not_found");
});

test("a value that is too large fails its call with a failure", async () => {
  for (const how of ["state", "step"]) {
    const failure = await failureOf(onward.start(large, how));
    assert.deepEqual([failure.name, failure.code], ["Failure", "payload_too_large"], how);
  }
});

for (const [name, [, message]] of Object.entries(wrong)) {
  test(`refused with advice: ${name}`, async () => assert.match((await failureOf(onward.start(calls, name))).message, message));
}

test("steps see the AsyncLocalStorage of the code that calls them, at every attempt", async () => {
  assert.deepEqual(await (await onward.start(inContext)).result(), ["of the request", "of the request", "of the request"]);
});

test("a refused value is named by what it was for, with the path inside of it", async () => {
  const run = onward.run("any");
  const bad = { list: [1n] };
  const refused: [() => Promise<unknown>, string][] = [
    [() => run.signal("paid", bad), "the payload of signal `paid` is not JSON at $.list[0]"],
    [() => run.update("add", bad), "the input of update `add` is not JSON at $.list[0]"],
    [() => run.query("n", bad), "the input of query `n` is not JSON at $.list[0]"],
    [() => run.message(bad), "a message to run `any` is not JSON at $.list[0]"],
    [() => run.append("user", bad), "an entry of run `any` is not JSON at $.list[0]"],
    [() => onward.resolve("p", bad), "the value of promise `p` is not JSON at $.list[0]"],
    [() => onward.execute("count_runs", { kind: bad }), "the request `count_runs` is not JSON at $.kind.list[0]"],
  ];
  for (const [request, message] of refused) {
    await assert.rejects(request, (error: Error) => error.message.startsWith(message) || assert.fail(error.message));
  }
});

test("hints name what TypeScript has", async () => {
  const unknown = await onward.start("unknown", 1).catch((error: OnwardError) => error);
  assert(unknown instanceof OnwardError && unknown.code === "unknown_kind");
  assert.match(unknown.hint ?? "", /the option `workflows`/);
  const failed = await (await onward.start(codeThrows, "text")).result().catch((error: unknown) => error);
  assert(failed instanceof RunFailed);
  assert.match(failed.hint ?? "", /`error\.failure` has/);
  const invalid = await onward.execute("view", {}).catch((error: OnwardError) => error);
  assert(invalid instanceof OnwardError && !/serde|Some\(/.test(invalid.message), String(invalid));
});

test("the test kit records the same", async () => {
  await using kit = await TestKit.open({ workflows: [stepThrows] });
  const { failure } = await kit.play(stepThrows, "a cyclic cause");
  assert.deepEqual([failure?.message, failure?.causes], ["cyclic", ["TypeError: between"]]);
});

test("a run on demand returns its failure as an error", async () => {
  await using host = await Onward.embedded("memory:", { workflows: [stepThrows], onDemand: true });
  const driven = await (await host.start(stepThrows, "a cyclic cause")).drive();
  assert.deepEqual([driven.state, driven.output, driven.failure instanceof Failure], ["ended", undefined, true]);
});
