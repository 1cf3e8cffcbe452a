// Servers that go away and come back, and addresses that lead nowhere.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { assertAccessible, assertClean, closeBrowser, closePage, openPage, screenshot } from "./helpers/browser.mjs";
import { tasks, workflows } from "./helpers/fixtures.mjs";
import { TestServer } from "./helpers/server.mjs";
import { TestWorker } from "./helpers/worker.mjs";

let server;
let worker;

before(async () => {
  server = await TestServer.start();
  worker = new TestWorker(server.url, { workflows, tasks }).start();
  await server.start("waiter", "waiter-1");
  await server.until("waiter-1", "waiting");
});

after(async () => {
  await closeBrowser();
  await worker?.stop();
  await server?.close();
});

test("a list survives a restart of the server and is live again by itself", async () => {
  const page = await openPage(server.url);
  await page.getByRole("link", { name: "waiter-1" }).waitFor();
  await page.locator(".chart-bucket").first().waitFor();
  await server.down();
  await page.getByText("The server does not answer. What is shown may be old.").waitFor();
  assert.equal(await page.getByRole("link", { name: "waiter-1" }).count(), 1, "the list stays");
  await screenshot(page, "offline", { dark: false });
  await assertAccessible(page, "offline");
  await server.up();
  const began = Date.now();
  await page.getByText("The server does not answer.").waitFor({ state: "detached", timeout: 30_000 });
  console.log(`connected ${Date.now() - began} ms after the server was ready`);
  await server.start("waiter", "after-the-restart");
  await page.getByRole("link", { name: "after-the-restart" }).waitFor();
  assertClean(page);
  await closePage(page);
});

test("a page that is opened without a server waits for it", async () => {
  const page = await openPage(server.url, { hash: "#/workers" });
  await page.getByRole("heading", { name: "Workers", level: 1 }).waitFor();
  await server.down();
  await page.evaluate(() => (location.hash = "#/queues"));
  await page.getByRole("heading", { name: "The server does not answer" }).waitFor();
  await server.up();
  await page.getByText("Queued tasks").waitFor({ timeout: 30_000 });
  await closePage(page);
});

test("an unknown run has a page that says so", async () => {
  const page = await openPage(server.url, { hash: "#/runs/never-was" });
  await page.getByText("There is no such run").waitFor();
  assertClean(page);
  await closePage(page);
});
