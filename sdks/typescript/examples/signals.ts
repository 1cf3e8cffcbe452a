/** A cart that receives signals until it is checked out or abandoned. */

import { Onward, signal, workflow } from "onward";

const add = signal<string>("add");
const checkout = signal<void>("checkout");

const cart = workflow("cart", async (ctx) => {
  const items: string[] = [];
  ctx.query("items", () => items);
  for (;;) {
    const first = await ctx.select({
      item: ctx.signal(add).recv(),
      "checked out": ctx.signal(checkout).recv(),
      abandoned: ctx.sleep({ days: 1 }),
    });
    if (first.key !== "item") return `${first.key}: ${items.join(", ")}`;
    items.push(first.value);
  }
});

await using onward = await Onward.embedded("memory:", { workflows: [cart] });
const run = await onward.start(cart);
await run.signal(add, "tea");
await run.signal(add, "milk");
await run.waitForStatus("waiting");
await run.signal(checkout);
console.log(await run.result());
