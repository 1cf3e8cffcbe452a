/** An approval with a deadline: decided exactly once, or expired. */

import { Onward, OnwardError, workflow, type RunHandle } from "onward";
import { directory } from "./directory.js";

const refund = workflow("refund", async (ctx, cents: number) => {
  const title = `Refund ${cents} cents?`;
  const decision = await ctx.approval("refund", { title, show: cents, deciders: ["ada", "grace"], within: { seconds: 2 } });
  if (decision.approved) return `${await ctx.step("pay", () => pay(cents))} by ${decision.decidedBy}`;
  if (decision.expired) return "no decision in time";
  return `refused by ${decision.decidedBy}: ${decision.feedback}`;
});

async function pay(cents: number): Promise<string> {
  return `paid ${cents} cents`;
}

/** Waits until the run has requested its approval and returns the id. */
async function question(run: RunHandle<string>): Promise<string> {
  const { awaiting } = await run.waitForStatus("waiting");
  return awaiting[0]?.id ?? "nothing";
}

/** Prints the error of a decision that is refused. */
async function refused(who: string, decision: Promise<unknown>): Promise<void> {
  try {
    await decision;
  } catch (error) {
    if (!(error instanceof OnwardError)) throw error;
    console.log(`${who}: error[${error.code}]: ${error.message}`);
  }
}

await using onward = await Onward.embedded(directory(), { workflows: [refund] });

const first = await onward.start(refund, 500, { id: "refund-1" });
const approval = await question(first);
console.log(`asked: ${approval}`);
await onward.approve(approval, { feedback: "fine", decidedBy: "ada", id: "click of ada" });
console.log(await first.result());
const late = onward.disapprove(approval, { feedback: "too much", decidedBy: "grace", id: "click of grace" });
await refused("grace came too late", late);

const second = await onward.start(refund, 900, { id: "refund-2" });
await refused("mallory may not", onward.approve(await question(second), { decidedBy: "mallory" }));
console.log(await second.result());
