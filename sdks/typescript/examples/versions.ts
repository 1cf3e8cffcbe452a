/** Changed code: open runs go on as they began, new ones take the new way. */

import { Onward, workflow } from "onward";

const before = workflow("report", async (ctx) => {
  await ctx.signal("go").recv();
  return await ctx.step("print", () => "printed");
});

const after = workflow("report", async (ctx) => {
  const version = ctx.version("send instead of print", 0, 1);
  await ctx.signal("go").recv();
  return version === 0 ? await ctx.step("print", () => "printed") : await ctx.step("send", () => "sent");
});

const old = await Onward.embedded("./onward-data", { workflows: [before] });
await (await old.start(before, undefined, { id: "old" })).waitForStatus("waiting");
await old.close();

await using onward = await Onward.embedded("./onward-data", { workflows: [after] });
await onward.start(after, undefined, { id: "new" });
for (const id of ["old", "new"]) {
  await onward.run(id).signal("go");
  console.log(`${id}: ${await onward.run(id).result()}`);
}
