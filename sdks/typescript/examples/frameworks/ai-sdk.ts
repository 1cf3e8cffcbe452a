/**
 * The AI SDK in a workflow: model calls and tool calls are recorded steps, a watcher sees the answer while it is written, and a
 * tool asks a person.
 *
 * `npm install ai @ai-sdk/openai-compatible zod`
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { streamText, stepCountIs, tool } from "ai";
import { Onward, workflow, type Ctx } from "onward";
import { durable, durableModel, durableTools } from "onward/ai";
import { z } from "zod";

const key = process.env["OPENAI_API_KEY"];
const baseURL = key === undefined ? `${process.env["SCRIPTED_MODEL_URL"] ?? ""}/v1` : "https://api.openai.com/v1";
const provider = createOpenAICompatible({ name: "openai", baseURL, apiKey: key ?? "none" });
const model = durableModel(provider(key === undefined ? "scripted" : "gpt-5-mini"));

const recorded = durableTools({
  look_outside: tool({
    description: "Returns the weather in a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: async () => {
      console.log("(looking out of a window)");
      return "18 degrees and sunny";
    },
  }),
});

/** A tool in workflow code may use `ctx`, and waits across restarts. */
const refund = (ctx: Ctx) =>
  tool({
    description: "Pays money back, if a person agrees.",
    inputSchema: z.object({ cents: z.number() }),
    execute: async ({ cents }) => {
      const decision = await ctx.approval("refund", { title: `Pay ${cents} cents back?` });
      return decision.approved ? `refunded ${cents} cents` : "a person has declined";
    },
  });

const answer = workflow("answer", (ctx, prompt: string) =>
  durable(ctx, () => streamText({ model, prompt, tools: { ...recorded, refund: refund(ctx) }, stopWhen: stepCountIs(5) }).text),
);

const directory = mkdtempSync(join(tmpdir(), "onward-example-")); // a real program keeps its directory
process.on("exit", () => rmSync(directory, { recursive: true, force: true }));
await using onward = await Onward.embedded(directory, { workflows: [answer] });

for (const question of ["Please look_outside in Ulm.", "A refund of 1900 cents, please."]) {
  const run = await onward.start(answer, question);
  const watching = (async () => {
    for await (const frame of run.watch()) {
      const { emitted } = frame.content as { emitted?: { value: { json: { type: string; name?: string } } } };
      if (emitted?.value.json.type === "tool_call_begin") console.log(`the model calls ${emitted.value.json.name}`);
      const awaiting = (await run.view()).awaiting.find((wait) => wait.kind === "approval");
      if (awaiting !== undefined) await onward.approve(awaiting.id, { id: "once" });
    }
  })();
  console.log(await run.result());
  await watching;
}
