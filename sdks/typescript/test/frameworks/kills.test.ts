/** A process that is killed in the middle of an agent's run repeats no call that had finished. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { calls, forget, requestCount, says } from "./scripted.js";

const KEYS = ["a", "b", "c"];

/** Starts the process, kills it when it has printed a line that begins like this, and returns the line. */
async function runUntil(begin: string, args: string[]): Promise<string> {
  const path = fileURLToPath(new URL("crashing.js", import.meta.url));
  const child = spawn(process.execPath, [path, ...args], { stdio: ["ignore", "pipe", "inherit"] });
  const closed = once(child, "close");
  let found: string | undefined;
  for await (const line of createInterface(child.stdout)) {
    if (!line.startsWith(begin)) continue;
    found ??= line;
    child.kill("SIGKILL");
  }
  await closed;
  assert(found !== undefined, `the process ended without \`${begin}\``);
  return found;
}

test("a killed process repeats no finished call", async () => {
  await forget();
  const directory = mkdtempSync(join(tmpdir(), "onward-"));
  after(() => rmSync(directory, { recursive: true, force: true }));
  const effects = join(directory, "effects");
  writeFileSync(effects, "");
  const executed = (): string[] => readFileSync(effects, "utf8").split("\n").filter(Boolean);
  for (const key of KEYS) await calls(["lookUp", { key }]);
  await says("This answer is cut off by a kill.", { chunk_delay_ms: 50 });
  await says("done");
  const args = [join(directory, "data"), effects];
  for (const [index, key] of KEYS.entries()) {
    await runUntil("in the tool", args);
    // The calls before this one were finished: a repeated request would take the answer of a later one.
    assert.equal(await requestCount(), index + 1);
    assert.deepEqual(executed(), [...KEYS.slice(0, index).flatMap((done) => [done, done]), key]);
  }
  await runUntil("in the answer", args);
  assert.equal(await runUntil("result:", args), "result: done");
  // Only the request whose answer was cut off was made twice, and each tool ran again after the kill in it.
  assert.equal(await requestCount(), KEYS.length + 2);
  assert.deepEqual(executed(), KEYS.flatMap((key) => [key, key]));
});
