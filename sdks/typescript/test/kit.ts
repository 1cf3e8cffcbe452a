/** Shared parts of the tests. */

import assert from "node:assert/strict";
import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { after } from "node:test";
import { fileURLToPath } from "node:url";
import { Onward, RunFailed, type ConnectOptions, type Failure, type RunHandle } from "onward";

/** Returns a new directory, which is removed when the tests of the file have ended. */
export function directory(): string {
  const path = mkdtempSync(join(tmpdir(), "onward-"));
  after(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

/** Opens a store in memory that lasts as long as the tests of the file. Replays every run at every commit. */
export async function inMemory(options: ConnectOptions): Promise<Onward> {
  const onward = await Onward.embedded("memory:", { checkReplay: "every", ...options });
  after(() => onward.close());
  return onward;
}

/** Returns the failure of a run. */
export async function failureOf(run: RunHandle<unknown> | Promise<RunHandle<unknown>>): Promise<Failure> {
  const error = await (await run).result().then(
    (value) => assert.fail(`the run succeeded: ${JSON.stringify(value)}`),
    (error: unknown) => error,
  );
  assert(error instanceof RunFailed, String(error));
  return error.failure;
}

/** Returns the message with which a run was paused. */
export async function pauseOf(run: RunHandle<unknown>): Promise<string> {
  const view = await run.waitForStatus("paused");
  assert.equal(view.status, "paused", JSON.stringify(view));
  return view.pause?.message ?? "";
}

/** Starts a program of this folder as a process of its own. */
export function program(name: string, args: string[] = [], flags: string[] = []): ChildProcess {
  const path = fileURLToPath(new URL(name, import.meta.url));
  const child = spawn(process.execPath, [...flags, path, ...args], { stdio: ["ignore", "pipe", "pipe"] });
  child.stdout.setEncoding("utf8");
  child.stderr.setEncoding("utf8");
  return child;
}

export interface Ended {
  code: number | null;
  signal: NodeJS.Signals | null;
  stdout: string;
  stderr: string;
}

/** Runs a program of this folder to its end, which must come within two minutes. */
export async function runProgram(name: string, args: string[] = [], flags: string[] = []): Promise<Ended> {
  const child = program(name, args, flags);
  let [stdout, stderr] = ["", ""];
  child.stdout?.on("data", (text: string) => (stdout += text));
  child.stderr?.on("data", (text: string) => (stderr += text));
  const hangs = setTimeout(() => child.kill("SIGKILL"), 120_000);
  const [code, signal] = (await once(child, "close")) as [number | null, NodeJS.Signals | null];
  clearTimeout(hangs);
  return { code, signal, stdout, stderr };
}

/** The command `onward` of this repository. */
export function command(...args: string[]): string {
  const { status, stdout, stderr } = spawnSync(binary(), args, { encoding: "utf8" });
  assert.equal(status, 0, stderr);
  return stdout;
}

function binary(): string {
  const binary = process.env["ONWARD_BIN"];
  assert(binary, "ONWARD_BIN names the server: cargo xtask test typescript sets it");
  return binary;
}

/** Starts the server of this repository, until the tests of the file have ended, and returns its address. */
export async function server(args: string[] = []): Promise<string> {
  const options = ["dev", "--port", "0", "--json", "--log-level", "error", "--data", directory(), ...args];
  const child = spawn(binary(), options, { stdio: ["ignore", "pipe", "inherit"] });
  after(() => child.kill("SIGKILL"));
  const [line] = (await once(createInterface(child.stdout), "line")) as [string];
  return (JSON.parse(line) as { url: string }).url;
}

/** Starts the scripted model of this repository. */
export async function scriptedModel(): Promise<string> {
  const program = join(dirname(process.env["ONWARD_BIN"] ?? ""), "scripted-model");
  const child = spawn(program, ["0"], { stdio: ["ignore", "pipe", "inherit"] });
  after(() => child.kill());
  const [line] = (await once(createInterface(child.stdout), "line")) as [string];
  return (JSON.parse(line) as { url: string }).url;
}
