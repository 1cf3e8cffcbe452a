/** Middleware: the deterministic part is code of the run, the other surrounds real attempts. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Agent, Failure, Onward, RunFailed, rateLimit, redaction, task, timing, tool, workflow, type AttemptCall, type Middleware, type Timed } from "onward";
import { Diverged, TestKit } from "onward/testing";
import { directory, inMemory, pauseOf, scriptedModel } from "./kit.js";

function notes(name: string, seen: string[]): Middleware {
  return {
    async run(call, next) {
      seen.push(`${name} run ${call.kind} ${JSON.stringify(call.input)}`);
      const result = await next(call);
      seen.push(`${name} run ended`);
      return result;
    },
    async attempt(call, next) {
      seen.push(`${name} ${call.kind} ${call.name} ${call.attempt} ${JSON.stringify(call.input)}`);
      const result = await next(call);
      seen.push(`${name} got ${JSON.stringify(result)}`);
      return result;
    },
  };
}

const double = task("double", (n: number) => 2 * n);

test("middlewares surround runs and attempts in order, and a restart repeats no attempt", async () => {
  const pay = workflow("pay", async (ctx, cents: number) => {
    const doubled = await ctx.task(double, cents);
    await ctx.signal("go").recv();
    return ctx.step("charge", () => `paid ${doubled}`, { input: "teapot" });
  });
  const seen: string[] = [];
  const options = { workflows: [pay], tasks: [double], middleware: [notes("outer", seen), notes("inner", seen)] };
  const path = directory();
  {
    await using onward = await Onward.embedded(path, options);
    const run = await onward.start(pay, 5, { id: "p" });
    await run.waitForStatus("waiting");
  }
  await using onward = await Onward.embedded(path, options);
  const run = onward.run<string>("p");
  await run.signal("go");
  assert.equal(await run.result(), "paid 10");
  const attempts = seen.filter((note) => !note.includes(" run "));
  assert.deepEqual(attempts, [
    "outer task double 1 5",
    "inner task double 1 5",
    "inner got 10",
    "outer got 10",
    'outer step charge 1 "teapot"',
    'inner step charge 1 "teapot"',
    'inner got "paid 10"',
    'outer got "paid 10"',
  ]);
  assert.deepEqual(
    seen.filter((note) => note.includes("run pay")),
    ["outer run pay 5", "inner run pay 5", "outer run pay 5", "inner run pay 5"],
    "the replay runs it again",
  );
  assert.deepEqual(seen.slice(-2), ["inner run ended", "outer run ended"]);
});

const changes: Middleware = {
  async run(call, next) {
    const tenant = await call.ctx.step("tenant", () => "acme");
    call.ctx.state.set("tenant", tenant);
    try {
      return `${tenant} ${String(await next({ ...call, input: (call.input as number) * 10 }))}`;
    } catch (error) {
      if (error instanceof Failure && error.code === "harmless") return "harmless";
      throw error;
    }
  },
  async attempt(call, next) {
    const result = await next(call.kind === "task" ? { ...call, input: (call.input as number) + 1 } : call);
    return call.name === "doubled" ? 2 * (result as number) : result;
  },
};

const changed = workflow("changed", async (ctx, n: number): Promise<number> => {
  const doubled = await ctx.step("doubled", () => n + 1);
  await ctx.sleep({ minutes: 1 });
  if (n === 20) throw new Failure("no", { code: "harmless" });
  return doubled;
});

test("the code sees what a middleware returns, live and replayed", async () => {
  await using kit = await TestKit.open({ workflows: [changed], middleware: [changes] });
  const outcome = await kit.play(changed, 1, { check: "crash everywhere" });
  assert.equal(outcome.value, "acme 22");
  assert.deepEqual((await kit.play(changed, 1)).stepsRun, ["tenant", "doubled"]);
  assert.equal((await kit.play(changed, 2)).value, "harmless");
  await kit.replay(changed, "test", outcome.logs[0]!);
  await using plain = await TestKit.open({ workflows: [changed] });
  await assert.rejects(plain.replay(changed, "test", outcome.logs[0]!), (error) => error instanceof Diverged && /tenant/.test(error.message));
});

test("a middleware changes the input of a task", async () => {
  const code = workflow("w", (ctx, n: number) => ctx.task(double, n));
  const onward = await inMemory({ workflows: [code], tasks: [double], middleware: [changes] });
  assert.equal(await (await onward.start(code, 1)).result(), "acme 22");
});

test("a clock in the deterministic part pauses the run", async () => {
  const looks: Middleware = { run: (call, next) => (Date.now() > 0 ? next(call) : next(call)) };
  const onward = await inMemory({ workflows: [changed], middleware: [looks] });
  assert.match(await pauseOf(await onward.start(changed, 1)), /ctx\.now/);
});

test("an attempt whose middleware fails is retried", async () => {
  const breaks: Middleware = {
    attempt(call, next) {
      if (call.attempt === 1) throw new Error("the middleware broke");
      return next(call);
    },
  };
  const code = workflow("w", async (ctx) => {
    const failed = await ctx.step("once", () => 1).catch((error: unknown) => String(error));
    return [failed, await ctx.step("twice", () => 2, { retry: 2 })];
  });
  const onward = await inMemory({ workflows: [code], middleware: [breaks] });
  assert.deepEqual(await (await onward.start(code)).result(), ["Error: the middleware broke", 2]);
});

test("a refused attempt does not run, and is retried", async () => {
  const ran: number[] = [];
  const call = task("call", (n: number) => (ran.push(n), n));
  const code = workflow("w", async (ctx) => {
    const first = await ctx.task(call, 7);
    const other = await ctx.task(call, 8);
    const refused = await ctx.task(call, 7, { retry: 1 }).then(
      () => assert.fail("it is refused"),
      (error: unknown) => error as Failure,
    );
    assert.deepEqual([refused.code, refused.retryable], ["attempt_rate_limited", true]);
    assert(refused.retryAfterMs !== undefined && refused.retryAfterMs > 0 && refused.retryAfterMs <= 200);
    return first + other + (await ctx.task(call, 7, { retry: 5 }));
  });
  const key = (call: AttemptCall): string | undefined => (call.name === "call" ? JSON.stringify(call.input) : undefined);
  const limit = rateLimit({ count: 1, per: { milliseconds: 200 }, key, waitMax: {} });
  const onward = await inMemory({ workflows: [code], tasks: [call], middleware: [limit] });
  assert.equal(await (await onward.start(code)).result(), 22);
  assert.deepEqual(ran, [7, 8, 7]);
});

test("a rate limit is a bucket for each key, and a refused attempt takes no turn", async () => {
  let now = 100_000;
  const call = (name: string): AttemptCall => ({ kind: "step", name, run: "r", attempt: 1, idempotencyKey: "k", input: null, mute: () => {} });
  const limit = rateLimit({ count: 2, per: { seconds: 1 }, waitMax: {}, clock: () => now });
  const begins = (name: string): Promise<boolean> => limit.attempt!(call(name), async () => true).then(() => true, () => false);
  assert.deepEqual([await begins("a"), await begins("a"), await begins("a"), await begins("b")], [true, true, false, true]);
  now += 500;
  assert.deepEqual([await begins("a"), await begins("a")], [true, false]);
  assert.throws(() => rateLimit({ count: 0, per: { seconds: 1 } }), RangeError);
});

test("redaction applies to results, failures, recorded inputs and outputs", async () => {
  const code = workflow("w", async (ctx) => {
    const paid = await ctx.step("pay", () => ({ Card: 411122223333, ok: 1.5 }), { input: { card: "411122223333", n: 1 }, record: true });
    const failed = await ctx.step("fails", () => Promise.reject(new Error("card 411122223333 declined"))).catch((error: unknown) => (error as Error).message);
    return ["card 411122223333", paid, failed];
  });
  const hides = redaction({ fields: ["card"], text: (text) => text.replaceAll("411122223333", "****") });
  const onward = await inMemory({ workflows: [code], middleware: [hides] });
  const run = await onward.start(code);
  assert.deepEqual(await run.result(), ["card ****", { Card: "[redacted]", ok: 1.5 }, "card **** declined"]);
  const log = JSON.stringify(await run.log());
  assert(!log.includes("411122223333") && log.includes('"n":1'), log);
});

test("an input is recorded only on request, also with middlewares", async () => {
  const code = workflow("w", (ctx) => ctx.step("s", () => 1, { input: "not to be recorded" }));
  const onward = await inMemory({ workflows: [code], middleware: [redaction({})] });
  const run = await onward.start(code);
  await run.result();
  assert(!JSON.stringify(await run.log()).includes("not to be recorded"));
});

test("timing reports each attempt, and records the time of the run", async () => {
  const seen: Timed[] = [];
  const code = workflow("w", (ctx) => ctx.step("s", () => 1));
  const failing = workflow("f", (ctx) => ctx.step("s", () => Promise.reject(new Failure("no", { code: "mine" }))));
  const onward = await inMemory({ workflows: [code, failing], middleware: [timing((timed) => seen.push(timed), { runState: "took_ms" })] });
  const run = await onward.start(code);
  await run.result();
  assert((((await run.view()).state as Record<string, number>)["took_ms"] ?? -1) >= 0);
  await assert.rejects((await onward.start(failing)).result(), RunFailed);
  assert.deepEqual(seen.map(({ kind, name, attempt, failed }) => [kind, name, attempt, failed]), [["step", "s", 1, undefined], ["step", "s", 1, "mine"]]);
});

test("model calls and tools pass middlewares, and nothing that is redacted leaves", async () => {
  const url = await scriptedModel();
  const seen: AttemptCall[] = [];
  let isRefused = false;
  const sees: Middleware = {
    attempt(call, next) {
      if (call.kind === "model_call" && !isRefused) {
        isRefused = true;
        throw new Failure("not now", { retryAfterMs: 1 });
      }
      seen.push(call);
      return next(call);
    },
  };
  const input = { type: "object", properties: { city: { type: "string" } } };
  const weather = tool("weather", { description: "The weather", input }, ({ city }) => `sunny in ${String(city)}, card 411122223333`);
  const onward = await inMemory({
    agents: [new Agent("helper", { model: "scripted", system: "Never say 411122223333.", tools: [weather] })],
    models: { providers: { local: { api_format: "openai", base_url: `${url}/v1` } }, models: { scripted: { provider: "local" } } },
    middleware: [redaction({ text: (text) => text.replaceAll("411122223333", "****") }), sees],
  });
  const run = await onward.start("helper", 'weather {"city":"Ulm"}');
  const outcome = (await run.result()) as { text: string };
  assert(isRefused);
  assert.deepEqual(seen.slice(0, 2).map(({ kind, name }) => [kind, name]), [["model_call", "scripted"], ["tool", "weather"]]);
  assert.deepEqual(seen[1]?.input, { city: "Ulm" });
  assert.match(outcome.text, /^weather says: sunny in Ulm/);
  assert(!JSON.stringify([outcome, seen]).includes("411122223333"), JSON.stringify(seen));
});
