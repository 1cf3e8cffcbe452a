// The inbox of approvals, in a browser against a real server.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { PHONE, assertAccessible, assertClean, closeBrowser, closePage, openPage, screenshot } from "./helpers/browser.mjs";
import { tasks, workflows } from "./helpers/fixtures.mjs";
import { TestServer } from "./helpers/server.mjs";
import { TestWorker } from "./helpers/worker.mjs";

let server;
let worker;
const refund = (id, title, options) => server.start("refund", id, { title, options });

before(async () => {
  server = await TestServer.start();
  worker = new TestWorker(server.url, { workflows, tasks }).start();
});

after(async () => {
  await closeBrowser();
  await worker?.stop();
  await server?.close();
});

const card = (page, title) => page.getByRole("article", { name: title });

test("a question appears by itself with the payload that will run, and is approved with feedback", async () => {
  const page = await openPage(server.url, { hash: "#/approvals" });
  await page.getByText("Nothing waits for a decision").waitFor();
  await refund("refund-1", "Refund 42.00 to Ada?", { description: "She returned the teapot.", show: { cents: 4200, to: "DE89 3704", lines: [{ item: "teapot", cents: 4200 }] }, deadline_ms: 3_600_000, deciders: [] });
  await refund("refund-2", "Delete the account of Bob?", { show: { user: "bob", irreversible: true }, deciders: ["grace", "ada"], deadline_ms: 300_000 });
  await card(page, "Refund 42.00 to Ada?").waitFor();
  await card(page, "Delete the account of Bob?").waitFor();
  assert.match(await card(page, "Refund 42.00 to Ada?").innerText(), /She returned the teapot[\s\S]*4200[\s\S]*refund-1/);
  await page.locator(".nav-count", { hasText: "2" }).waitFor();
  await screenshot(page, "approvals");
  await assertAccessible(page, "approvals");
  await card(page, "Refund 42.00 to Ada?").getByRole("button", { name: "Approve" }).click();
  await page.getByLabel("Feedback").fill("fine");
  await page.getByLabel("Your name").fill("ada");
  await page.getByText("The same from a shell").click();
  assert.match(await page.getByLabel("command line", { exact: true }).innerText(), /^onward approval decide refund-1~0~0 --approve --feedback=fine --by=ada --decision-id /);
  await assertAccessible(page, "approve");
  await page.getByRole("dialog").getByRole("button", { name: "Approve" }).click();
  await card(page, "Refund 42.00 to Ada?").waitFor({ state: "detached" });
  const view = await server.until("refund-1", "completed");
  assert.deepEqual(view.outcome, { output: { json: "refunded" } });
  assertClean(page);
  await closePage(page);
});

test("numbers that a double cannot hold are shown exactly", async () => {
  const body = '{"kind":"refund","id":"refund-exact","input":{"title":"Exact?","options":{"show":{"account":12345678901234567890,"rate":0.1000000000000000055511151231257827}}}}';
  // The worker would round them, so the payload comes from the log of a start with its exact text.
  await fetch(`${server.url}/v1/runs`, { method: "POST", headers: { "content-type": "application/json" }, body });
  const page = await openPage(server.url, { hash: "#/runs/refund-exact/state" });
  await page.getByText("12345678901234567890").first().waitFor();
  await closePage(page);
});

test("two people who decide at once are harmless: the second learns of the first", async () => {
  await refund("refund-3", "Refund both?", { show: { cents: 1 } });
  const first = await openPage(server.url, { hash: "#/approvals" });
  const second = await openPage(server.url, { hash: "#/approvals" });
  await card(first, "Refund both?").getByRole("button", { name: "Approve" }).click();
  await card(second, "Refund both?").getByRole("button", { name: "Deny" }).click();
  await first.getByRole("dialog").getByRole("button", { name: "Approve" }).click();
  await first.getByText("Approved: Refund both?").waitFor();
  await second.getByRole("dialog").getByRole("button", { name: "Deny" }).click();
  await second.getByText(/Your decision has no effect/).waitFor();
  const view = await server.until("refund-3", "completed");
  assert.deepEqual(view.outcome, { output: { json: "refunded" } });
  await closePage(first);
  await closePage(second);
});

test("a decision is made by keys, and on a phone", async () => {
  await refund("refund-4", "Refund by keys?", { show: { cents: 2 } });
  const page = await openPage(server.url, { hash: "#/approvals", viewport: PHONE, hasTouch: true });
  await card(page, "Refund by keys?").waitFor();
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth));
  await screenshot(page, "approvals-phone", { dark: false });
  await assertAccessible(page, "approvals on a phone");
  const index = await page.getByRole("article").evaluateAll((cards) => cards.findIndex((item) => item.getAttribute("aria-label") === "Refund by keys?"));
  for (let n = 0; n <= index; n++) await page.keyboard.press("j");
  await page.keyboard.press("d");
  await page.getByLabel("Feedback").fill("not today");
  await page.getByRole("dialog").getByRole("button", { name: "Deny" }).tap();
  const view = await server.until("refund-4", "completed");
  assert.deepEqual(view.outcome, { output: { json: "kept" } });
  assertClean(page);
  await closePage(page);
});
