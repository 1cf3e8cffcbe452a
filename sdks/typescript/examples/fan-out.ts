/** Many tasks at once, with retries. */

import { Onward, task, workflow } from "onward";

const resize = task("resize", async (photo: number, task) => {
  if (photo % 10 === 0 && task.attempt === 1) throw new Error("busy");
  return photo * 2;
});

const album = workflow("album", async (ctx, count: number) => {
  const retry = { attempts: 3, firstDelay: { milliseconds: 5 } };
  const sizes = await Promise.all(Array.from({ length: count }, (_, photo) => ctx.task(resize, photo, { retry })));
  return sizes.reduce((sum, size) => sum + size, 0);
});

await using onward = await Onward.embedded("memory:", { workflows: [album], tasks: [resize] });
const run = await onward.start(album, 100);
console.log(`total size: ${await run.result()}`);
