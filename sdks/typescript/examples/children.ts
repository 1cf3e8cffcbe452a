/** Child workflows: runs that another run starts, and whose results are inputs of the parent. */

import { Onward, fatal, workflow } from "onward";
import { directory } from "./directory.js";

const photo = workflow("photo", async (ctx, name: string) => {
  const pace = name === "slow" ? await ctx.signal<string>("pace").recv() : "usual";
  return ctx.step("resize", () => resize(name, pace));
});

const album = workflow("album", async (ctx, names: string[]) => {
  const photos = names.map((name) => ctx.child(photo, name, { id: `photo-${name}` }));
  const sizes = await Promise.allSettled(photos);
  const bytes = sizes.reduce((sum, size) => (size.status === "fulfilled" ? sum + size.value : sum), 0);
  const failures = sizes.flatMap((size) => (size.status === "rejected" ? [(size.reason as Error).message] : []));

  // A handle is also a promise: signal the child, cancel it, or await it later.
  const slow = ctx.child(photo, "slow");
  slow.signal("pace", "double");
  return `${bytes} bytes, then ${await slow}; failed: ${JSON.stringify(failures)}`;
});

async function resize(name: string, pace: string): Promise<number> {
  if (name === "broken") throw fatal("not a photo");
  console.log(`resized ${name} at ${pace} pace`);
  return 100;
}

await using onward = await Onward.embedded(directory(), { workflows: [album, photo] });
const run = await onward.start(album, ["beach", "broken", "sunset"], { id: "album-1" });
console.log(`album: ${await run.result()}`);

interface Page {
  runs: { key: { id: string }; kind: string; status: string }[];
}
const { runs } = await onward.execute<Page>("list_runs");
for (const line of runs.map(({ key, kind, status }) => `${key.id} ${kind} ${status}`).sort()) console.log(line);
