/** The smallest agent: a model, a system prompt, and a durable answer. */

import { Agent, Onward } from "onward";
import { directory } from "../directory.js";
import { model, models } from "./model.js";

const hello = new Agent("hello", { model, system: "You are brief and kind." });

await using onward = await Onward.embedded(directory(), { agents: [hello], models: models() });
const run = await onward.start(hello, "Good morning!", { id: "morning" });
const { stop, turns, text } = await run.result();
console.log(`${stop} after ${turns} turn: ${text}`);

// The same id is the same run: the model is not called again.
const again = await onward.start(hello, "Good morning!", { id: "morning" });
console.log(`once more: ${(await again.result()).text}`);
