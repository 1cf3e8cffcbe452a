/**
 * A process is killed with SIGKILL in the middle of its second step; the next process resumes the run. The example starts itself
 * twice over one directory and kills the first process.
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Onward, workflow } from "onward";
import { directory } from "./directory.js";

const trip = workflow("trip", async (ctx, city: string) => {
  const flight = await ctx.step("flight", () => book("flight", city));
  const hotel = await ctx.step("hotel", async ({ idempotencyKey }) => {
    console.log(`key of the hotel booking: ${idempotencyKey}`);
    const booked = book("hotel", city);
    await delay(500); // the first process dies here
    return booked;
  });
  const train = await ctx.step("train", () => book("train", city));
  return `${flight}, ${hotel}, ${train}`;
});

function book(what: string, city: string): string {
  console.log(`booking a ${what} to ${city}`);
  return `${what} to ${city}`;
}

/** Opens the directory, starts or finds the run, and waits for its result; both processes do the same. */
async function work(path: string): Promise<void> {
  await using onward = await Onward.embedded(path, { workflows: [trip] });
  const run = await onward.start(trip, "Lisbon", { id: "trip-7" });
  console.log(`result: ${await run.result()}`);
}

async function main(): Promise<void> {
  const path = directory();
  for (const process_ of [1, 2]) {
    const child = spawn(process.execPath, [fileURLToPath(import.meta.url), path], { stdio: ["ignore", "pipe", "inherit"] });
    const ended = once(child, "close");
    for await (const line of createInterface(child.stdout)) {
      console.log(`process ${process_}: ${line}`);
      if (process_ === 1 && line.startsWith("booking a hotel")) child.kill("SIGKILL"); // no handler, no `finally`
    }
    const [code, signal] = (await ended) as [number | null, string | null];
    console.log(`process ${process_} ended: ${signal ?? code}`);
  }
}

const [, , path] = process.argv;
await (path === undefined ? main() : work(path));
