/** A thread that executes a run and ends in different ways. */

import { parentPort } from "node:worker_threads";
import { Onward, workflow } from "onward";

const how = process.argv[2];
const three = workflow("three", (ctx) => ctx.step("three", async () => 3));
const onward = await Onward.embedded("memory:", { workflows: [three] });
parentPort?.postMessage(`${how}: ${await (await onward.start(three)).result()}`);
if (how === "closes") await onward.close();
if (how === "ends") process.exit();
