/** The same programs over a server, and keys. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { Onward, OnwardError, task, workflow } from "onward";
import { command, directory, server } from "./kit.js";

const double = task("double", async (n: number) => 2 * n);
const order = workflow("order", async (ctx, item: string) => {
  const paid = await ctx.step("charge", async () => `paid for ${item}`);
  ctx.state.set("paid", paid);
  const [payment, doubled] = await Promise.all([ctx.signal<number>("payment").recv(), ctx.task(double, 21)]);
  await ctx.sleep({ milliseconds: 10 });
  return `${paid} ${payment} ${doubled}`;
});

test("workflows, tasks and clients over HTTP", async () => {
  const url = await server();
  await using worker = await Onward.connect(url, { workflows: [order], tasks: [double] });
  await using caller = await Onward.connect(url);
  const run = await caller.start(order, "a teapot", { id: "order-1" });
  assert.equal(run.id, "order-1");
  await run.waitForState("paid", "paid for a teapot");
  await run.signal("payment", 7, { id: "p-1" });
  await run.signal("payment", 7, { id: "p-1" });
  assert.equal(await run.result(), "paid for a teapot 7 42");
  const events: string[] = [];
  for await (const record of run.attach()) events.push(JSON.stringify(record));
  assert(events.length > 5);
  assert.equal(await (await caller.startTask(double, 4, { id: "task-1" })).result(), 8);
  const runs = await Promise.all(Array.from({ length: 50 }, (_, n) => worker.start(order, `item ${n}`)));
  await Promise.all(runs.map((run) => run.signal("payment", 1)));
  assert.equal((await Promise.all(runs.map((run) => run.result()))).length, 50);
  await assert.rejects(caller.run("unknown").result(), { name: "OnwardError", code: "run_not_found" });
});

test("keys: each may do what its scope permits", async () => {
  const keys = join(directory(), "keys.json");
  const key = (name: string, scope: string): string => command("key", "create", "--keys", keys, "--name", name, "--scope", scope).trim();
  const [work, start, read] = [key("worker", "work"), key("starter", "start,signal,read"), key("reader", "read")];
  const url = await server(["--keys", keys]);
  await using worker = await Onward.connect(url, { key: work, workflows: [order], tasks: [double] });
  await using starter = await Onward.connect(url, { key: start });
  await using reader = await Onward.connect(url, { key: read });
  const run = await starter.start(order, "tea");
  await run.signal("payment", 1);
  assert.equal(await reader.run(run.id).result(), "paid for tea 1 42");
  await assert.rejects(reader.start(order, "tea"), { name: "OnwardError", code: "not_allowed" });
  await assert.rejects(worker.start(order, "tea"), { name: "OnwardError", code: "not_allowed" });
  await assert.rejects(async () => {
    await using nothing = await Onward.connect(url, { key: "onward_wrong" });
    await nothing.start(order, "tea");
  }, { name: "OnwardError" });
});

test("a start that a quota refuses names the time of the next attempt", async () => {
  const url = await server();
  const body = JSON.stringify({ start_rate: { starts_max: 1, period_ms: 3_600_000 } });
  const headers = { "content-type": "application/json" };
  assert.equal((await fetch(`${url}/v1/quotas/limited`, { method: "PUT", body, headers })).status, 200);
  await using caller = await Onward.connect(url, { namespace: "limited" });
  await caller.start(order, "a teapot", { id: "q-1" });
  await assert.rejects(caller.start(order, "a teapot", { id: "q-2" }), (error: OnwardError) => {
    assert.deepEqual([error.code, error.status], ["quota_exceeded", 429]);
    assert((error.retryAfterMs ?? 0) > 3_000_000, String(error.retryAfterMs));
    return true;
  });
});
