/** The smallest durable function: a step, a sleep, a step. */

import { Onward, workflow } from "onward";
import { directory } from "./directory.js";

const greet = workflow("greet", async (ctx, name: string) => {
  const greeting = await ctx.step("compose", () => compose(name));
  await ctx.sleep({ seconds: 1 }); // a day costs no more than a second: no thread, no memory
  await ctx.step("say", () => say(greeting));
  return greeting;
});

/** Runs inside a step, so it may do I/O: call a service, write a file. */
async function compose(name: string): Promise<string> {
  return `Hello, ${name}!`;
}

async function say(greeting: string): Promise<void> {
  console.log(`the run says: ${greeting}`);
}

await using onward = await Onward.embedded(directory(), { workflows: [greet] });

const run = await onward.start(greet, "Ada", { id: "greet-ada" });
console.log(`started ${run.id}`);
console.log(`result: ${await run.result()}`);

// The same id with the same input is the same run: no step runs again.
const again = await onward.start(greet, "Ada", { id: "greet-ada" });
console.log(`once more: ${await again.result()}`);

for (const { index, events } of await run.log()) {
  for (const [offset, event] of events.entries()) console.log(`#${index + offset} ${event.type}`);
}
