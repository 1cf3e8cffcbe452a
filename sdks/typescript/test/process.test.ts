/** Processes as they are in life: killed, blocked, left, closed, and with threads. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Worker } from "node:worker_threads";
import { Onward, OnwardError, task, workflow } from "onward";
import { directory, program, runProgram } from "./kit.js";

const RUNS = 20;

test("a process that is killed again and again loses nothing and repeats no recorded step", async () => {
  const [store, effects] = [directory(), join(directory(), "effects")];
  for (let kill = 0; kill < 8; kill++) {
    const child = program("crashing.js", [store, effects, String(RUNS)]);
    const closed = once(child, "close");
    await Promise.race([once(child.stdout!, "data"), closed]);
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 60));
    child.kill("SIGKILL");
    await closed;
  }
  const { stdout, stderr } = await runProgram("crashing.js", [store, effects, String(RUNS)]);
  const { results, recorded } = JSON.parse(stdout.split("\n")[1] ?? stderr) as { results: number[]; recorded: number[] };
  assert.deepEqual(results, Array.from({ length: RUNS }, (_, n) => 28 + n + 100 + 1));
  assert.deepEqual(recorded, Array.from({ length: RUNS }, () => 9), "each step is recorded once");
  const lines = readFileSync(effects, "utf8").trim().split("\n").filter((line) => !line.startsWith("task"));
  const keys = new Map<string, Set<string>>();
  for (const line of lines) {
    const [id, step, key] = line.split(" ") as [string, string, string];
    keys.set(`${id} ${step}`, (keys.get(`${id} ${step}`) ?? new Set()).add(key));
  }
  assert.equal(keys.size, RUNS * 8);
  for (const [step, used] of keys) assert.equal(used.size, 1, `${step} has the same key in every process`);
});

test("a blocked event loop loses no run and executes no step twice", async () => {
  let [calls, blocked] = [0, false];
  const block = workflow("block", async (ctx) => {
    for (let n = 0; n < 5; n++) {
      await ctx.step(`s${n}`, async () => {
        calls++;
        if (n !== 2 || blocked) return;
        blocked = true;
        // Longer than the lease.
        const end = Date.now() + 3_000;
        while (Date.now() < end);
      });
    }
    return calls;
  });
  await using onward = await Onward.embedded(directory(), { workflows: [block], lease: { seconds: 1 } });
  assert.equal(await (await onward.start(block)).result(), 5);
});

test("after close, everything fails at once and clearly", async () => {
  const idle = workflow("idle", (ctx) => ctx.signal("never").recv());
  const onward = await Onward.embedded("memory:", { workflows: [idle] });
  const run = await onward.start(idle);
  const result = run.result();
  result.catch(() => {});
  const watched = run.watch();
  await watched.next();
  await onward.close();
  await onward.close();
  await assert.rejects(result, { code: "shut_down" });
  for (const use of [() => onward.start(idle), () => run.signal("x"), () => run.result(), () => onward.run("x").view()]) {
    await assert.rejects(async () => use(), (error: OnwardError) => error instanceof OnwardError && error.code === "shut_down");
  }
});

test("a directory that is in use is refused, and free after close", async () => {
  const path = directory();
  const onward = await Onward.embedded(path);
  await assert.rejects(Onward.embedded(path), { name: "OnwardError", code: "directory_locked" });
  await onward.close();
  await (await Onward.embedded(path)).close();
});

test("settings that do not fit are refused", async () => {
  await assert.rejects(Onward.connect("ftp://x"), { name: "OnwardError", code: "value_invalid" });
  await assert.rejects(Onward.postgres("postgres://127.0.0.1:1/x"), { name: "OnwardError", code: "store_unavailable" });
  await using away = await Onward.connect("http://127.0.0.1:1");
  await assert.rejects(away.run("x").view(), { name: "OnwardError" });
  const twice = workflow("twice", () => 1);
  await assert.rejects(Onward.embedded("memory:", { workflows: [twice, twice] }), { name: "OnwardError" });
  assert.throws(() => workflow("", () => 1), TypeError);
  const label = task("label", () => 1);
  await assert.rejects(Onward.embedded("memory:", { workflows: [label] as never }), /`label` is a task: pass it in the option `tasks`/);
  await assert.rejects(Onward.embedded("memory:", { tasks: [twice] as never }), /`twice` is a workflow: pass it in the option `workflows`/);
  await assert.rejects(Onward.embedded("memory:", { workflows: [undefined] as never }), /an entry that is no definition: use `workflow\(\.\.\)`/);
  await assert.rejects(Onward.embedded("memory:", { workflows: twice as never }), /`workflows` is not an array/);
});

test("runs stay with the code of their version", async () => {
  const path = directory();
  const code = (version: string) =>
    workflow("versioned", async (ctx) => `${version} ${await ctx.signal<string>("go").recv()} ${await ctx.step(version, () => version)}`, { version });
  const first = await Onward.embedded(path, { workflows: [code("v1")] });
  await (await first.start("versioned", null, { id: "old" })).waitForStatus("waiting");
  await first.close();
  await using second = await Onward.embedded(path, { workflows: [code("v2"), code("v1")] });
  await second.start("versioned", null, { id: "new" });
  for (const id of ["old", "new"]) await second.run(id).signal("go", id);
  assert.equal(await second.run("old").result(), "v1 old v1");
  assert.equal(await second.run("new").result(), "v2 new v2");
});

const programs: Record<string, [RegExp, number]> = {
  // Ends although runs wait.
  exit: [/^left\n$/, 3],
  // Ends by itself after close.
  closed: [/^closed\n$/, 0],
  // A failure of the process itself ends it as always.
  rejection: [/^$/, 1],
  // An exception of a callback of the user.
  thrown: [/^$/, 1],
};

for (const [name, [stdout, code]] of Object.entries(programs)) {
  test(`a process that ends: ${name}`, async () => {
    const ended = await runProgram("ending.js", [name]);
    assert.match(ended.stdout, stdout, ended.stderr);
    assert.equal(ended.code, code, ended.stderr);
    assert.equal(ended.signal, null);
  });
}

test("Ctrl-C ends the process", async () => {
  const child = program("ending.js", ["wait"]);
  await once(child.stdout!, "data");
  child.kill("SIGINT");
  const [, signal] = (await once(child, "close")) as [number | null, string | null];
  assert.equal(signal, "SIGINT");
});

test("worker threads have an Onward of their own, and can be terminated", async () => {
  const threads = await Promise.all(
    ["closes", "terminated", "ends"].map(async (how) => {
      const thread = new Worker(new URL("threads.js", import.meta.url), { argv: [how] });
      const exit = once(thread, "exit");
      const [message] = (await once(thread, "message")) as [string];
      if (how === "terminated") await thread.terminate();
      await exit;
      return message;
    }),
  );
  assert.deepEqual(threads, ["closes: 3", "terminated: 3", "ends: 3"]);
});
