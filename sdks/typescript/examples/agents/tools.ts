/** An agent function of one's own, turn by turn, with tools whose arguments a schema describes. */

import { Onward, agent, tool } from "onward";
import { z } from "zod";
import { directory } from "../directory.js";
import { model, models } from "./model.js";

// A schema of valibot, arktype or another library of Standard Schema does it, too. The model receives the descriptions.
const where = z.object({ city: z.string().describe("A city, without its country") });

const weather = tool("weather", { description: "Tells the weather in a city", input: where, effect: "pure" }, ({ city }) => {
  console.log(`  (looking out of a window in ${city})`);
  return `18 degrees and sunny in ${city}`;
});

const assistant = agent("assistant", async (ctx, question: string) => {
  ctx.append("user", question);
  // Every turn ends in a checkpoint. After a crash the function starts again, is replayed, and continues in the open turn.
  return ctx.turns(null, async () => {
    const reply = await ctx.llm(model, { tools: [weather] });
    ctx.append("assistant", reply);
    if (reply.calls.length === 0) return { done: reply.text };
    for (const outcome of await Promise.all(reply.calls.map((call) => ctx.tool(call)))) ctx.append("tool", outcome);
    return { next: null };
  });
});

await using onward = await Onward.embedded(directory(), { workflows: [assistant], tools: [weather], models: models() });
const run = await onward.start(assistant, 'What does the tool weather say of {"city": "Ulm"}?');
console.log(await run.result());
