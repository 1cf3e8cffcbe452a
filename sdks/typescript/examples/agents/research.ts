/** Several agents: an editor, and researchers that work in parallel, all within one budget. */

import { Agent, Onward, agent, tool } from "onward";
import { z } from "zod";
import { directory } from "../directory.js";
import { model, models } from "./model.js";

const about = z.object({ topic: z.string() });
const library = tool("library", { description: "Finds books about a topic", input: about, effect: "pure" }, ({ topic }) => {
  return `three books about ${topic}`;
});

const researcher = new Agent("researcher", { model, tools: [library], maxTurns: 5 });

/** Starts a researcher for each topic and writes a report of their results. A failed researcher is a gap in the report. */
const editor = agent("editor", async (ctx, topics: string[]) => {
  return ctx.turns(null, async () => {
    // An equal share for each researcher and for the report; unspent tokens return.
    const tokens = Math.floor((ctx.budgetLeft().tokens ?? 0) / (topics.length + 1));
    const question = (topic: string): string => `Ask the library ${JSON.stringify({ topic })}`;
    const researchers = topics.map((topic) => ctx.child(researcher, question(topic), { budget: { tokens } }));
    for (const [n, result] of (await Promise.allSettled(researchers)).entries()) {
      const note = result.status === "fulfilled" ? result.value.text : `nothing (${String(result.reason)})`;
      ctx.append("user", `About ${topics[n]}: ${note}`);
    }
    const report = await ctx.llm(model, { system: "Write a report of what was found." });
    ctx.append("assistant", report);
    return { done: report.text };
  });
});

await using onward = await Onward.embedded(directory(), { workflows: [editor], agents: [researcher], models: models() });
const options = { id: "report", budget: { tokens: 20_000, seconds: 600 } };
const run = await onward.start(editor, ["rivers", "bridges", "ferries"], options);
console.log(await run.result());
