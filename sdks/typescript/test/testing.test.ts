/** The test kit, with tests that must fail. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Onward, task, workflow, type Ctx } from "onward";
import { Diverged, TestKit } from "onward/testing";

const label = task("label", async (paid: string) => `label: ${paid}`);

const order = workflow("order", async (ctx: Ctx, item: string) => {
  const paid = await ctx.step("charge", () => `paid for ${item}`, { retry: 3 });
  const first = await ctx.select({ payment: ctx.signal<number>("payment").recv(), late: ctx.sleep({ days: 3 }) });
  if (first.key === "late") return "too late";
  const { approved } = await ctx.approval("ship", { title: "Ship it?" });
  return approved ? ctx.task(label, `${paid} ${first.value}`) : "refused";
});

let executions = 0;
const careless = workflow("careless", async (ctx: Ctx) => {
  // A global counter differs from one execution to the next.
  await ctx.step(`execution ${executions++}`, () => 1);
  await ctx.sleep({ seconds: 1 });
  return "done";
});

const kit = await TestKit.open({ workflows: [order, careless], tasks: [label] });

test("a script answers, in virtual time", async () => {
  const outcome = await kit.play(order, "tea", {
    steps: { charge: [new Error("busy"), "scripted"] },
    signals: [{ name: "payment", value: 42, after: { days: 2 } }],
    approvals: { ship: [{ approved: true, after: { hours: 1 } }] },
    tasks: { label: "function" },
  });
  assert.equal(outcome.value, "label: scripted 42");
  assert(outcome.elapsedMs > 2 * 86_400_000);
  const late = await kit.play(order, "tea", {});
  assert.deepEqual([late.value, late.stepsRun], ["too late", ["charge"]]);
  const open = await kit.play(order, "tea", { signals: [{ name: "payment" }] });
  assert(open.isOpen && open.waitsFor.some((wait) => wait.includes("ship")), JSON.stringify(open.waitsFor));
  const failed = await kit.play(order, "tea", { steps: { charge: [new TypeError("no card")] } });
  assert.deepEqual([failed.failure?.name, failed.failure?.message], ["TypeError", "no card"]);
});

test("crashes after every commit change nothing", async () => {
  const script = { signals: [{ name: "payment", value: 1 }], approvals: { ship: [{ approved: true }] }, tasks: { label: ["printed"] } };
  for (const check of ["crash everywhere", "deterministic", { schedules: 20 }] as const) {
    assert.equal((await kit.play(order, "tea", { ...script, check })).value, "printed");
  }
});

test("a check fails for code that is not deterministic", async () => {
  await assert.rejects(kit.play(careless, undefined, { check: "crash everywhere" }), { name: "OnwardError", code: "check_failed" });
  await assert.rejects(kit.play(careless, undefined, { check: "deterministic" }), { name: "OnwardError", code: "check_failed" });
});

test("a recorded log replays with its code, and diverges from other code", async () => {
  await using onward = await Onward.embedded("memory:", { workflows: [order], tasks: [label] });
  const run = await onward.start(order, "tea", { id: "recorded" });
  await run.signal("payment", 5);
  await run.waitForStatus("waiting");
  const records = await run.log();
  await kit.replay(order, run.id, records);
  await assert.rejects(kit.replay(careless, run.id, records), Diverged);
});

test.after(() => kit.close());
