/** Compensations undo what was done, latest first, when the run fails. */

import { Onward, RunFailed, workflow } from "onward";

const trip = workflow("trip", async (ctx) => {
  for (const what of ["flight", "hotel"]) {
    await ctx.step(`book ${what}`, () => console.log(`book ${what}`));
    ctx.onFailure(`cancel ${what}`, () => console.log(`cancel ${what}`));
  }
  throw new Error("no car is free");
});

await using onward = await Onward.embedded("memory:", { workflows: [trip] });
const run = await onward.start(trip);
await run.result().catch((error: unknown) => {
  if (error instanceof RunFailed) console.log(`failed: ${error.failure.message}`);
});
