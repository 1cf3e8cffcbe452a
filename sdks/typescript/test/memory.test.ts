/** Memory: flat over finished runs, small for suspended ones. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { Onward, workflow } from "onward";

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

/** Returns the bytes of the JavaScript heap that are in use. */
async function heap(): Promise<number> {
  for (let round = 0; round < 4; round++) {
    await new Promise((resolve) => setTimeout(resolve, 5));
    collect();
  }
  return process.memoryUsage().heapUsed;
}

const short = workflow("short", async (ctx, n: number) => {
  const step = ctx.step("a", async () => n);
  void ctx.signal("never").recv();
  return (await step) + (await ctx.step("b", () => 1));
});

const suspended = workflow("suspended", async (ctx, n: number) => {
  const one = await ctx.step("one", async () => n);
  return one + (await ctx.signal<number>("go").recv());
});

async function many(onward: Onward, count: number, one: (n: number) => Promise<unknown>): Promise<void> {
  let next = 0;
  await Promise.all(Array.from({ length: 64 }, async () => {
    while (next < count) await one(next++);
  }));
  assert.equal(onward.stats()[2], 0, "no request is left");
}

test("finished runs leave nothing behind", async () => {
  await using onward = await Onward.embedded("memory:", { workflows: [short], retention: { milliseconds: 1 } });
  const batch = (): Promise<void> => many(onward, 3_000, async (n) => (await onward.start(short, n)).result());
  await batch();
  let before = await heap();
  let grown = 0;
  // Compiled code and caches of the engine grow at first; what a run leaves behind grows with every batch.
  for (let repeat = 0; repeat < 4; repeat++) {
    await batch();
    const after = await heap();
    [grown, before] = [after - before, after];
    if (grown < 3_000 * 30) return;
  }
  assert.fail(`${grown} bytes more after 3000 further runs`);
});

test("a suspended run takes at most four KiB", async () => {
  const COUNT = 5_000;
  await using onward = await Onward.embedded("memory:", { workflows: [suspended], cachedRunsMax: 2 * COUNT, runsMax: 2 * COUNT });
  const start = (from: number, count: number): Promise<void> =>
    many(onward, count, async (n) => (await onward.start(suspended, n, { id: `s-${from + n}` })).waitForStatus("waiting"));
  await start(0, 500);
  const before = await heap();
  await start(500, COUNT);
  const each = ((await heap()) - before) / COUNT;
  assert(each < 4_096, `${each} bytes for each run`);
  await Promise.all([0, 1, 2].map((n) => onward.run(`s-${n}`).signal("go", 1)));
  assert.equal(await onward.run("s-2").result(), 3);
});
