/** Compensation: completed steps are undone, latest first, when the run fails. */

import { Onward, RunFailed, fatal, workflow } from "onward";
import { directory } from "./directory.js";

const trip = workflow("trip", async (ctx, city: string) => {
  const flight = await ctx.step("book-flight", () => book("flight", city));
  // Registered after the booking is recorded, so only real bookings are canceled.
  ctx.onFailure("cancel-flight", () => cancel(flight));

  const hotel = await ctx.step("book-hotel", () => book("hotel", city));
  ctx.onFailure("cancel-hotel", () => cancel(hotel));

  const car = await ctx.step("book-car", () => book("car", city));
  return `all booked, down to the ${car}`;
});

async function book(what: string, city: string): Promise<string> {
  if (what === "car" && city === "Venice") throw fatal("no roads here", { code: "no_cars" });
  console.log(`booked a ${what} in ${city}`);
  return `${what} in ${city}`;
}

async function cancel(booking: string): Promise<void> {
  console.log(`canceled the ${booking}`);
}

await using onward = await Onward.embedded(directory(), { workflows: [trip] });
for (const city of ["Lisbon", "Venice"]) {
  const run = await onward.start(trip, city);
  try {
    console.log(await run.result());
  } catch (error) {
    if (!(error instanceof RunFailed)) throw error;
    console.log(`error[${error.failure.code}]: ${error.failure.message}`);
  }
}
