/** A person decides; without a decision, the expense is refused after three days. */

import { Onward, workflow } from "onward";

const expense = workflow("expense", async (ctx, amount: number) => {
  const decision = ctx.approval("pay", { title: `Pay ${amount} euros?`, show: { amount }, within: { days: 3 } });
  ctx.state.set("approval", decision.id);
  const { approved, decidedBy } = await decision;
  if (!approved) return "refused";
  return await ctx.step("pay", () => `paid ${amount} euros, approved by ${decidedBy}`);
});

await using onward = await Onward.embedded("memory:", { workflows: [expense] });
const run = await onward.start(expense, 42);
await run.waitForState("approval");
await onward.approve((await run.state<string>("approval"))!, { decidedBy: "Grace" });
console.log(await run.result());
