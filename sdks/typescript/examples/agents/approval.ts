/** A dangerous tool waits for a person, who sees the exact arguments of the call. */

import { setTimeout as delay } from "node:timers/promises";
import { Agent, Onward, tool, type RunHandle } from "onward";
import { z } from "zod";
import { directory } from "../directory.js";
import { model, models } from "./model.js";

const refund = tool(
  "refund",
  {
    description: "Pays money back",
    input: z.object({ order: z.string(), cents: z.int() }),
    // If the worker dies during a payment, its outcome is unknown, and it is not tried again.
    effect: "at_most_once",
    needsApproval: true,
  },
  ({ order, cents }) => {
    console.log(`  (paying ${cents} cents back for ${order})`);
    return `refunded ${cents} cents`;
  },
);

const cashier = new Agent("cashier", { model, tools: [refund] });

/** Waits until the run asks, and returns the id of its approval: a run also waits while its model answers. */
async function question(run: RunHandle): Promise<string> {
  for (;;) {
    const approval = (await run.view()).awaiting.find(({ kind }) => kind === "approval");
    if (approval !== undefined) return approval.id;
    await delay(10);
  }
}

interface Page {
  waits: { title: string; show: { json: unknown } }[];
}

await using onward = await Onward.embedded(directory(), { agents: [cashier], models: models() });
for (const [id, isApproved] of [["first", true], ["second", false]] as const) {
  const run = await onward.start(cashier, 'Please use refund {"order": "A-17", "cents": 1900}', { id });
  const approval = await question(run);
  for (const { title, show } of (await onward.execute<Page>("list_approvals")).waits) {
    console.log(`${id}: ${title} ${JSON.stringify(show.json)}`);
  }
  if (isApproved) await onward.approve(approval);
  else await onward.disapprove(approval, { feedback: "over the limit" });
  console.log(`${id}: ${(await run.result()).text}`);
}
