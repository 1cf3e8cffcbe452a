// The list of runs, in a browser against a real server.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { PHONE, assertAccessible, assertClean, closeBrowser, closePage, openPage, screenshot } from "./helpers/browser.mjs";
import { ORDER_SCHEMA, pause, tasks, workflows } from "./helpers/fixtures.mjs";
import { TestServer } from "./helpers/server.mjs";
import { TestWorker } from "./helpers/worker.mjs";

let server;
let worker;

before(async () => {
  server = await TestServer.start();
  worker = new TestWorker(server.url, { workflows, tasks, offers: { order: { input_schema: { json: ORDER_SCHEMA } } } }).start();
  for (let n = 1; n <= 6; n++) await server.start("order", `order-${n}`, { item: "a teapot", quantity: n }, { attributes: { customer: String(40 + n), express: n % 2 === 0 } });
  for (let n = 1; n <= 3; n++) await server.start("broken", `broken-${n}`);
  for (let n = 1; n <= 8; n++) await server.start("quick", `quick-${n}`, n);
  await server.start("no-worker", "stranded-1");
  await server.until("broken-3", "failed");
  await server.until("quick-8", "completed");
  await server.until("order-6", "waiting");
});

after(async () => {
  await closeBrowser();
  await worker?.stop();
  await server?.close();
});

const rows = (page) => page.locator(".run-row:not(.run-head)");
const row = (page, id) => page.locator(".run-row", { has: page.getByRole("link", { name: id, exact: true }) });

test("the list shows runs with status, kind, attributes and counts", async () => {
  const page = await openPage(server.url);
  await row(page, "order-1").waitFor();
  assert.equal(await rows(page).count(), 18);
  assert.match(await row(page, "broken-1").innerText(), /failed[\s\S]*broken/);
  assert.match(await row(page, "order-2").innerText(), /customer=42/);
  await page.waitForFunction(() => [...document.querySelectorAll(".count")].some((count) => /failed\s*3/.test(count.textContent)));
  await page.locator(".chart-bucket").first().waitFor();
  await screenshot(page, "runs");
  await assertAccessible(page, "runs");
  assertClean(page);
  await closePage(page);
});

test("filters are in the address and survive a reload", async () => {
  const page = await openPage(server.url);
  await page.getByRole("button", { name: /^failed/ }).click();
  await page.waitForFunction(() => document.querySelectorAll(".run-row:not(.run-head)").length === 3);
  assert.match(page.url(), /status=failed/);
  await page.getByLabel("Kind", { exact: true }).fill("order");
  await page.getByText("No run matches the filter").waitFor();
  await page.getByRole("button", { name: /^failed/ }).click();
  await row(page, "order-6").waitFor();
  await page.reload();
  await row(page, "order-6").waitFor();
  assert.equal(await rows(page).count(), 6);
  await page.getByRole("button", { name: "Attributes" }).click();
  await page.getByLabel("Attribute", { exact: true }).fill("customer");
  await page.getByLabel("Value", { exact: true }).fill("43");
  await page.getByRole("button", { name: "Add" }).click();
  await page.waitForFunction(() => document.querySelectorAll(".run-row:not(.run-head)").length === 1);
  await row(page, "order-3").waitFor();
  await page.getByRole("button", { name: "Clear" }).click();
  await row(page, "quick-1").waitFor();
  await page.getByLabel("Search in ids").fill("ck-7");
  await page.waitForFunction(() => document.querySelectorAll(".run-row:not(.run-head)").length === 1);
  assertClean(page);
  await closePage(page);
});

test("a filter is saved as a view, found again and deleted", async () => {
  const page = await openPage(server.url, { hash: "#/runs?kind=order&status=waiting" });
  await page.getByRole("button", { name: "Save this filter as a view" }).click();
  await page.getByLabel("Name").fill("my orders");
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.getByLabel("View", { exact: true }).selectOption("All runs");
  await row(page, "quick-1").waitFor();
  await page.getByLabel("View", { exact: true }).selectOption("my orders");
  await page.waitForFunction(() => document.querySelectorAll(".run-row:not(.run-head)").length === 6);
  await page.getByRole("button", { name: "Delete the view my orders" }).click();
  assert.equal(await page.getByLabel("View", { exact: true }).locator("option", { hasText: "my orders" }).count(), 0);
  await closePage(page);
});

test("a run that starts and ends elsewhere changes its row at once", async () => {
  const page = await openPage(server.url);
  await page.getByText("live", { exact: true }).waitFor();
  const began = Date.now();
  await server.start("slow", "live-1", { ms: 1200 });
  await row(page, "live-1").waitFor();
  const shown = Date.now() - began;
  await row(page, "live-1").getByText("completed").waitFor();
  console.log(`a started run was listed after ${shown} ms`);
  assert.ok(shown < 1000, `${shown} ms`);
  await closePage(page);
});

test("paused updates are held back until they continue", async () => {
  const page = await openPage(server.url);
  await page.getByText("live", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Pause live updates" }).click();
  await server.start("quick", "held-1");
  await server.until("held-1", "completed");
  await pause(500);
  assert.equal(await row(page, "held-1").count(), 0);
  await page.getByRole("button", { name: "Continue live updates" }).click();
  await row(page, "held-1").waitFor();
  await closePage(page);
});

test("the start form is built from the schema, and its refusal is shown beside it", async () => {
  const page = await openPage(server.url);
  await page.getByRole("button", { name: "Start a run" }).click();
  await page.getByLabel("Kind *").fill("order");
  await page.getByLabel("item *").fill("a cup");
  await page.getByLabel("quantity").fill("3");
  await page.getByLabel("color").selectOption("blue");
  await page.getByLabel("express").check();
  await page.getByText("Id and attributes").click();
  await page.getByLabel("Id", { exact: true }).fill("from-the-form");
  await page.getByLabel("Kind *").scrollIntoViewIfNeeded();
  await screenshot(page, "start", { dark: false });
  await page.getByText("The same from a shell").click();
  const cli = await page.getByLabel("command line", { exact: true }).innerText();
  assert.match(cli, /^onward run start order --id from-the-form --input '\{"item":"a cup","quantity":3,/);
  await assertAccessible(page, "start");
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await page.waitForURL(/#\/runs\/from-the-form/);
  const view = await server.until("from-the-form", "waiting");
  assert.deepEqual(view.input, { json: { item: "a cup", quantity: 3, color: "blue", express: true } });

  await page.goto(`${server.url}/#/runs?start=order`);
  await page.getByRole("button", { name: "as JSON" }).click();
  await page.getByLabel("Input").fill('{"item": 7}');
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await page.getByText("input_invalid").waitFor();
  assertClean(page);
  await closePage(page);
});

test("runs are reached and selected by keys, and selected ones are canceled", async () => {
  const page = await openPage(server.url, { hash: "#/runs?kind=order&status=waiting" });
  await row(page, "order-1").waitFor();
  await page.keyboard.press("j");
  await page.keyboard.press("x");
  await page.keyboard.press("j");
  await page.keyboard.press("x");
  await page.getByText("2 runs selected").waitFor();
  await page.getByRole("button", { name: "Cancel", exact: true }).click();
  await page.getByLabel("Reason").fill("no more teapots");
  await page.getByRole("button", { name: "Cancel 2 runs" }).click();
  await page.getByText("2 runs canceled.").waitFor();
  await page.keyboard.press("?");
  await page.getByRole("heading", { name: "Keys" }).waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("heading", { name: "Keys" }).waitFor({ state: "detached" });
  assertClean(page);
  await closePage(page);
});

test("all failed runs are retried by their filter after a preview", async () => {
  const page = await openPage(server.url, { hash: "#/runs?kind=broken&status=failed" });
  await row(page, "broken-1").waitFor();
  await page.getByRole("button", { name: "Retry all that match" }).click();
  await page.getByRole("button", { name: "Retry 3 runs" }).click();
  await page.getByText("3 runs retried.").waitFor();
  await closePage(page);
});

test("an empty namespace and a phone show something useful", async () => {
  const page = await openPage(server.url, { viewport: PHONE });
  await rows(page).first().waitFor();
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth));
  await screenshot(page, "runs-phone", { dark: false });
  await assertAccessible(page, "runs on a phone");
  await page.getByRole("button", { name: "Menu" }).click();
  await page.getByRole("link", { name: "Workers" }).waitFor();
  await page.goto(`${server.url}/#/runs?kind=nothing-like-it`);
  await page.getByText("No run matches the filter").waitFor();
  assertClean(page);
  await closePage(page);
});
