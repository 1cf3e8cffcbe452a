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

test("an approval with a schema has a form, and what the server refuses is shown at its field", async () => {
  await server.start("payment", "payment-1", { title: "Pay the invoice?" });
  const page = await openPage(server.url, { hash: "#/approvals" });
  await card(page, "Pay the invoice?").getByRole("button", { name: "Approve" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Amount in cents").fill("4200");
  await dialog.getByLabel("Account").selectOption("savings");
  await dialog.getByLabel("Transfer today").check();
  // The browser knows the pattern of a text, but not how many lines there must be.
  await dialog.getByLabel("Note").fill("Paid late");
  await dialog.getByRole("button", { name: "Approve" }).click();
  await dialog.locator(".fieldset", { hasText: "Invoice lines" }).locator(".field-error").waitFor();
  assert.equal((await server.api("GET", "/v1/runs/payment-1")).status, "waiting", "nothing is decided");
  await dialog.locator(".fieldset", { hasText: "Invoice lines" }).getByRole("button", { name: "Add" }).click();
  await dialog.getByLabel(/^Invoice lines 1( \*)?$/).fill("42.5");
  await dialog.locator(".fieldset", { hasText: "Payee" }).getByLabel("name").fill("Ada");
  await dialog.getByLabel("Anything else").fill('{"big": 12345678901234567890}');
  await screenshot(page, "approval-form");
  await assertAccessible(page, "the form of an answer");
  await dialog.getByText("The same from a shell").click();
  assert.match(await dialog.getByLabel("command line", { exact: true }).innerText(), /--approve --answer /);
  await dialog.getByRole("button", { name: "Approve" }).click();
  await page.getByText("Approved: Pay the invoice?").waitFor();
  const view = await server.until("payment-1", "completed");
  const { more: _, ...rest } = view.outcome.output.json;
  assert.deepEqual(rest, { amount: 4200, account: "savings", urgent: true, note: "Paid late", lines: [42.5], payee: { name: "Ada" } });
  const events = await (await fetch(`${server.url}/v1/runs/payment-1/events`)).text();
  assert.match(events, /12345678901234567890/, "numbers that a double cannot hold are sent exactly");
  assertClean(page);
  await closePage(page);
});

test("what is entered as soon as the form of an answer is there is kept", async () => {
  await server.start("payment", "payment-early", { title: "Pay at once?" });
  const page = await openPage(server.url, { hash: "#/approvals" });
  await card(page, "Pay at once?").waitFor();
  // The text is entered in the task of the click, before the browser paints and before effects after it.
  await page.evaluate(async () => {
    [...document.querySelectorAll("article button")].find((button) => button.closest("article").ariaLabel === "Pay at once?" && button.innerText.includes("Approve")).click();
    let input = null;
    for (let turns = 0; turns < 1000 && !input; turns++) {
      await Promise.resolve();
      input = document.querySelector("dialog input[type=number]");
    }
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(input, "4200");
    input.dispatchEvent(new Event("input", { bubbles: true }));
  });
  // Effects run at the latest some frames later.
  await page.evaluate(() => new Promise((resolve) => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(resolve)), 200)));
  const dialog = page.getByRole("dialog");
  assert.equal(await dialog.getByLabel("Amount in cents").inputValue(), "4200");
  await dialog.getByText("The same from a shell").click();
  const line = await dialog.getByLabel("command line", { exact: true }).innerText();
  assert.match(line, /"amount":4200/);
  assert.match(line, /"urgent":false/, "the defaults of the schema stay");
  assertClean(page);
  await closePage(page);
});

test("a denial of an approval with a schema needs no answer, also from the page of its run", async () => {
  await server.start("payment", "payment-2", { title: "Pay again?" });
  await server.until("payment-2", "waiting");
  const page = await openPage(server.url, { hash: "#/runs/payment-2" });
  await page.getByRole("button", { name: "Decide" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Amount in cents").waitFor();
  await dialog.getByRole("button", { name: "Approve" }).click();
  await dialog.locator(".field-error").first().waitFor();
  await dialog.getByRole("button", { name: "Deny" }).click();
  const view = await server.until("payment-2", "completed");
  assert.deepEqual(view.outcome, { output: { json: "rejected" } });
  assertClean(page);
  await closePage(page);
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
