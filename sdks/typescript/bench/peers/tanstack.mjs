/** Measures TanStack Workflow on PostgreSQL with the program of `bench.mjs`: `tanstack.mjs URL`. */

import { createWorkflow } from "@tanstack/workflow-core";
import { defineWorkflowRuntime } from "@tanstack/workflow-runtime";
import { createDrizzlePostgresWorkflowStore } from "@tanstack/workflow-store-drizzle-postgres";
import { drizzle } from "drizzle-orm/node-postgres";
import pg from "pg";
import { isQuick, median, report, throughput } from "../figures.mjs";

const result = "x".repeat(198);
const stepTimes = [];

const tenSteps = createWorkflow({ id: "ten-steps" }).handler(async (ctx) => {
  let total = ctx.input;
  for (let step = 0; step < 10; step++) total += (await ctx.step(`step-${step}`, async () => result)).length + step;
  return total;
});

const manySteps = createWorkflow({ id: "many-steps" }).handler(async (ctx) => {
  for (let step = 0; step < ctx.input; step++) {
    await ctx.step(`step-${step}`, async () => {
      stepTimes.push(performance.now());
      return result;
    });
  }
  return ctx.input;
});

const pool = new pg.Pool({ connectionString: process.argv[2], max: 50 });
const store = createDrizzlePostgresWorkflowStore({ db: drizzle(pool) });
await store.ensureSchema();
const workflows = { "ten-steps": { load: async () => tenSteps }, "many-steps": { load: async () => manySteps } };
const runtime = defineWorkflowRuntime({ workflows, store, defaultLeaseMs: 600_000 });

let started = 0;
async function run(workflowId, input) {
  const ended = await runtime.startRun({ workflowId, runId: `run-${started++}`, input });
  if (ended.run?.status !== "finished") throw new Error(JSON.stringify(ended));
}

// Without a warm-up, which would be shorter than the first runs.
const rate = await throughput((seed) => run("ten-steps", seed), 512, isQuick ? 5_000 : 20_000, 0);
report("tanstack.steps_per_s.c512", rate, "1/s");
await run("many-steps", isQuick ? 200 : 1_000);
report("tanstack.step_ms.p50", median(stepTimes.slice(1).map((time, n) => time - stepTimes[n])), "ms");
await pool.end();
