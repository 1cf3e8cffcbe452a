/** A run that starts others and collects their results. */

import { Onward, workflow } from "onward";

const chapter = workflow("chapter", async (ctx, title: string) => {
  return await ctx.step("write", () => `${title}: ${title.length} letters`);
});

const book = workflow("book", async (ctx, titles: string[]) => {
  return await Promise.all(titles.map((title, n) => ctx.child(chapter, title, { id: `${ctx.runId}/chapter-${n}` })));
});

await using onward = await Onward.embedded("memory:", { workflows: [book, chapter] });
const run = await onward.start(book, ["Start", "Middle", "End"], { id: "book-1" });
console.log((await run.result()).join("\n"));
