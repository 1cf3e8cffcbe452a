/** A schedule: backfilled for past days, and triggered. */

import { Onward, workflow } from "onward";
import { directory } from "./directory.js";

const report = workflow("report", async (ctx, { day }: { day: string }) => ctx.step("count", () => `the orders of ${day}`));

await using onward = await Onward.embedded(directory(), { workflows: [report] });
const nightly = await onward.putSchedule("nightly", report, {
  cron: "0 2 * * *",
  zone: "Europe/Berlin",
  exceptDates: "2026-12-24/2027-01-01",
  overlap: "buffer_one",
  input: { day: "{{ slot.date }}" }, // rendered for each slot
  template: true,
});

// What the clock would have started, had the schedule existed.
await nightly.backfill(new Date("2026-03-28T00:00:00Z"), new Date("2026-03-31T00:00:00Z"));
for (const slot of ["2026-03-28T01:00:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"]) {
  const run = nightly.runAt(new Date(slot)); // 2:00 in Berlin; 3:00 on 29 March, which has no 2:00
  console.log(`${run.id}: ${await run.result()}`);
}

// One more, at once, whatever the clock.
await nightly.pause("holidays");
const triggered = await nightly.trigger({ id: "by-hand" });
await triggered.run.result();
console.log(`triggered ${triggered.run.id}`);

const view = await nightly.read();
console.log(`started ${view.totals.started}, next: ${view.next.length}`); // none while it is paused
console.log(`next after the holidays: ${(await nightly.resume()).next.length}`);
