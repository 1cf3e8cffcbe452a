/** Promise combinators: answers come one at a time, in the order of the log, so a replay sees the same winners. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { workflow, type Ctx } from "onward";
import { inMemory } from "./kit.js";

/** Awaits through several native promises, which takes many microtasks. */
async function deep<T>(promise: Promise<T>, depth = 7): Promise<T> {
  return depth === 0 ? await promise : await deep(promise.then((value) => value), depth - 1);
}

const orders = workflow("orders", async (ctx: Ctx, names: string[]) => {
  const order: string[] = [];
  const wait = async (name: string): Promise<string> => {
    const value = await deep(ctx.signal<string>(name).recv(), order.length % 5);
    order.push(name);
    await ctx.step(`note ${name}`, () => name);
    order.push(`${name}'`);
    return value;
  };
  await Promise.all(names.map(wait));
  return order;
});

const winners = workflow("winners", async (ctx: Ctx) => {
  const [a, b] = [ctx.signal<string>("a").recv(), ctx.signal<string>("b").recv()];
  const race = await Promise.race([a, b]);
  const any = await Promise.any([ctx.step("fails", () => Promise.reject(new Error("no"))), ctx.step("works", () => "any")]);
  const settled = await Promise.allSettled([a, b, ctx.step("throws", () => { throw new Error("thrown"); })]);
  const none = await Promise.any([ctx.step("n", () => { throw new Error("n"); })]).catch((error: AggregateError) => error.errors.length);
  return { race, any, settled: settled.map((one) => (one.status === "fulfilled" ? one.value : String(one.reason))), none };
});

const losers = workflow("losers", async (ctx: Ctx) => {
  const won = await ctx.select({ signal: ctx.signal<string>("slow").recv(), timer: ctx.sleep({ milliseconds: 5 }) });
  const dropped = await ctx.race([ctx.signal<string>("dropped").recv(), ctx.step("quick", () => "step")]);
  const late = await ctx.timeout(ctx.signal("never").recv(), { milliseconds: 5 }).catch((error: { code: string }) => error.code);
  const soon = await ctx.timeout(ctx.step("soon", () => "soon"), { days: 1 });
  const refused = await ctx.race([ctx.sleep({ days: 1 }).then(() => 1)]).catch((error: Error) => error.message);
  // The losers have left their signals in the mailbox, and their timers do not hold the run.
  await ctx.signal("go").recv();
  return { won: won.key, dropped, late, soon, refused, kept: ctx.signal("dropped").drain() };
});

const fanOut = workflow("fan-out", async (ctx: Ctx, count: number) => {
  const parts = Array.from({ length: count }, (_, n) => ctx.step(`part ${n % 3}`, async () => n));
  return (await Promise.all(parts)).reduce((sum, n) => sum + n, 0);
});

const onward = await inMemory({ workflows: [orders, winners, losers, fanOut], cachedRunsMax: 1 });

test("answers arrive in the order of the log, each with all that it causes", async () => {
  const names = ["a", "b", "c", "d", "e"];
  const runs = await Promise.all([1, 2, 3].map((n) => onward.start(orders, names, { id: `orders-${n}` })));
  // Signals that are in the mailbox already answer the calls in the order of the calls.
  for (const run of runs) await run.waitForStatus("waiting");
  for (const name of [...names].reverse()) for (const run of runs) await run.signal(name, name);
  for (const run of runs) {
    const order = await run.result();
    assert.deepEqual(order.filter((name) => !name.endsWith("'")), ["e", "d", "c", "b", "a"]);
    assert.equal(order.length, 10);
  }
});

test("race, any and allSettled", async () => {
  const run = await onward.start(winners, undefined, { id: "winners" });
  await run.signal("b", "second");
  await run.waitForStatus("waiting");
  await run.signal("a", "first");
  assert.deepEqual(await run.result(), { race: "second", any: "any", settled: ["first", "second", "Error: thrown"], none: 1 });
});

test("select and race of ctx give up the losers: their signals stay", async () => {
  const run = await onward.start(losers, undefined, { id: "losers" });
  await run.waitForStatus("waiting");
  await run.signal("dropped", "kept");
  await run.signal("go");
  const { won, dropped, late, soon, refused, kept } = await run.result();
  assert.deepEqual([won, late, soon], ["timer", "timed_out", "soon"]);
  assert.match(String(refused), /`0` is not a call of `ctx` itself/);
  assert(dropped === "step" ? kept.length === 1 : kept.length === 0);
});

test("hundreds of steps at once", async () => {
  assert.equal(await (await onward.start(fanOut, 300)).result(), 44_850);
});
