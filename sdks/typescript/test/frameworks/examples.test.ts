/** The example with the AI SDK, which prints what it does. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { forget } from "./scripted.js";

test("the example prints what it shows", async () => {
  await forget();
  const { OPENAI_API_KEY: _, ...env } = process.env;
  const path = fileURLToPath(new URL("../../examples/frameworks/ai-sdk.js", import.meta.url));
  const printed = execFileSync(process.execPath, [path], { env, encoding: "utf8", timeout: 120_000 });
  // A watcher may receive a value later than the caller its result.
  assert.deepEqual(printed.trim().split("\n").sort(), [
    "(looking out of a window)",
    "look_outside says: 18 degrees and sunny",
    "refund says: refunded 1900 cents",
    "the model calls look_outside",
    "the model calls refund",
  ]);
});
