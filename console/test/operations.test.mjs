// The operations pages, in a browser against a real server.
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
  const offers = { order: { input_schema: { json: ORDER_SCHEMA }, output_schema: { json: { type: "string" } } } };
  worker = new TestWorker(server.url, { workflows, tasks: { ...tasks, hang: () => pause(60_000) }, offers, name: "teapot-worker" }).start();
  for (let n = 1; n <= 3; n++) await server.start("order", `order-${n}`, { item: "a teapot", quantity: n });
  for (let n = 1; n <= 4; n++) await server.start("no-worker", `stranded-${n}`);
  await server.api("POST", "/v1/tasks", { kind: "hang", id: "hang-1" });
  for (const [n, model, cost] of [[1, "large-1", "0.0125"], [2, "large-1", "1.25"], [3, "small-1", "0.000031"]]) {
    await server.api("POST", "/v1/tasks", { kind: "expensive", id: `expensive-${n}`, input: { model, cost }, costs: true });
    for (let status = ""; status !== "completed"; ) status = (await server.api("GET", `/v1/tasks/expensive-${n}/result?wait_ms=5000`)).status;
  }
  await server.until("order-3", "waiting");
});

after(async () => {
  await closeBrowser();
  await worker?.stop();
  await server?.close();
});

async function shows(name, heading, expected) {
  const page = await openPage(server.url, { hash: `#/${name}` });
  await page.getByRole("heading", { name: heading, level: 1 }).waitFor();
  for (const text of expected) await page.getByText(text).first().waitFor();
  // Rates need a second look at the counters.
  await page.waitForFunction(() => ![...document.querySelectorAll(".figure dd")].some((figure) => figure.textContent === "…"));
  await screenshot(page, name);
  await assertAccessible(page, name);
  await page.setViewportSize(PHONE);
  await page.waitForTimeout(100);
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  assert.ok(overflow <= 0, `${name} is ${overflow} px too wide for a phone`);
  assertClean(page);
  await closePage(page);
}

test("workers are listed with their kinds and the runs they hold", () => shows("workers", "Workers", ["teapot-worker-1", "order", "resize", /\d of 20,000/]));

test("servers show this server and its databases", () => shows("servers", "Servers", ["this one", "All databases answer"]));

test("spend is shown per day, model, kind and run", () => shows("spend", "Spend", ["large-1", "small-1", "$1.26", "expensive-2"]));

test("kinds show their schemas, and kinds without workers the runs that wait", async () => {
  await shows("kinds", "Kinds", ["Runs wait for a worker", "no-worker", "4 pending runs"]);
  const page = await openPage(server.url, { hash: "#/kinds" });
  await page.getByRole("button", { name: "Schemas" }).first().click();
  await page.getByText("quantity").first().waitFor();
  await page.getByRole("link", { name: "4 pending runs" }).click();
  await page.getByRole("link", { name: "stranded-4" }).waitFor();
  await page.goBack();
  await page.getByRole("link", { name: "Start" }).first().click();
  await page.getByRole("heading", { name: "Start a run" }).waitFor();
  assertClean(page);
  await closePage(page);
});

test("pages are reached by keys, and the theme is kept", async () => {
  const page = await openPage(server.url);
  await page.getByRole("heading", { name: "Runs", level: 1 }).waitFor();
  for (const [key, heading] of [["w", "Workers"], ["q", "Queues"], ["k", "Kinds"], ["s", "Servers"], ["m", "Spend"], ["a", "Approvals"], ["r", "Runs"]]) {
    await page.keyboard.press("g");
    await page.keyboard.press(key);
    await page.getByRole("heading", { name: heading, level: 1 }).waitFor();
  }
  await page.getByRole("button", { name: "Theme: auto" }).click();
  await page.getByRole("button", { name: "Theme: light" }).click();
  await page.reload();
  await page.getByRole("button", { name: "Theme: dark" }).waitFor();
  assert.equal(await page.evaluate(() => getComputedStyle(document.documentElement).colorScheme), "dark");
  await page.goto(`${server.url}/#/no-such-page`);
  await page.getByText("There is no such page").waitFor();
  assertClean(page);
  await closePage(page);
});
