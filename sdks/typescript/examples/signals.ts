/** Signals: a mailbox per run. Wait for one, poll for one, or let the first of several win. */

import { Onward, signal, workflow } from "onward";
import { directory } from "./directory.js";

const steer = signal<string>("steer");
const review = signal<string>("review");

const write = workflow("write", async (ctx, topic: string) => {
  const book: string[] = [];
  for (;;) {
    // Steering: a poll of the mailbox. Its result is recorded before the next step starts, so a replay gets the same.
    for (const wish of ctx.signal(steer).drain()) topic = wish;
    book.push(await ctx.step("write", () => writeChapter(book.length + 1, topic)));
    ctx.state.set("chapters", book.length); // callers can read it while the run waits

    // The lower index in the log wins, now and on every replay.
    const first = await ctx.select({ review: ctx.signal(review).recv(), late: ctx.sleep({ minutes: 10 }) });
    if (first.key === "late" || first.value === "done") return book;
  }
});

async function writeChapter(number: number, topic: string): Promise<string> {
  console.log(`writing chapter ${number} about ${topic}`);
  return `${number}. ${topic}`;
}

await using onward = await Onward.embedded(directory(), { workflows: [write] });

// Sent with the start, in one write: it is in the mailbox before the code runs.
const run = await onward.start(write, "cats", { id: "book", signal: { name: "steer", payload: "dogs" } });

/** Waits until the run has written so many chapters and waits for a review. */
async function wait(chapters: number): Promise<void> {
  await run.waitForState("chapters", chapters);
  await run.waitForStatus("waiting");
}

await wait(1);
await run.signal(steer, "birds");
await run.signal(review, "more");
await wait(2);
// A repeat with the same id is the same signal: a webhook may be delivered twice.
const sent = await run.signal(review, "done", { id: "webhook-1" });
const again = await run.signal(review, "done", { id: "webhook-1" });
console.log(`same index: ${sent["index"] === again["index"]}, repeated: ${again["repeated"]}`);

console.log(`book: ${JSON.stringify(await run.result())}`);
console.log(`chapters: ${await run.state("chapters")}`);
