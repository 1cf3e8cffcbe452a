/** Middleware: a rate limit by customer, redaction of what is recorded, and timing, around every run and attempt. */

import { Onward, rateLimit, redaction, task, timing, workflow, type Middleware } from "onward";
import { directory } from "./directory.js";

interface Charge {
  customer: string;
  cents: number;
}

const charge = task("charge", ({ cents }: Charge) => ({ cents, card: "4111 1111 1111 1111" }));

const bill = workflow("bill", async (ctx, customer: string) => {
  let total = 0;
  let seen = "";
  for (const cents of [500, 700, 900]) {
    const receipt = await ctx.task(charge, { customer, cents });
    total += receipt.cents;
    seen = `the code sees the card \`${receipt.card}\``;
  }
  return [seen, await ctx.step("mail", () => `mailed ${customer} about card 4111 1111 1111 1111`), `${customer} paid ${total} cents`];
});

/** One of your own: it gives every run an attribute, and prints failures of attempts. */
const house: Middleware = {
  async run(call, next) {
    call.ctx.setAttribute("team", "billing"); // code of the workflow: deterministic
    return next(call);
  },
  async attempt(call, next) {
    try {
      return await next(call);
    } catch (error) {
      console.log(`\`${call.name}\` failed: ${String(error)}`);
      throw error;
    }
  },
};

let attempts = 0;
await using onward = await Onward.embedded(directory(), {
  workflows: [bill],
  tasks: [charge],
  middleware: [
    // The first one is the outermost: it measures the waits of the rate limit, too.
    timing(() => (attempts += 1), { runState: "took_ms" }),
    house,
    redaction({ fields: ["card"], text: (text) => text.replaceAll("4111 1111 1111 1111", "**** 1111") }),
    rateLimit({
      count: 2,
      per: { milliseconds: 400 },
      key: (call) => (call.name === "charge" ? (call.input as Charge).customer : undefined),
    }),
  ],
});
const began = performance.now();
const run = await onward.start(bill, "ada");
console.log((await run.result()).join("\n"));
console.log(`the third charge waited: ${performance.now() - began >= 150}`);
console.log(`the log has the card: ${JSON.stringify(await run.log()).includes("4111 1111")}`);
console.log(`attempts measured: ${attempts}`);
