/** The command of the package: `npx --no-install onward dev` is the server. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Onward, version } from "onward";

const cli = fileURLToPath(new URL("../dist/cli.js", import.meta.url));
const onward = (...args: string[]): ReturnType<typeof spawn> => spawn(process.execPath, [cli, ...args], { stdio: ["ignore", "pipe", "inherit"] });

test("the command is that of the engine, with its exit code", async () => {
  const shown = onward("--version");
  const [line] = (await once(createInterface(shown.stdout!), "line")) as [string];
  assert(line.includes(version()), line);
  const unknown = spawn(process.execPath, [cli, "no-such-command"], { stdio: "ignore" });
  assert.deepEqual(await once(unknown, "close"), [2, null]);
});

test("it starts a server, and stops it with itself", async () => {
  const server = onward("dev", "--ephemeral", "--port", "0", "--json", "--log-level", "error");
  const closed = once(server, "close");
  const [line] = (await once(createInterface(server.stdout!), "line")) as [string];
  const { url } = JSON.parse(line) as { url: string };
  await using client = await Onward.connect(url);
  await assert.rejects(client.run("none").view(), { code: "run_not_found" });
  server.kill("SIGTERM");
  await closed;
  await assert.rejects(fetch(url));
});
