/** The smallest workflow: one step. */

import { Onward, workflow } from "onward";

const hello = workflow("hello", async (ctx, name: string) => {
  return await ctx.step("greet", () => `Hello, ${name}!`);
});

await using onward = await Onward.embedded("memory:", { workflows: [hello] });
const run = await onward.start(hello, "Ada");
console.log(await run.result());
