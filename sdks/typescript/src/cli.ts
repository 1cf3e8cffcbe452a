#!/usr/bin/env node
/** The command `onward`: `npx --no-install onward dev` starts a server, and every other command of it works, too. */

import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { constants } from "node:os";
import { fileURLToPath } from "node:url";

const name = process.platform === "win32" ? "onward.exe" : "onward";
const packaged = fileURLToPath(new URL(`../${name}`, import.meta.url));
const program = process.env["ONWARD_BIN"] ?? (existsSync(packaged) ? packaged : name);

const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
// The terminal sends Ctrl-C to both; this process ends after the command.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => child.kill(signal));
child.on("error", (error) => {
  console.error(`error: the command \`onward\` cannot be started: ${error.message}`);
  console.error("hint: install the package for this platform, or set ONWARD_BIN to the program");
  process.exit(127);
});
child.on("exit", (code, signal) => process.exit(code ?? 128 + constants.signals[signal ?? "SIGTERM"]));
