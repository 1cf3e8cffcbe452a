/**
 * A process that is killed: an agent with one tool, which blocks for ever in the process that starts it first.
 *
 * Arguments: the directory, and a file that has one line for each execution of the tool.
 */

import { appendFileSync, readFileSync } from "node:fs";
import { streamText, stepCountIs, tool } from "ai";
import { Onward, workflow } from "onward";
import { durable, durableTools } from "onward/ai";
import { z } from "zod";
import { model } from "./scripted.js";

const [directory = "", effects = ""] = process.argv.slice(2);

const lookUp = tool({
  description: "Looks up a key.",
  inputSchema: z.object({ key: z.string() }),
  execute: async ({ key }) => {
    const isFirst = !readFileSync(effects, "utf8").split("\n").includes(key);
    appendFileSync(effects, `${key}\n`);
    if (isFirst) {
      console.log("in the tool");
      await new Promise(() => {});
    }
    return `value of ${key}`;
  },
});

const tools = durableTools({ lookUp });
const answer = workflow("answer", (ctx, prompt: string) =>
  durable(ctx, () => streamText({ model, tools, prompt, stopWhen: stepCountIs(10) }).text),
);

await using onward = await Onward.embedded(directory, { workflows: [answer] });
const run = await onward.start(answer, "go", { id: "one" });
const watching = (async () => {
  for await (const frame of run.watch()) {
    if (JSON.stringify(frame).includes('"type":"text"')) console.log("in the answer");
  }
})();
console.log(`result: ${String(await run.result())}`);
await watching;
