/** Schemas of outputs, signals, updates and their answers. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { OnwardError, RunFailed, signal, workflow } from "onward";
import { z } from "zod";
import { failureOf, inMemory } from "./kit.js";

const Payment = z.object({ cents: z.int() });
const payment = signal<z.infer<typeof Payment>>("payment");

const paid = workflow(
  "paid",
  async (ctx) => {
    let total = 0;
    ctx.update<number>("add", (by) => (total += by));
    return (await ctx.signal(payment).recv()).cents + total;
  },
  { signals: { payment: Payment }, updates: { add: { type: "integer", minimum: 1 } }, outputSchema: { type: "integer", maximum: 100 } },
);

const answers = workflow(
  "answers",
  async (ctx) => {
    ctx.update<number>("add", (by) => by + 1);
    ctx.update<unknown>("pay", async (cents) => ({ cents: await ctx.step("weigh", () => cents) }));
    return await ctx.signal<string>("end").recv();
  },
  { updateAnswers: { add: { type: "integer", maximum: 9 }, pay: Payment } },
);

const onward = await inMemory({ workflows: [paid, answers] });

const codeOf = (refused: Promise<unknown>) =>
  refused.then(
    () => assert.fail("it was accepted"),
    (error: unknown) => (error as OnwardError).code,
  );

test("signals and updates of callers are checked where they enter", async () => {
  const run = await onward.start(paid);
  assert.equal(await codeOf(run.signal("payment", { cents: "many" })), "signal_invalid");
  assert.equal(await codeOf(run.update("add", 0)), "update_invalid");
  assert.equal(await run.update("add", 5), 5);
  await run.signal(payment, { cents: 2 });
  assert.equal(await run.result(), 7);
});

test("an output that does not fit fails the run", async () => {
  const run = await onward.start(paid);
  await run.signal(payment, { cents: 101 });
  assert.equal((await failureOf(run)).code, "output_invalid");
});

test("an answer of an update that does not fit fails the update, and the run continues", async () => {
  const run = await onward.start(answers);
  assert.equal(await run.update("add", 5), 6);
  assert.deepEqual(await run.update("pay", 5), { cents: 5 });
  for (const [name, input] of [["add", 20], ["pay", "many"]] as const) {
    await assert.rejects(run.update(name, input), (error: RunFailed) => {
      assert.equal(error.failure.code, "output_invalid");
      assert.match(error.message, new RegExp(`\`${name}\``));
      return true;
    });
  }
  await run.signal("end", "done");
  assert.equal(await run.result(), "done");
});
