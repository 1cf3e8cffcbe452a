/** A process that kills itself in the middle of a run; the next start continues after the last recorded step. */

import { Onward, workflow } from "onward";

const trip = workflow("trip", async (ctx) => {
  for (const what of ["flight", "hotel", "car"]) {
    const booked = await ctx.step(`book ${what}`, () => {
      console.log(`booking ${what}`);
      return `${what} booked by a process`;
    });
    // The first process dies after the hotel is recorded.
    if (what === "hotel") await ctx.step("survive", () => process.argv[2] === "die" && process.kill(process.pid, "SIGKILL"));
    ctx.state.set(what, booked);
  }
  return "booked";
});

await using onward = await Onward.embedded("./onward-data", { workflows: [trip] });
const run = await onward.start(trip, undefined, { id: "trip-1" });
console.log(await run.result());
