// A log of a hundred thousand events, and a run whose code diverged, with frames sent by hand.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { assertAccessible, assertClean, closeBrowser, closePage, openPage, screenshot } from "./helpers/browser.mjs";
import { commitEvents, takeRun } from "./helpers/frames.mjs";
import { TestServer } from "./helpers/server.mjs";

const EVENTS = 100_000;
let server;

before(async () => {
  server = await TestServer.start();
  await server.start("long", "long-1");
  await takeRun(server, "long", (head, reply) =>
    commitEvents(head, reply, EVENTS, (call) =>
      call % 3 === 0
        ? { type: "step_completed", call_id: String(call), name: `step ${call}`, output: { json: { call } }, attempt: 1, took_ms: 3 }
        : { type: "state_set", call_id: String(call), key: `key-${call % 50}`, value: { json: { call } } },
    ),
  );
  await server.start("diverging", "diverged-1");
  await takeRun(server, "diverging", async (head, reply) => {
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
    for (let at = 0; at < 100; at++) {
      const from = performance.now();
      list.scrollTop = (list.scrollHeight - list.clientHeight) * (at / 99);
      await frame();
      await frame();
      frames.push((performance.now() - from) / 2);
      rows = Math.max(rows, document.querySelectorAll(".log-row").length);
    }
    frames.sort((a, b) => a - b);
    return { rows, median: frames[50], p95: frames[94], height: list.scrollHeight };
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
  await page.locator(".log-selected", { hasText: "54321" }).waitFor();
  assertClean(page);
  await closePage(page);
});

test("the timeline and time travel of such a run open", async () => {
  const page = await openPage(server.url, { hash: "#/runs/long-1/timeline" });
  await page.locator(".tl-select", { hasText: "step 0" }).waitFor();
  await page.goto(`${server.url}/#/runs/long-1/travel?index=60000`);
  await page.getByRole("heading", { name: /State key-|Step step/ }).waitFor();
  assertClean(page);
  await closePage(page);
});

test("a divergence is shown as recorded against asked, with the hint", async () => {
  const page = await openPage(server.url, { hash: "#/runs/diverged-1" });
  await page.getByRole("heading", { name: "The code diverged from the log" }).waitFor();
  assert.equal(await page.locator(".divergence del").first().innerText(), "charge");
  assert.equal(await page.locator(".divergence ins").first().innerText(), "refund");
  await page.getByText("guard the change with ctx.version").waitFor();
  await screenshot(page, "run-divergence", { dark: false });
  await assertAccessible(page, "divergence");
  assertClean(page);
  await closePage(page);
});
