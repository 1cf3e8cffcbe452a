/** Fan-out: many tasks on a queue and many steps in this process, in parallel; results in the order of the calls. */

import { setTimeout as delay } from "node:timers/promises";
import { Onward, fatal, task, workflow } from "onward";
import { directory } from "./directory.js";

const count = task("count", async (city: string) => {
  await delay(100); // in sequence, 20 of these would take two seconds
  return city.length;
});

const report = workflow("report", async (ctx, cities: string[]) => {
  // Tasks: queued in one commit, executed by any worker that registered the kind, retried by the engine.
  const counts = await Promise.all(cities.map((city) => ctx.task(count, city, { retry: 3 })));

  // Steps: run in this process, in parallel.
  const lines = await Promise.all(cities.map((city, n) => ctx.step("format", () => `${city}: ${counts[n]} letters`)));

  // Calls that may fail without failing the run: every result is returned.
  const checks = await Promise.allSettled(cities.map((city) => ctx.step("check", () => check(city))));
  const bad = checks.filter(({ status }) => status === "rejected").length;
  // Prints belong in steps: code in the workflow itself runs again on every replay.
  await ctx.step("print", () => console.log(`${bad} of ${cities.length} checks failed`));
  return lines;
});

function check(city: string): void {
  if (city.endsWith("13")) throw fatal("unlucky");
}

await using onward = await Onward.embedded(directory(), { workflows: [report], tasks: [count] });
const cities = Array.from({ length: 20 }, (_, n) => `city-${n + 1}`);
const started = performance.now();
const lines = await (await onward.start(report, cities)).result();
const isFast = performance.now() - started < 1_900;
console.log(`first: ${lines[0]}, last: ${lines.at(-1)}`);
console.log(`${lines.length} tasks of 100 ms ran in parallel: ${isFast}`);
