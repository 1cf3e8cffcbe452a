/** A process that is killed: executes runs of ten steps, and appends a line to a file for each execution of a step. */

import { appendFileSync } from "node:fs";
import { Onward, task, workflow } from "onward";

const [directory = "", effects = "", count = "0"] = process.argv.slice(2);

const label = task("label", async (n: number) => {
  appendFileSync(effects, `task ${n}\n`);
  return n;
});

const job = workflow("job", async (ctx, id: number) => {
  let sum = 0;
  for (let n = 0; n < 8; n++) {
    sum += await ctx.step(`s${n}`, async (step) => {
      appendFileSync(effects, `${id} s${n} ${step.idempotencyKey}\n`);
      return n;
    });
    if (n === 3) await ctx.sleep({ milliseconds: 20 });
  }
  const parts = await Promise.all([ctx.task(label, id), ctx.signal<number>("bonus").recv(), ctx.step("last", () => 1)]);
  return sum + parts.reduce((sum, part) => sum + part, 0);
});

await using onward = await Onward.embedded(directory, { workflows: [job], tasks: [label] });
const runs = await Promise.all(
  Array.from({ length: Number(count) }, async (_, n) => {
    const run = await onward.start(job, n, { id: `job-${n}` });
    await run.signal("bonus", 100, { id: `bonus-${n}` });
    return run;
  }),
);
console.log("started");
const results = await Promise.all(runs.map((run) => run.result()));
const logs = await Promise.all(runs.map((run) => run.log()));
console.log(JSON.stringify({ results, recorded: logs.map((log) => JSON.stringify(log).split("step_completed").length - 1) }));
