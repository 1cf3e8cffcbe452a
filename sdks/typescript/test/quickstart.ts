import { Onward, task, workflow } from "onward";

const printLabel = task("print-label", async (paid: string) => `label: ${paid}`);

const order = workflow("order", async (ctx, item: string) => {
  const paid = await ctx.step("charge", async () => `paid for ${item}`);
  const [payment, note] = await Promise.all([ctx.signal<number>("payment").recv(), ctx.step("note", () => "noted")]);
  await ctx.sleep({ milliseconds: 50 });
  return ctx.task(printLabel, `${paid} ${payment} ${note}`, { retry: 5 });
});

await using onward = await Onward.embedded("./onward-data", { workflows: [order], tasks: [printLabel] });
const run = await onward.start(order, "a teapot", { id: "order-42" });
await run.signal("payment", 42, { id: "p-1" });
console.log(await run.result());
