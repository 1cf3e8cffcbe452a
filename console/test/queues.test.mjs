// The pages of queues and their limits, in a browser against a real server.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { PHONE, assertAccessible, assertClean, closeBrowser, closePage, openPage, screenshot } from "./helpers/browser.mjs";
import { HOSTILE, workflows } from "./helpers/fixtures.mjs";
import { TestServer } from "./helpers/server.mjs";
import { TestWorker } from "./helpers/worker.mjs";

let server;
let worker;
const held = [];

const path = (name) => `/v1/queues/${encodeURIComponent(name)}`;
const put = (name, settings) => server.api("PUT", path(name), settings);
const read = (name) => server.api("GET", path(name));
const task = (queue, id, key, more = {}) => server.api("POST", "/v1/tasks", { kind: "hold", id, queue, key, ...more });
const UNTIL_MS = 60_000;

/** Waits until a queue satisfies a condition. */
async function until(name, holds, what) {
  const limit = Date.now() + UNTIL_MS;
  for (;;) {
    const queue = await read(name);
    if (holds(queue)) return queue;
    assert.ok(Date.now() < limit, `${name} never has ${what}: ${JSON.stringify(queue)}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

const row = (page, name) => page.locator("tbody tr", { has: page.getByRole("link", { name, exact: true }) });
const section = (page, name) => page.locator(`section[aria-label="${name}"]`);
const field = (dialog, label) => dialog.locator(".field", { has: dialog.page().getByLabel(label, { exact: true }) });
const open = (name, more = "") => openPage(server.url, { hash: `#/queues/${encodeURIComponent(name)}${more}` });
const fits = (page) => page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth);

before(async () => {
  server = await TestServer.start();
});

after(async () => {
  held.forEach((release) => release());
  await closeBrowser();
  await worker?.stop();
  await server?.close();
});

test("without tasks and limits the list is empty, and a queue can get its first limit", async () => {
  const page = await openPage(server.url, { hash: "#/queues" });
  await page.getByText("No queue has tasks or workers").waitFor();
  await page.goto(`${server.url}/#/queues/early`);
  await page.getByText("The queue has no limits").waitFor();
  await page.getByText("No task waits or runs").waitFor();
  await page.getByRole("button", { name: "Change limits" }).click();
  const dialog = page.getByRole("dialog");
  assert.ok(await dialog.getByRole("button", { name: "Save" }).isDisabled(), "nothing changes");
  await dialog.getByLabel("Running tasks", { exact: true }).fill("3");
  await dialog.getByRole("button", { name: "Save" }).click();
  await section(page, "Limits").getByText("0 of 3").waitFor();
  assert.deepEqual((await read("early")).settings, { concurrency_max: 3 });
  assertClean(page);
  await closePage(page);
});

test("the list shows limits at a glance, what they hold back, and who has no worker", async () => {
  const names = ["", "payments", "mail", "hostile", "crowd"];
  worker = new TestWorker(server.url, { workflows, tasks: { hold: () => new Promise((resolve) => held.push(resolve)), resize: () => "done" }, queues: names, name: "teapot-worker" }).start();
  await put("payments", { concurrency_max: 3, key_concurrency_max: 2, rate: { starts_max: 100, period_ms: 3_600_000 }, weights: [{ key: "tenant-7", weight: 3 }] });
  await put("mail", { paused: true, depth_max: 0 });
  await put("gpu", { key_rate: { starts_max: 1, period_ms: 60_000 } });
  for (const [n, key] of ["tenant-1", "tenant-1", "tenant-1", "tenant-1", "tenant-7", "tenant-7", "tenant-9"].entries()) await task("payments", `pay-${n}`, key, { priority: n });
  await server.api("POST", "/v1/tasks", { kind: "render", id: "render-1", queue: "gpu" });
  await until("payments", ({ running }) => running === 3, "three running tasks");
  const page = await openPage(server.url, { hash: "#/queues" });
  await row(page, "payments").getByText("3 of 3").waitFor();
  await row(page, "payments").getByText("3 of 100").waitFor();
  const cells = await row(page, "payments").locator("td").allInnerTexts();
  assert.deepEqual([cells[1], cells[2], cells[5], cells[8]], ["hold, resize", "4", "4", "1"], "tasks, queued, held back, workers");
  await row(page, "mail").getByText("paused").waitFor();
  await row(page, "mail").getByText("drained").waitFor();
  await row(page, "gpu").getByText("none").waitFor();
  await page.locator(".figure", { hasText: "Held back by limits" }).getByText("4").waitFor();
  await screenshot(page, "queues");
  await assertAccessible(page, "queues");
  // A change appears without a reload of the page.
  await put("payments", { concurrency_max: 4, key_concurrency_max: 2 });
  await row(page, "payments").getByText("4 of 4").waitFor();
  await page.setViewportSize(PHONE);
  assert.ok(await fits(page), "the list is not too wide for a phone");
  await screenshot(page, "queues-phone", { dark: false });
  assertClean(page);
  await closePage(page);
});

test("the page of a queue shows what is used of its limits, its keys, and why each task waits", async () => {
  await put("payments", { concurrency_max: 6, key_concurrency_max: 2, rate: { starts_max: 100, period_ms: 3_600_000 }, weights: [{ key: "tenant-7", weight: 3 }] });
  await until("payments", ({ running }) => running === 5, "two tasks of each key");
  const page = await open("payments");
  await section(page, "Limits").getByText("5 of 6").waitFor();
  await section(page, "Limits").getByText(/\d of 100/).waitFor();
  const first = row(page, "tenant-1").first();
  assert.deepEqual((await first.locator("td").allInnerTexts()).filter((_, at) => at !== 3), ["tenant-1", "2", "2 / 2", "1", "the key has no free slot"]);
  assert.equal(await section(page, "Keys").locator("tbody tr").count(), 3);
  const waiting = section(page, "Waiting tasks").locator("tbody tr");
  assert.equal(await waiting.count(), 2);
  await waiting.first().getByText("the key has no free slot").waitFor();
  assert.equal(await section(page, "Running tasks").locator("tbody tr").count(), 5);
  await section(page, "Running tasks").getByText("teapot-worker-1").first().waitFor();
  await screenshot(page, "queue");
  await assertAccessible(page, "a queue");
  await section(page, "Keys").getByRole("link", { name: "tenant-9" }).click();
  await page.getByText("Tasks with the key").waitFor();
  await page.waitForFunction(() => document.querySelectorAll('section[aria-label="Running tasks"] tbody tr').length === 1);
  await section(page, "Waiting tasks").getByText("No task waits").waitFor();
  await page.getByRole("button", { name: "Show all tasks" }).click();
  await section(page, "Waiting tasks").getByRole("link", { name: /^pay-/ }).first().waitFor();
  await page.setViewportSize(PHONE);
  assert.ok(await fits(page), "the page is not too wide for a phone");
  await screenshot(page, "queue-phone", { dark: false });
  await page.setViewportSize(page.size);
  await section(page, "Waiting tasks").getByRole("link", { name: /^pay-/ }).first().click();
  await page.getByRole("heading", { name: /^pay-/, level: 1 }).waitFor();
  await page.getByText("because the key has no free slot").waitFor();
  assertClean(page);
  await closePage(page);
});

test("a rate that is used up names the time at which it opens", async () => {
  await put("crowd", { rate: { starts_max: 1, period_ms: 3_600_000 } });
  await task("crowd", "crowd-1");
  await until("crowd", ({ running }) => running === 1, "a running task");
  await task("crowd", "crowd-2");
  const page = await open("crowd");
  await section(page, "Limits").getByText("1 of 1").waitFor();
  await section(page, "Limits").getByText(/the rate of the queue is used up, opens in \d+ (min|h)/).waitFor();
  await section(page, "Waiting tasks").getByText(/the rate of the queue is used up, opens in/).waitFor();
  await section(page, "Keys").getByText("without a key").waitFor();
  assertClean(page);
  await closePage(page);
});

test("limits are changed with a preview, the commands, and refusals at their fields", async () => {
  await put("early", { concurrency_max: 3 });
  const page = await open("early");
  await page.getByRole("button", { name: "Change limits" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Running tasks", { exact: true }).fill("0");
  await dialog.getByRole("button", { name: "Save" }).click();
  await field(dialog, "Running tasks").locator(".field-error", { hasText: "concurrency_max" }).waitFor();
  await dialog.getByLabel("Running tasks", { exact: true }).fill("20");
  await dialog.getByLabel("Running tasks of each key").fill("2");
  await dialog.getByLabel("Starts", { exact: true }).fill("100");
  await field(dialog, "Period").locator(".field-error", { hasText: "a rate needs a period" }).waitFor();
  assert.ok(await dialog.getByRole("button", { name: "Save" }).isDisabled());
  await dialog.getByLabel("Period", { exact: true }).fill("40d");
  await dialog.getByLabel("Weights").fill("tenant-7 = 2000");
  await dialog.getByRole("button", { name: "Save" }).click();
  await field(dialog, "Period").locator(".field-error", { hasText: "31 days" }).waitFor();
  await dialog.getByLabel("Period", { exact: true }).fill("1m");
  await dialog.getByRole("button", { name: "Save" }).click();
  await field(dialog, "Weights").locator(".field-error", { hasText: "from 1 to 1000" }).waitFor();
  await dialog.getByLabel("Weights").fill("tenant-7 = 3");
  await dialog.getByText("Running tasks: 3 → 20").waitFor();
  await dialog.getByText("Rate: no limit → 100 per 1m").waitFor();
  await dialog.getByText("The same from a shell").click();
  assert.equal(await dialog.getByLabel("command line", { exact: true }).innerText(), "onward queue set early --concurrency 20 --key-concurrency 2 --rate 100/1m --weight tenant-7=3");
  assert.match(await dialog.getByLabel("curl", { exact: true }).innerText(), /^curl -X PUT .*\/v1\/queues\/early /);
  await screenshot(page, "queue-limits");
  await assertAccessible(page, "the form of limits");
  await dialog.getByRole("button", { name: "Save" }).click();
  await dialog.waitFor({ state: "detached" });
  assert.deepEqual((await read("early")).settings, { concurrency_max: 20, key_concurrency_max: 2, rate: { starts_max: 100, period_ms: 60_000 }, weights: [{ key: "tenant-7", weight: 3 }] });
  await section(page, "Limits").getByText("2 running").waitFor();
  assertClean(page);
  await closePage(page);
});

test("a save never overwrites what another person stored meanwhile", async () => {
  await put("early", { concurrency_max: 3, depth_max: 50 });
  const page = await open("early");
  await page.getByRole("button", { name: "Change limits" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Running tasks", { exact: true }).fill("5");
  // Another change is stored while this one is on its way.
  let changes = 0;
  await page.route("**/v1/queues/early", async (route) => {
    if (route.request().method() === "PUT" && changes++ === 0) await put("early", { concurrency_max: 4, depth_max: 70 });
    await route.continue();
  });
  await dialog.getByRole("button", { name: "Save" }).click();
  await dialog.getByText("queue_changed").waitFor();
  await dialog.getByText("The settings were changed since this form was opened.", { exact: false }).waitFor();
  assert.equal(await dialog.getByLabel("Waiting tasks").inputValue(), "70", "what was not entered is what is stored now");
  assert.equal(await dialog.getByLabel("Running tasks", { exact: true }).inputValue(), "5");
  await dialog.getByText("Running tasks: 4 → 5").waitFor();
  assert.deepEqual((await read("early")).settings, { concurrency_max: 4, depth_max: 70 });
  await dialog.getByRole("button", { name: "Save" }).click();
  await dialog.waitFor({ state: "detached" });
  assert.deepEqual((await read("early")).settings, { concurrency_max: 5, depth_max: 70 });
  await page.unroute("**/v1/queues/early");
  assertClean(page);
  await closePage(page);
});

test("pause, resume, drain, accept and reset ask, and show their commands", async () => {
  await put("early", { concurrency_max: 3 });
  const page = await open("early");
  const dialog = page.getByRole("dialog");
  const act = async (button, line, confirm) => {
    await page.getByRole("button", { name: button, exact: true }).click();
    await dialog.getByText("The same from a shell").click();
    assert.equal(await dialog.getByLabel("command line", { exact: true }).innerText(), line);
    await dialog.getByRole("button", { name: confirm, exact: true }).click();
    await dialog.waitFor({ state: "detached" });
  };
  await act("Pause", "onward queue pause early", "Pause");
  await page.getByText("Paused: no task begins until the queue is resumed.", { exact: false }).waitFor();
  assert.deepEqual((await read("early")).settings, { concurrency_max: 3, paused: true });
  await act("Drain", "onward queue set early --depth 0", "Refuse new tasks");
  await page.getByText("Drained: standalone tasks are refused.", { exact: false }).waitFor();
  await assert.rejects(task("early", "refused"), /queue_full/);
  await act("Resume", "onward queue resume early", "Resume");
  await act("Accept tasks", "onward queue set early --depth none", "Accept tasks");
  await page.getByRole("button", { name: "Drain" }).waitFor();
  assert.deepEqual((await read("early")).settings, { concurrency_max: 3 });
  // The form asks for a drain, too.
  await page.getByRole("button", { name: "Change limits" }).click();
  await dialog.getByLabel("Waiting tasks").fill("0");
  assert.ok(await dialog.getByRole("button", { name: "Save" }).isDisabled());
  await dialog.getByLabel("Refuse every new standalone task", { exact: false }).check();
  assert.ok(await dialog.getByRole("button", { name: "Save" }).isEnabled());
  await dialog.getByRole("button", { name: "Back" }).click();
  await page.getByRole("button", { name: "Reset" }).click();
  assert.ok(await dialog.getByRole("button", { name: "Remove all limits" }).isDisabled());
  await dialog.getByText("Running tasks: 3").waitFor();
  await dialog.getByLabel("Name of the queue").fill("early");
  await dialog.getByRole("button", { name: "Remove all limits" }).click();
  await page.getByText("The queue has no limits").waitFor();
  assert.equal((await read("early")).settings, null);
  assertClean(page);
  await closePage(page);
});

test("many keys are shown in pages and searched by their beginning", async () => {
  await put("bulk", { paused: true, key_concurrency_max: 1 });
  const ids = Array.from({ length: 60 }, (_, n) => `key-${String(n).padStart(3, "0")}`);
  await Promise.all(ids.map((id) => task("bulk", id, id)));
  const page = await open("bulk");
  const keys = section(page, "Keys");
  await keys.getByText("Keys 1 to 25").waitFor();
  await keys.locator("tbody tr").first().getByText("the queue is paused").waitFor();
  await page.locator(".figure", { hasText: "Held back by limits" }).getByText("60").waitFor();
  const seen = new Set();
  const note = async () => (await keys.locator("tbody tr td:first-child").allInnerTexts()).forEach((key) => seen.add(key));
  await note();
  assert.ok(await keys.getByRole("button", { name: "Previous keys" }).isDisabled());
  await keys.getByRole("button", { name: "Next keys" }).click();
  await keys.getByText("Keys 26 to 50").waitFor();
  await note();
  await keys.getByRole("button", { name: "Next keys" }).click();
  await keys.getByText("Keys 51 to 60").waitFor();
  await note();
  assert.equal(seen.size, 60);
  assert.ok(await keys.getByRole("button", { name: "Next keys" }).isDisabled());
  await keys.getByLabel("Keys that begin with").fill("key-01");
  await page.waitForFunction(() => document.querySelectorAll('section[aria-label="Keys"] tbody tr').length === 10);
  await keys.getByLabel("Keys that begin with").fill("none");
  await keys.getByText("No such key has open tasks").waitFor();
  await section(page, "Waiting tasks").getByText("The first 50, in the order in which they were queued.").waitFor();
  assertClean(page);
  await closePage(page);
});

test("a run that waits says which limit of its queue holds its task back", async () => {
  await put("default", { paused: true });
  await server.start("resizing", "resize-1", { size: 3 });
  await server.until("resize-1", "waiting");
  const page = await openPage(server.url, { hash: "#/runs/resize-1" });
  await page.getByText("Waits until the queue default is resumed to execute task resize", { exact: false }).waitFor();
  await page.getByText("waits, because the queue is paused:", { exact: false }).waitFor();
  await page.getByText("onward queue resume default").waitFor();
  await page.locator(".waits").getByRole("link", { name: "default" }).click();
  await page.getByRole("heading", { name: "default", level: 1 }).waitFor();
  await page.getByRole("button", { name: "Resume" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Resume" }).click();
  await server.until("resize-1", "completed");
  await server.api("DELETE", path("default"));
  assertClean(page);
  await closePage(page);
});

test("hostile names of queues and keys are text", async () => {
  const texts = HOSTILE.slice(0, 6);
  for (const [n, text] of texts.entries()) {
    await put(text, { key_concurrency_max: 1, weights: [{ key: text, weight: 2 }] });
    await task(text, `hostile-${n}`, text);
  }
  const page = await openPage(server.url, { hash: "#/queues" });
  for (const text of texts) await page.getByRole("link", { name: text, exact: true }).first().waitFor({ state: "attached" });
  for (const text of texts) {
    await page.goto(`${server.url}/#/queues/${encodeURIComponent(text)}`);
    await section(page, "Keys").getByRole("link", { name: text, exact: true }).waitFor();
    await page.getByRole("button", { name: "Change limits" }).click();
    assert.equal(await page.getByRole("dialog").getByLabel("Weights").inputValue(), `${text} = 2`);
    await page.getByRole("dialog").getByRole("button", { name: "Back" }).click();
  }
  assert.equal(await page.evaluate(() => window.hit), undefined);
  assertClean(page);
  await closePage(page);
});

test("a key without the scope operate sees queues and changes nothing", async () => {
  const closed = await TestServer.start({ keys: [{ name: "boss", scope: "all" }, { name: "viewer", scope: "read" }] });
  try {
    await closed.api("PUT", path("seen"), { concurrency_max: 3 }, closed.keys.boss.secret);
    await assert.rejects(closed.api("PUT", path("seen"), {}, closed.keys.viewer.secret), /403/);
    const page = await openPage(closed.url, { hash: "#/login" });
    await page.getByLabel("API key").fill(closed.keys.viewer.secret);
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Runs", level: 1 }).waitFor();
    await page.goto(`${closed.url}/#/queues`);
    await page.getByRole("link", { name: "seen", exact: true }).click();
    await section(page, "Limits").getByText("0 of 3").waitFor();
    for (const name of ["Pause", "Drain", "Change limits", "Reset"]) assert.equal(await page.getByRole("button", { name, exact: true }).count(), 0, name);
    await page.keyboard.press("e");
    assert.equal(await page.getByRole("dialog").count(), 0);
    await closePage(page);
  } finally {
    await closed.close();
  }
});

test("the pages are reached and used by keys", async () => {
  await put("early", { concurrency_max: 3 });
  const page = await openPage(server.url);
  await page.getByRole("heading", { name: "Runs", level: 1 }).waitFor();
  await page.keyboard.press("g");
  await page.keyboard.press("q");
  await page.getByRole("heading", { name: "Queues", level: 1 }).waitFor();
  await page.getByRole("link", { name: "early", exact: true }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "early", level: 1 }).waitFor();
  await section(page, "Limits").waitFor();
  await page.keyboard.press("e");
  await page.getByRole("dialog").getByLabel("Running tasks", { exact: true }).waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  assertClean(page);
  await closePage(page);
});
