/** Changing code while runs are open: `ctx.version` for a change inside a workflow, versions of the workflow for a rewrite. */

import { Onward, workflow, type Workflow } from "onward";
import { directory } from "./directory.js";

const addTax = (net: number, percent: number): number => Math.floor((net * (100 + percent)) / 100);

/** The code as deployed on Monday. */
const monday = workflow(
  "invoice",
  async (ctx, net: number) => {
    const gross = await ctx.step("tax", () => addTax(net, 19));
    await ctx.signal("approved").recv();
    return `v1: ${gross}`;
  },
  { version: "v1" },
);

/** The code on Tuesday, with a discount before the tax. A run that has passed this point continues without it. */
const tuesday = workflow(
  "invoice",
  async (ctx, net: number) => {
    const discount = ctx.version("discount", 1, 2);
    const reduced = discount >= 2 ? await ctx.step("discount", () => net - 10) : net;
    const gross = await ctx.step("tax", () => addTax(reduced, 19));
    await ctx.signal("approved").recv();
    return `v1 with discount version ${discount}: ${gross}`;
  },
  { version: "v1" },
);

/** A rewrite on Wednesday. Runs that began with v1 stay on v1. */
const wednesday = workflow(
  "invoice",
  async (ctx, net: number) => `v2: ${await ctx.step("tax-and-discount", () => addTax(net - 10, 7))}`,
  { version: "v2" },
);

const path = directory();
const days: [string, Workflow<number, string>[]][] = [
  ["Monday", [monday]],
  ["Tuesday", [tuesday]],
  ["Wednesday", [wednesday, tuesday]],
];
for (const [day, workflows] of days) {
  console.log(`${day}:`);
  await using onward = await Onward.embedded(path, { workflows });
  const run = await onward.start(wednesday, 100, { id: `invoice-${day}` });
  const { version } = await run.waitForStatus("waiting", "completed");
  console.log(`${run.id} is pinned to ${version}`);
  if (day !== "Wednesday") continue;
  for (const earlier of ["invoice-Monday", "invoice-Tuesday"]) await onward.run(earlier).signal("approved", true);
  for (const [started] of days) console.log(`invoice-${started}: ${await onward.run<string>(`invoice-${started}`).result()}`);
}
