/** Structured answers of approvals: typed in the code, checked where they enter. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { workflow } from "onward";
import { TestKit } from "onward/testing";
import { z } from "zod";
import { inMemory } from "./kit.js";

const Payment = z.object({ cents: z.number().int().min(1), account: z.enum(["main", "savings"]), note: z.string().default("none") });

const pay = workflow("pay", async (ctx) => {
  const asked = ctx.approval("pay", { title: "Pay?", answer: Payment });
  ctx.state.set("id", asked.id);
  const { approved, answer, feedback } = await asked;
  if (!approved) return `rejected: ${String(feedback)}, ${typeof answer}`;
  return `${answer?.cents} from ${answer?.account}, ${answer?.note}`;
});

const count = workflow("count", async (ctx) => {
  const asked = ctx.approval<number>("count", { title: "How many?", answer: { type: "integer", minimum: 1 } });
  ctx.state.set("id", asked.id);
  return (await asked).answer;
});

const onward = await inMemory({ workflows: [pay, count] });

async function approvalOf(id: string): Promise<string> {
  const run = onward.run(id);
  await run.waitForState("id");
  return (await run.state("id")) as string;
}

test("an answer has the type of its schema, and one that does not fit is refused", async () => {
  const run = await onward.start(pay, undefined, { id: "r" });
  const approval = await approvalOf("r");
  for (const answer of [undefined, 7, { cents: 0, account: "main" }, { cents: 7, account: "mine" }]) {
    await assert.rejects(onward.approve(approval, { answer }), { name: "OnwardError", code: "answer_invalid" });
  }
  await assert.rejects(onward.approve(approval, { answer: { cents: 7, account: "mine" } }), /\/account/);
  await onward.approve(approval, { answer: { cents: 7, account: "main" } });
  assert.equal(await run.result(), "7 from main, none");
});

test("a JSON schema is a schema, too", async () => {
  const run = await onward.start(count, undefined, { id: "c" });
  const approval = await approvalOf("c");
  await assert.rejects(onward.approve(approval, { answer: 0 }), { code: "answer_invalid" });
  await onward.approve(approval, { answer: 3 });
  assert.equal(await run.result(), 3);
});

test("a rejection has no answer", async () => {
  const run = await onward.start(pay, undefined, { id: "rejected" });
  await onward.disapprove(await approvalOf("rejected"), { feedback: "too early" });
  assert.equal(await run.result(), "rejected: too early, undefined");
});

test("a script answers with a value that fits", async () => {
  await using kit = await TestKit.open({ workflows: [pay] });
  const played = (approval: object) => kit.play(pay, undefined, { approvals: { pay: [{ approved: true, ...approval }] } });
  assert.equal((await played({ answer: { cents: 5, account: "savings", note: "x" } })).value, "5 from savings, x");
  assert.equal((await played({ answer: { cents: 5 } })).failure?.code, "answer_invalid");
  assert.equal((await played({})).failure?.code, "answer_invalid");
});
