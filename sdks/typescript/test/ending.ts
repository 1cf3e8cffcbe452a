/** Processes that end in different ways while a run waits. */

import { Onward, workflow } from "onward";

const idle = workflow("idle", (ctx) => ctx.signal("never").recv());
const onward = await Onward.embedded("memory:", { workflows: [idle] });
const run = await onward.start(idle);
await run.waitForStatus("waiting");

switch (process.argv[2]) {
  case "exit":
    console.log("left");
    process.exit(3);
  case "closed":
    await onward.close();
    console.log("closed");
    break;
  case "rejection":
    void Promise.reject(new Error("of the process"));
    break;
  case "thrown":
    setTimeout(() => {
      throw new Error("of a callback");
    }, 1);
    break;
  case "wait":
    console.log("waits");
}
