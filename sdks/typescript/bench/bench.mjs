/**
 * Measures the TypeScript package, with the programs of crates/onward-bench: embedded, and over a server with `--server URL`.
 * `cargo xtask bench --sdks` builds the package for speed and runs this.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Onward, workflow } from "onward";
import { isQuick, median, report, resident, throughput } from "./figures.mjs";

const result = "x".repeat(198);
let stepTimes = [];

const tenSteps = workflow("ten-steps", async (ctx, seed) => {
  let total = seed;
  for (let step = 0; step < 10; step++) total += (await ctx.step("step", async () => result)).length + step;
  return total;
});

const manySteps = workflow("many-steps", async (ctx, count) => {
  for (let n = 0; n < count; n++) {
    await ctx.step("step", async () => {
      stepTimes.push(performance.now());
      return result;
    });
  }
  return count;
});

const wait = workflow("wait", async (ctx, number) => number + (await ctx.signal("go").recv()));

const workflows = [tenSteps, manySteps, wait];

/** Returns the median time from one step of a lone run to the next, in milliseconds. */
async function latency(onward, count) {
  stepTimes = [];
  await (await onward.start(manySteps, count)).result();
  return median(stepTimes.slice(1).map((time, n) => time - stepTimes[n]));
}

/** Reports what each further waiting run adds to the memory of the process: with its code in memory, or only in the store. */
async function suspended(name, isCached) {
  const [warmUp, count] = isQuick ? [5_000, 20_000] : [10_000, 60_000];
  const options = isCached ? { cachedRunsMax: count + 1_000, runsMax: count + 1_000 } : {};
  await inDirectory(async (directory) => {
    const onward = await Onward.embedded(directory, { workflows, ...options });
    let before = 0;
    for (let first = 0; first < count; first += 500) {
      if (first === warmUp) before = await settled(onward);
      await Promise.all(Array.from({ length: 500 }, (_, n) => onward.start(wait, first + n)));
    }
    report(name, ((await settled(onward)) - before) / (count - warmUp), "B");
    await onward.close({ timeout: {} });
  });
}

/** Returns the resident memory once no run has anything to do. */
async function settled(onward) {
  while ((await onward.execute("list_runs", { statuses: ["pending", "running"], limit: 1 })).runs.length > 0) await delay(50);
  await delay(500);
  return resident();
}

async function inDirectory(use) {
  const directory = mkdtempSync(join(tmpdir(), "onward-bench-"));
  try {
    await use(directory);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

async function measure(onward, prefix) {
  const run = async (seed) => (await onward.start(tenSteps, seed)).result();
  report(`${prefix}.steps_per_s.c512`, await throughput(run, 512, isQuick ? 3_000 : 8_000), "1/s");
  report(`${prefix}.step_ms.p50`, await latency(onward, isQuick ? 2_000 : 10_000), "ms");
  await onward.close();
}

const server = process.argv.indexOf("--server");
if (server > 0) {
  await measure(await Onward.connect(process.argv[server + 1], { workflows }), "typescript.server");
} else {
  await inDirectory(async (directory) => measure(await Onward.embedded(directory, { workflows }), "typescript"));
  await suspended("typescript.suspended_bytes", true);
  await suspended("typescript.evicted_bytes", false);
}
