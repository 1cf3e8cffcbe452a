/** What workflow code must not do pauses its run, with a message that names the replacement. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { task, workflow, type Ctx } from "onward";
import { inMemory, pauseOf } from "./kit.js";

/** Settled long after the runs that await it were paused. */
const later = new Promise((resolve) => setTimeout(resolve, 60_000).unref());

const misuses: Record<string, [RegExp, (ctx: Ctx) => unknown]> = {
  "Date.now": [/`Date\.now\(\)` is not deterministic in workflow code: use `ctx\.now\(\)`/, () => Date.now()],
  "new Date": [/`new Date\(\)` is not deterministic in workflow code: use `ctx\.now\(\)`/, () => new Date().getTime()],
  "Date as a function": [/use `ctx\.now\(\)`/, () => Date()],
  "Math.random": [/`Math\.random\(\)` is not deterministic .* use `ctx\.random\(\)` or `ctx\.uuid\(\)`/, () => Math.random()],
  "crypto.randomUUID": [/`crypto\.randomUUID\(\)`.*ctx\.uuid/, () => crypto.randomUUID()],
  "crypto.getRandomValues": [/`crypto\.getRandomValues\(\)`/, () => crypto.getRandomValues(new Uint8Array(1))[0]],
  "performance.now": [/`performance\.now\(\)`/, () => performance.now()],
  "process.hrtime": [/`process\.hrtime\(\)`/, () => process.hrtime()[0]],
  setTimeout: [/`setTimeout` is not recorded in workflow code: use `ctx\.sleep\(\.\.\)`/, () => new Promise((resolve) => setTimeout(resolve, 1))],
  setInterval: [/`setInterval`.*ctx\.sleep/, () => new Promise((resolve) => setInterval(resolve, 1))],
  setImmediate: [/`setImmediate`.*ctx\.sleep/, () => new Promise((resolve) => setImmediate(resolve))],
  "AbortSignal.timeout": [/`AbortSignal\.timeout\(\)`.*ctx\.timeout/, () => AbortSignal.timeout(1).aborted],
  fetch: [/`fetch` is not recorded in workflow code: use `ctx\.step\(\.\.\)`/, () => fetch("http://127.0.0.1:1/")],
  "a timer of a module": [/awaits a promise that Onward does not know/, () => sleep(1)],
  "a file": [/awaits a promise that Onward does not know/, () => readFile("/dev/null")],
  "a promise of another part of the process": [/awaits a promise that Onward does not know/, () => later],
  "a promise that is never settled": [/awaits a promise that Onward does not know/, () => new Promise(() => {})],
  "a request of a client": [/`start` is a request of a caller.*ctx\.child/, () => onward.start("misuse", "none")],
  "a file after a step": [
    /awaits a promise that Onward does not know/,
    async (ctx) => {
      await ctx.step("first", () => 1);
      await readFile("/dev/null");
    },
  ],
  "a foreign promise that wins against a timer": [
    /awaits a promise that Onward does not know/,
    (ctx) => Promise.race([ctx.sleep({ milliseconds: 200 }).then(() => ctx.signal("never").recv()), readFile("/dev/null")]),
  ],
};

const misuse = workflow("misuse", async (ctx, name: string) => misuses[name]?.[1](ctx) ?? null);
const clock = task("clock", async () => [Date.now(), Math.random(), await sleep(1), crypto.randomUUID().length]);
const outside = workflow("outside", async (ctx) => {
  const ok = await ctx.step("in a step", async () => [typeof Date.now(), typeof Math.random(), await sleep(1), new Date(0).getTime()]);
  return [...ok, (await ctx.task(clock)).length, new Date(5).getTime(), new Date("2026-01-01") instanceof Date, Date.parse("1970-01-01")];
});
const inStep = workflow("in-step", (ctx) => ctx.step("nested", async () => ctx.sleep({ seconds: 1 })));
const escaped = workflow("escaped", async (ctx) => {
  kept = ctx;
  return 1;
});
const lost = workflow("lost", async (ctx) => {
  void Promise.reject(new Error("nobody awaits this"));
  void ctx.step("lost", () => Promise.reject(new Error("nor this")));
  queueMicrotask(() => {
    throw new Error("thrown in a microtask");
  });
  await ctx.step("after", () => 1);
  return "went on";
});
let kept: Ctx | undefined;

const onward = await inMemory({ workflows: [misuse, outside, inStep, escaped, lost], tasks: [clock], checkReplay: "off" });

for (const [name, [message]] of Object.entries(misuses)) {
  test(`${name} in workflow code pauses the run`, async () => {
    assert.match(await pauseOf(await onward.start(misuse, name)), message);
  });
}

test("steps, tasks and the rest of the process keep their clocks", async () => {
  assert.deepEqual(await (await onward.start(outside)).result(), ["number", "number", null, 0, 4, 5, true, 0]);
  assert(Date.now() > 0 && Math.random() < 1 && new Date().getTime() > 0);
});

test("ctx is refused in a step, and after the end of its run", async () => {
  const failed = (await onward.start(inStep)).result();
  await assert.rejects(failed, /`ctx` was used outside of the code of its run \(sleep\).*not in steps/);
  await (await onward.start(escaped)).result();
  await assert.rejects(async () => kept?.sleep({ seconds: 1 }), /outside of the code of its run/);
});

test("rejections that nothing awaits are warnings, and the process goes on", async () => {
  const warnings: string[] = [];
  const listen = (warning: Error & { detail?: string }): void => void warnings.push(`${warning.message}: ${warning.detail}`);
  process.on("warning", listen);
  assert.equal(await (await onward.start(lost)).result(), "went on");
  await sleep(10);
  process.off("warning", listen);
  assert.equal(warnings.length, 2, warnings.join("\n"));
  assert(warnings.some((text) => text.includes("nobody awaits this")) && warnings.some((text) => text.includes("thrown in a microtask")));
});
