/** The program of the README, as it stands there. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { version } from "onward";
import { directory, runProgram } from "./kit.js";

const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

test("the README shows the quickstart of the tests", () => {
  const program = readFileSync(here("../test/quickstart.ts"), "utf8");
  assert(readFileSync(here("../README.md"), "utf8").includes(`\`\`\`ts\n${program}\`\`\``));
});

test("the quickstart runs, and a second start finds its result", async () => {
  process.chdir(directory());
  for (let start = 0; start < 2; start++) {
    const { stdout, stderr, code } = await runProgram("quickstart.js");
    assert.deepEqual([stdout, stderr, code], ["label: paid for a teapot 42 noted\n", "", 0]);
  }
});

test("the package can be required where Node.js can require modules", () => {
  const features = process.features as { require_module?: boolean };
  if (features.require_module !== true) return;
  const required = createRequire(import.meta.url)("onward") as { version: typeof version };
  assert.equal(required.version, version);
});

test("the package has the version of the engine", () => {
  const { version: packaged } = JSON.parse(readFileSync(here("../package.json"), "utf8")) as { version: string };
  assert.equal(version(), packaged);
});
