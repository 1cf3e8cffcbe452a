/** What callers and operators do with runs and tasks. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Canceled, Onward, task, workflow } from "onward";
import { directory, failureOf, inMemory } from "./kit.js";

let broken = true;
const calls: string[] = [];

const fragile = workflow("fragile", async (ctx, name: string) => {
  const first = await ctx.step("first", () => (calls.push("first"), name));
  const second = await ctx.step("second", () => {
    if (broken) throw new Error("broken");
    return "mended";
  });
  return `${first} ${second}`;
});

const idle = workflow("idle", async (ctx, name: string) => {
  ctx.state.set("name", name);
  return `${name} ${await ctx.signal<string>("go").recv()}`;
});

const aborted: unknown[] = [];
const slow = task("slow", (_: null, task) => new Promise((_, fail) => {
  task.heartbeat({ percent: 50 });
  task.spend({ provider: "p", model: "m", input: 3, output: 4, cost: "0.01" });
  task.signal.addEventListener("abort", () => {
    aborted.push(task.isCanceled());
    fail(task.signal.reason as Error);
  });
}));

const stops = workflow("stops", async (ctx) => {
  const running = ctx.task(slow, null);
  await ctx.sleep({ milliseconds: 30 });
  const outcome = running.cancel();
  const failed = await running.catch((error: unknown) => error);
  const child = ctx.child(idle, "child");
  child.cancel();
  const ended = await child.catch((error: unknown) => error);
  return [outcome, failed instanceof Canceled, ended instanceof Canceled];
});

const quick = task("quick", (n: number) => n + 1);

const workflows = [fragile, idle, stops];
const onward = await inMemory({ workflows, tasks: [slow, quick] });

test("a failed run is retried, forked and reset: recorded steps do not run again", async () => {
  const run = await onward.start(fragile, "a", { id: "fragile" });
  assert.equal((await failureOf(run)).message, "broken");
  broken = false;
  await run.retry({ reason: "mended" });
  assert.equal(await run.result(), "a mended");
  const fork = await run.fork({ id: "forked", reason: "look" });
  assert.equal(await fork.result(), "a mended");
  assert.deepEqual(calls, ["first"]);
});

test("runs are paused, resumed and terminated", async () => {
  const run = await onward.start(idle, "paused", { id: "paused" });
  await run.waitForStatus("waiting");
  await run.pause("wait");
  await run.signal("go", "later");
  assert.equal(await run.status(), "paused");
  await run.resume();
  assert.equal(await run.result(), "paused later");
  const ended = await onward.start(idle, "ended");
  await ended.terminate("enough");
  assert.equal((await failureOf(ended)).code, "terminated");
});

test("the start of a run is idempotent by its id", async () => {
  const [one, two] = [await onward.start(idle, "once", { id: "once" }), await onward.start(idle, "once", { id: "once" })];
  assert.equal(one.id, two.id);
  await assert.rejects(onward.start(idle, "other", { id: "once" }), { name: "OnwardError", code: "run_exists" });
  const signaled = await onward.start(idle, "with", { signal: { name: "go", payload: "a signal" } });
  assert.equal(await signaled.result(), "with a signal");
});

test("runs are listed by kind and attribute", async () => {
  for (const plan of ["pro", "free", "pro"]) await onward.start(idle, plan, { attributes: { plan, seats: 3, paid: true } });
  const listed: string[] = [];
  for await (const run of onward.listRuns({ kind: "idle", attributes: { plan: "pro" } })) listed.push(run.id);
  assert.equal(listed.length, 2);
  for await (const run of onward.listRuns({ attributes: { plan: "none" } })) assert.fail(run.id);
  const view = await onward.run(listed[0]!).view();
  assert.deepEqual([view.kind, view.input, view.attributes], ["idle", "pro", { plan: "pro", seats: 3, paid: true }]);
});

test("tasks beat, spend, and stop when their run no longer needs them", async () => {
  assert.deepEqual(await (await onward.start(stops)).result(), ["canceled", true, true]);
  // The cancel request reaches the function with the next heartbeat of its worker.
  while (aborted.length === 0) await new Promise((resolve) => setTimeout(resolve, 2));
  assert.deepEqual(aborted, [true]);
});

test("standalone tasks", async () => {
  const handle = await onward.startTask(quick, 4, { id: "quick" });
  assert.equal(await handle.result(), 5);
  assert.equal((await handle.view()).kind, "quick");
  const running = await onward.startTask(slow, null);
  while ((await running.view()).status === "queued") await new Promise((resolve) => setTimeout(resolve, 2));
  await running.cancel("enough");
  await assert.rejects(running.result(), { name: "RunFailed" });
});

test("readers see what happens, and may leave", async () => {
  const run = await onward.start(idle, "watched");
  const seen: string[] = [];
  const watching = (async () => {
    for await (const { content } of run.watch()) seen.push(...Object.keys(content));
  })();
  await run.waitForStatus("waiting");
  for await (const record of run.attach()) {
    assert.equal(record.index, 0);
    break;
  }
  await run.signal("go", "on");
  await run.result();
  await watching;
  assert(seen.includes("snapshot") && seen.includes("log"), seen.join());
  assert.equal(onward.stats()[2], 0);
});

test("runs on demand are executed by their callers", async () => {
  await using host = await Onward.embedded(directory(), { workflows: [idle], onDemand: true });
  const run = await host.start(idle, "driven");
  assert.equal((await run.drive()).state, "waiting");
  const { state, output } = await run.drive({ signal: { name: "go", payload: "here", id: "1" } });
  assert.deepEqual([state, output], ["ended", "driven here"]);
});

test("a delayed run waits for its start and is canceled without running code", async () => {
  await using onward = await inMemory({ workflows: [idle] });
  const due = new Date(Date.now() + 3_600_000);
  const run = await onward.start(idle, "late", { at: due });
  const { status, awaiting } = await run.view();
  assert.deepEqual([status, awaiting[0]?.kind, awaiting[0]?.deadline], ["waiting", "start", due.toISOString()]);
  await run.cancel("not needed");
  assert.match((await failureOf(run)).message, /not needed/);
  await assert.rejects(onward.start(idle, "both", { at: due, after: { seconds: 1 } }), { code: "start_time_invalid" });
});

test("a run begins in its queue, and a place without a queue is refused", async () => {
  await using onward = await inMemory({ workflows: [idle] });
  const run = await onward.start(idle, "first", { queue: "deploys", key: "shop", priority: 2 });
  await run.terminate("enough");
  await assert.rejects(onward.start(idle, "second", { key: "shop" }), { code: "run_queue_invalid" });
});

test("a run is canceled at its deadline", async () => {
  await using onward = await inMemory({ workflows: [idle] });
  const run = await onward.start(idle, "late", { deadline: { milliseconds: 20 } });
  assert.match((await failureOf(run)).message, /its deadline has passed/);
});
