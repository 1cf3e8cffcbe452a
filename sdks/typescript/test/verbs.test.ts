/** Each verb of `ctx` and of the client, in memory, with every run replayed at every commit. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Canceled, Failure, RandomGenerator, fatal, signal, task, workflow, type Ctx } from "onward";
import { failureOf, inMemory } from "./kit.js";

const double = task("double", (n: number) => 2 * n);
const flaky = task("flaky", async (_: null, task) => {
  if (task.attempt < 3) throw new Error(`attempt ${task.attempt}`);
  return { attempt: task.attempt, key: task.idempotencyKey };
});

const tried = new Map<string, number>();
const unsteady = task("unsteady", (of: string, task) => {
  tried.set(of, task.attempt);
  if (task.attempt < 3) throw new Error("busy");
  return task.attempt;
}, { retry: { attempts: 3, firstDelay: { milliseconds: 1 } }, priority: 2 });
const kindly = workflow("kindly", async (ctx) => {
  const own = await ctx.task(unsteady, "own", { retry: 1 }).catch((error: Failure) => error.message);
  return [own, await ctx.task(unsteady, "default")];
}, { deadline: { hours: 1 } });

const attempts = new Map<string, number>();
const keys = new Set<string>();

const steps = workflow("steps", async (ctx, id: string) => {
  const plain = await ctx.step("plain", () => [1, { two: 2 }, null]);
  const again = await ctx.step(
    "again",
    async (step) => {
      attempts.set(id, step.attempt);
      keys.add(step.idempotencyKey);
      if (step.attempt < 3) throw new Error("not yet");
      return step.attempt;
    },
    { retry: { attempts: 5, firstDelay: { milliseconds: 1 } } },
  );
  const nothing = await ctx.step("nothing", () => {});
  return { plain, again, nothing };
});

let computed = 0;
const compute = task("compute", (_: string) => ++computed);

const remembered = workflow("remembered", async (ctx, url: string): Promise<[number, number]> => {
  const page = await ctx.task(compute, url, { memo: { ttl: { hours: 1 }, key: `page/${url}` } });
  const step = await ctx.step("measure", () => ++computed, { input: url, memo: { ttl: { hours: 1 } } });
  return [page, step];
});

const failing = workflow("failing", async (ctx, how: string) => {
  switch (how) {
    case "step":
      return ctx.step("breaks", () => {
        throw new RangeError("out of range", { cause: new Error("the cause") });
      });
    case "caught": {
      const error = await ctx.step("breaks", () => Promise.reject(new TypeError("wrong"))).catch((error: unknown) => error);
      assert(error instanceof Failure);
      return { name: error.name, message: error.message, hasStack: error.stack?.includes("verbs.test"), code: error.code };
    }
    case "own":
      throw new Failure("no stock", { code: "no_stock", retryable: false, data: { sku: 7 } });
    case "text":
      throw "only text";
    case "timeout":
      return ctx.step("slow", (step) => new Promise((_, fail) => step.signal.addEventListener("abort", () => fail(step.signal.reason))), {
        timeout: { milliseconds: 20 },
      });
    case "fatal": {
      let attempts = 0;
      const failed = ctx.step("once", () => { attempts++; throw fatal("never"); }, { retry: 5 });
      await failed.catch(() => {});
      return attempts;
    }
    case "all":
      return Promise.all([ctx.signal("never").recv(), ctx.step("breaks", () => { throw new Error("first"); })]);
  }
});

const everything = workflow("everything", async (ctx: Ctx, input: { text: string }) => {
  const before = ctx.now();
  await ctx.sleep({ milliseconds: 5 });
  await ctx.sleepUntil(new Date(ctx.now().getTime() + 5));
  assert(ctx.now().getTime() - before.getTime() >= 10);
  const random = [ctx.random(), ctx.random()] as const;
  assert(random.every((n) => n >= 0 && n < 1) && random[0] !== random[1]);
  const drawn = ctx.randomGenerator().integer(0, 6);
  assert(drawn >= 0 && drawn < 6);
  assert.match(ctx.uuid(), /^[0-9a-f-]{36}$/);
  assert.equal(ctx.version("change", 1, 3), 3);
  ctx.state.set("step", { at: input.text });
  assert.deepEqual(ctx.state.get("step"), { at: input.text });
  assert.deepEqual(ctx.state.keys(), ["step"]);
  ctx.state.clear("step");
  assert.equal(ctx.state.get("step"), undefined);
  ctx.state.set("done", true);
  ctx.setAttribute("customer", input.text);
  ctx.setAttribute("since", ctx.now());
  ctx.emit("progress", { percent: 50 });
  assert.deepEqual([ctx.kind, ctx.runId, ctx.generation, ctx.isCalled, ctx.parent], ["everything", "all-1", 0, false, undefined]);
  const doubled = ctx.task(double, 4, { priority: 1, retry: 2 });
  return [await doubled, await ctx.task(flaky, null, { retry: { attempts: 3, firstDelay: { milliseconds: 1 } } })];
});

/** The numbers are those of the tests of onward-core and of the package for Python. */
test("numbers of a seed never change", () => {
  const published = new RandomGenerator(1_234_567n);
  assert.deepEqual([published.bits(), published.bits()], [6457827717110365317n, 3203168211198807973n]);
  const generator = new RandomGenerator(42n);
  const times = <T>(count: number, draw: () => T): T[] => Array.from({ length: count }, draw);
  assert.deepEqual(times(8, () => generator.integer(-3, 7)), [0, -2, 5, 1, -3, -1, 2, 5]);
  assert.equal(generator.float(), 0.3399310389170206);
  assert.deepEqual(times(8, () => generator.chance(0.25)), [false, true, false, false, false, false, true, true]);
  assert.equal(generator.choice(["a", "b", "c"]), "a");
  const items = [0, 1, 2, 3, 4, 5, 6, 7];
  generator.shuffle(items);
  assert.deepEqual(items, [2, 5, 3, 4, 1, 0, 6, 7]);
  for (const refused of [() => generator.integer(3, 3), () => generator.integer(0, 2 ** 60), () => generator.chance(NaN), () => generator.choice([])]) {
    assert.throws(refused, RangeError);
  }
});

const ping = signal<{ n: number }>("ping");

const mailboxes = workflow("mailboxes", async (ctx) => {
  const late = await ctx.signal("never").recv({ timeout: { milliseconds: 5 } });
  const box = ctx.signal(ping);
  const first = await box.recv();
  await ctx.signal("go").recv();
  const polled = [box.has(), box.count(), box.tryRecv(), box.drain()];
  assert.equal(box.tryRecv(), undefined);
  const pattern = await ctx.signals<number>("user.*").recv();
  return { late, first, polled, pattern, rest: ctx.signals("user.*").drain() };
});

const approvals = workflow("approvals", async (ctx) => {
  const asked = ctx.approval("ship", { title: "Ship it?", show: { to: "Basel" } });
  const promised = ctx.promise<string>("webhook");
  ctx.state.set("ids", [asked.id, promised.id]);
  const decided = await asked;
  const resolved = await promised.catch((error: unknown) => (error instanceof Failure ? error.message : "other"));
  const expired = await ctx.approval("late", { title: "Too late?", within: { milliseconds: 5 } });
  return { decided, resolved, expired: [expired.approved, expired.expired] };
});

const child = workflow("child", async (ctx, n: number) => {
  if (n < 0) throw new RangeError("negative");
  return { n: n + 1, called: ctx.isCalled, nesting: ctx.nesting };
});

const waiting = workflow("waiting", async (ctx) => {
  ctx.parent?.message(`from ${ctx.kind}`);
  return ctx.signal<string>("reply").recv();
});

const parent = workflow("parent", async (ctx) => {
  const failed = await ctx.child(child, -1).catch((error: unknown) => (error as Failure).name);
  const answered = ctx.child(waiting, undefined);
  answered.signal("reply", "hello");
  const spawned = ctx.spawn(child, 5);
  const later = await ctx.spawned<{ n: number }>(spawned.runId).result();
  return { failed, ok: await ctx.child(child, 1, { id: "child-of-1" }), answered: await answered, later: later.n };
});

const counter = workflow("counter", async (ctx, start: number) => {
  let n = start;
  ctx.query("n", () => n);
  ctx.query<number>("plus", (other) => n + other);
  ctx.update<number>("add", (by) => {
    if (by < 0) throw new Failure("negative", { code: "negative" });
    return (n += by);
  });
  ctx.update("async", async () => (await ctx.step("one", () => 1)) + n);
  ctx.query("async", async () => 1);
  await ctx.signal("end").recv();
  return n;
});

const generations = workflow("generations", async (ctx, n: number): Promise<number> => {
  if (n === 0) return ctx.generation;
  await ctx.step("work", () => n);
  return ctx.continueAsNew(n - 1);
});

const undone: string[] = [];
const saga = workflow("saga", async (ctx) => {
  for (const name of ["flight", "hotel"]) {
    await ctx.step(`book ${name}`, () => name);
    ctx.onFailure(`cancel ${name}`, async () => {
      undone.push(name);
    });
  }
  throw new Error("no car");
});

const cancelable = workflow("cancelable", async (ctx, how: string) => {
  try {
    await Promise.all([ctx.sleep({ days: 1 }), ctx.signal("never").recv()]);
  } catch (error) {
    assert(error instanceof Canceled && error instanceof Failure);
    assert(ctx.isCanceled());
    await ctx.step("clean up", () => "clean");
    if (how === "finish") return "finished";
    throw error;
  }
});

const shielded = workflow("shielded", async (ctx) => {
  const canceled = ctx.canceled();
  const failure = await canceled;
  ctx.drop(canceled);
  return failure.code;
});

const keyed = workflow("keyed", (ctx, key: string) => ctx.promise<string>("paid", { key }));

const workflows = [keyed, remembered, steps, failing, everything, mailboxes, approvals, child, waiting, parent, counter, generations, saga, cancelable, shielded, kindly];
const onward = await inMemory({ workflows, tasks: [double, flaky, compute, unsteady] });

test("a kind has defaults, and a call replaces them", async () => {
  const run = await onward.start(kindly);
  assert.deepEqual(await run.result(), ["busy", 3]);
  assert.deepEqual([tried.get("own"), tried.get("default")], [1, 3]);
});

test("a step records what its function returns, and runs again until it succeeds", async () => {
  const result = await (await onward.start(steps, "a", { id: "a" })).result();
  assert.deepEqual(result, { plain: [1, { two: 2 }, null], again: 3, nothing: null });
  assert.equal(attempts.get("a"), 3);
  assert.equal(keys.size, 1, "every attempt has the same idempotency key");
});

test("an error keeps name, message, stack and cause across the log", async () => {
  const failure = await failureOf(onward.start(failing, "step"));
  assert.deepEqual([failure.name, failure.message, failure.code], ["RangeError", "out of range", "failed"]);
  assert.match(failure.stack ?? "", /RangeError: out of range\n.*verbs\.test\.js/s);
  assert.deepEqual(failure.causes, ["Error: the cause"]);
  const caught = await (await onward.start(failing, "caught")).result();
  assert.deepEqual(caught, { name: "TypeError", message: "wrong", hasStack: true, code: "failed" });
});

test("a failure carries its code and data, and what is no error its text", async () => {
  const own = await failureOf(onward.start(failing, "own"));
  assert.deepEqual([own.code, own.message, own.retryable, own.data], ["no_stock", "no stock", false, { sku: 7 }]);
  assert.equal((await failureOf(onward.start(failing, "text"))).message, "only text");
});

test("a step that takes too long is aborted, and one that failed for good is not repeated", async () => {
  assert.equal((await failureOf(onward.start(failing, "timeout"))).code, "timed_out");
  assert.equal(await (await onward.start(failing, "fatal")).result(), 1);
});

test("Promise.all fails with the first failure", async () => {
  assert.equal((await failureOf(onward.start(failing, "all"))).message, "first");
});

test("time, random numbers, versions, state, attributes, emissions and tasks", async () => {
  const run = await onward.start(everything, { text: "x" }, { id: "all-1", attributes: { plan: "pro" } });
  const [doubled, third] = (await run.result()) as [number, { attempt: number; key: string }];
  assert.deepEqual([doubled, third.attempt], [8, 3]);
  assert.notEqual(third.key, "");
});

test("signals are kept, received in order, polled and drained", async () => {
  const run = await onward.start(mailboxes, undefined, { id: "mail" });
  for (const n of [1, 2, 3, 4]) await run.signal(ping, { n });
  await run.signal("user.1", 10);
  await run.signal("user.2", 20, { id: "same" });
  await run.signal("user.2", 20, { id: "same" });
  await run.signal("go");
  const result = await run.result();
  assert.deepEqual(result, {
    first: { n: 1 },
    polled: [true, 3, { n: 2 }, [{ n: 3 }, { n: 4 }]],
    pattern: { name: "user.1", value: 10 },
    rest: [{ name: "user.2", value: 20 }],
  });
});

test("approvals and promises are answered from outside", async () => {
  const run = await onward.start(approvals, undefined, { id: "approval" });
  await run.waitForState("ids");
  const [approval, promise] = (await run.state("ids")) as [string, string];
  await onward.approve(approval, { feedback: "fine", decidedBy: "Ada" });
  await onward.reject(promise, new Error("refused"));
  assert.deepEqual(await run.result(), {
    decided: { approved: true, feedback: "fine", decidedBy: "Ada", expired: false },
    resolved: "refused",
    expired: [false, true],
  });
});

test("children return, fail, receive signals, and outlive their start", async () => {
  const result = await (await onward.start(parent)).result();
  assert.deepEqual(result, { failed: "RangeError", ok: { n: 2, called: true, nesting: 1 }, answered: "hello", later: 6 });
});

test("queries read the memory of the code, updates change it", async () => {
  const run = await onward.start(counter, 5, { id: "counter" });
  assert.equal(await run.update("add", 3), 8);
  assert.equal(await run.query("n"), 8);
  assert.equal(await run.query("plus", 100), 108);
  await assert.rejects(run.update("add", -1), (error: { failure: Failure }) => error.failure.code === "negative");
  assert.equal(await run.update("async"), 9);
  await assert.rejects(run.query("async"), /async; it must answer at once/);
  await assert.rejects(run.query("unknown"), /unknown/);
  await run.signal("end");
  assert.equal(await run.result(), 8);
});

test("a run continues as new with another log", async () => {
  assert.equal(await (await onward.start(generations, 3)).result(), 3);
});

test("compensations run latest first, and the run fails with its own failure", async () => {
  const failure = await failureOf(onward.start(saga));
  assert.equal(failure.message, "no car");
  assert.deepEqual(undone, ["hotel", "flight"]);
});

test("a cancel request interrupts the waits; the code can clean up, or finish", async () => {
  for (const how of ["finish", "rethrow"]) {
    const run = await onward.start(cancelable, how);
    await run.waitForStatus("waiting");
    await run.cancel("not needed");
    if (how === "finish") assert.equal(await run.result(), "finished");
    else assert((await failureOf(run)) instanceof Canceled);
    assert.equal(await run.status(), how === "finish" ? "completed" : "canceled");
  }
});

test("ctx.canceled() receives the request instead of the waits", async () => {
  const run = await onward.start(shielded);
  await run.waitForStatus("waiting");
  await run.cancel();
  assert.equal(await run.result(), "canceled");
});


test("an equal call of another run has the recorded result, until it is invalidated", async () => {
  const first = await (await onward.start(remembered, "a")).result();
  assert.deepEqual(await (await onward.start(remembered, "a")).result(), first);
  assert.equal(await onward.invalidateMemos({ prefix: "page/" }), 1);
  assert.equal(await onward.invalidateMemos({ key: "page/a" }), 0);
  const [page, step] = await (await onward.start(remembered, "a")).result();
  assert.deepEqual([page === first[0], step], [false, first[1]]);
});

test("a promise is found by its key", async () => {
  const found = (key: string): Promise<string | undefined> =>
    onward.findPromise(key).catch((error: Failure) => {
      assert.equal(error.code, "promise_key_not_found");
      return undefined;
    });
  assert.equal(await found("payment/42"), undefined);
  const run = await onward.start(keyed, "payment/42");
  let promise: string | undefined;
  while (promise === undefined) promise = await found("payment/42");
  await onward.resolve(promise, "paid", { id: "hook-1" });
  assert.equal(await run.result(), "paid");
});
