// A log of a hundred thousand events, and a run whose code diverged, with frames sent by hand.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { assertAccessible, assertClean, closeBrowser, openPage, screenshot } from "./helpers/browser.mjs";
import { TestServer } from "./helpers/server.mjs";

const EVENTS = 100_000;
const IN_COMMIT = 2000;
let server;

/** Exchanges frames until `done` returns true. */
async function work(kind, onRun) {
  const post = async (frames, wait = 0) => {
    const response = await fetch(`${server.url}/v1/workers/w-${kind}/frames?wait_ms=${wait}`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ frames }) });
    if (!response.ok) throw new Error(await response.text());
    return (await response.json()).frames;
  };
  await post([{ hello: { protocol: 1, worker: `w-${kind}`, kinds: [{ kind }], task_kinds: [], runs_max: 2, sdk: "console tests", connection: 1 } }]);
  let frames = await post([{ credit: { runs: 1, tasks: 0 } }], 2000);
  while (!frames.some((frame) => frame.run)) frames = await post([{ heartbeat: { request: 0 } }], 2000);
  const { head } = frames.find((frame) => frame.run).run;
  const reply = async (frame, request) => {
    let answers = await post([frame]);
    while (!answers.some((answer) => answer.reply?.request === request)) answers = await post([{ heartbeat: { request: 0 } }], 1000);
    return answers.find((answer) => answer.reply?.request === request).reply.outcome;
  };
  await onRun(head, reply);
  await post([{ leave: { request: 99_999 } }]);
}

before(async () => {
  server = await TestServer.start();
  await server.start("long", "long-1");
  await work("long", async (head, reply) => {
    let horizon = 0;
    for (let n = 0; n * IN_COMMIT < EVENTS; n++) {
      const events = Array.from({ length: IN_COMMIT }, (_, at) => {
        const call = n * IN_COMMIT + at;
        return call % 3 === 0
          ? { type: "step_completed", call_id: String(call), name: `step ${call}`, output: { json: { call } }, attempt: 1, took_ms: 3 }
          : { type: "state_set", call_id: String(call), key: `key-${call % 50}`, value: { json: { call } } };
      });
      const commit = { key: head.key, generation: head.generation, epoch: head.epoch, n: head.next_commit + n, commit_id: String(n + 1), horizon, events, waits: false };
      const outcome = await reply({ commit: { request: n + 1, commit } }, n + 1);
      assert.ok(outcome.committed, JSON.stringify(outcome));
      horizon = outcome.committed.index + IN_COMMIT - 1;
    }
  });
  await server.start("diverging", "diverged-1");
  await work("diverging", async (head, reply) => {
    const divergence = { index: 4, recorded: "step `charge card` (call 2)", attempted: "step `refund card` (call 2)", nearest: "step `check stock` (call 1)", hint: "guard the change with ctx.version, or reset the run to event 3" };
    const report = { reason: "diverged", message: "the code makes another call than the log has", divergence };
    await reply({ pause: { request: 1, run: head.key, generation: head.generation, epoch: head.epoch, report } }, 1);
  });
});

after(async () => {
  await closeBrowser();
  await server?.close();
});

test("a log of a hundred thousand events opens at once and scrolls smoothly", async () => {
  const page = await openPage(server.url, { hash: "#/runs/long-1/log" });
  const began = Date.now();
  await page.locator(".log-row .log-title").first().waitFor();
  console.log(`the log was there after ${Date.now() - began} ms`);
  await page.getByRole("button", { name: "Full" }).click();
  const result = await page.evaluate(async () => {
    const list = document.querySelector(".log-list");
    const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
    const frames = [];
    let rows = 0;
    for (let at = 0; at < 120; at++) {
      const from = performance.now();
      list.scrollTop = (list.scrollHeight - list.clientHeight) * (at / 119);
      await frame();
      await frame();
      frames.push((performance.now() - from) / 2);
      rows = Math.max(rows, document.querySelectorAll(".log-row").length);
    }
    frames.sort((a, b) => a - b);
    return { rows, median: frames[60], p95: frames[113], height: list.scrollHeight };
  });
  console.log(`scrolled through: ${JSON.stringify(result)}`);
  assert.ok(result.rows < 120, `${result.rows} rows in the document`);
  assert.ok(result.median < 50, `a picture every ${result.median} ms`);
  await page.locator(".log-row", { hasText: "100,000" }).or(page.locator(".log-row .log-title").last()).first().waitFor();
  await page.getByLabel("Go to an event").fill("54321");
  await page.getByLabel("Go to an event").press("Enter");
  await page.getByRole("complementary", { name: "Event 0:54321" }).getByText("step_completed").or(page.getByRole("complementary", { name: "Event 0:54321" }).getByText("state_set")).first().waitFor();
  await page.getByRole("button", { name: "Compact" }).click();
  await page.getByText(/are not loaded/).waitFor();
  await screenshot(page, "run-log-100000", { dark: false });
  assertClean(page);
  await page.context().close();
});

test("the timeline and time travel of such a run open", async () => {
  const page = await openPage(server.url, { hash: "#/runs/long-1/timeline" });
  await page.locator(".tl-select", { hasText: "step 0" }).waitFor();
  await page.goto(`${server.url}/#/runs/long-1/travel?index=60000`);
  await page.getByRole("heading", { name: /State key-|Step step/ }).waitFor();
  assertClean(page);
  await page.context().close();
});

test("a divergence is shown as recorded against asked, with the hint", async () => {
  const page = await openPage(server.url, { hash: "#/runs/diverged-1" });
  await page.getByRole("heading", { name: "The code diverged from the log" }).waitFor();
  assert.equal(await page.locator(".divergence del").first().innerText(), "charge");
  assert.equal(await page.locator(".divergence ins").first().innerText(), "refund");
  await page.getByText("guard the change with ctx.version").waitFor();
  await screenshot(page, "run-divergence");
  await assertAccessible(page, "divergence");
  assertClean(page);
  await page.context().close();
});
