// The page of one run, in a browser against a real server.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { PHONE, assertAccessible, assertClean, closeBrowser, closePage, openPage, screenshot } from "./helpers/browser.mjs";
import { pause, tasks, workflows } from "./helpers/fixtures.mjs";
import { TestServer } from "./helpers/server.mjs";
import { StepWorker, announced, unsteady } from "./helpers/steps.mjs";
import { child, setState, signal, step, task, timer } from "./helpers/worker.mjs";

let server;
let worker;
let taskBegan = 0;
let stepBegan = 0;

const more = {
  *checkout(input) {
    yield setState("phase", "paying");
    const checked = yield step("check stock", () => pause(30).then(() => ({ left: 7 })));
    yield setState("stock", checked);
    const image = yield task("resize", { image: "cat.png" });
    yield setState("image", image);
    const receipt = yield child("quick", `${input.id}/receipt`, { receipt: 1 });
    yield setState("phase", "shipping");
    yield signal("parcel");
    yield timer(3_600_000);
    return receipt;
  },
  *late() {
    yield signal("go");
    return yield task("announced", 1);
  },
  *stepping(_, { id }) {
    yield signal("go");
    yield announced(worker, id, "long work", () => (stepBegan = Date.now()), () => pause(1500));
  },
  *flaky() {
    yield step("prepare", () => pause(10));
    yield unsteady("unsteady", 3);
    return "done";
  },
};

const moreTasks = {
  async announced() {
    taskBegan = Date.now();
    await pause(1500);
  },
};

before(async () => {
  server = await TestServer.start();
  worker = new StepWorker(server.url, { workflows: { ...workflows, ...more }, tasks: { ...tasks, ...moreTasks } }).start();
  await server.start("order", "order-1", { item: "a teapot", quantity: 2 }, { attributes: { customer: "42" } });
  await server.until("order-1", "waiting");
  await server.start("checkout", "checkout-1", { id: "checkout-1" });
  await server.start("flaky", "flaky-1");
  await server.start("broken", "broken-1");
  await server.start("family", "family-1", { id: "family-1", names: ["ada", "bob", "cleo"] });
  await server.until("family-1", "completed");
  await server.until("flaky-1", "completed");
  await server.until("broken-1", "failed");
  const until = Date.now() + 20_000;
  while (Date.now() < until && !(await server.api("GET", "/v1/runs/checkout-1")).state.image) await pause(50);
  await pause(300);
});

after(async () => {
  await closeBrowser();
  await worker?.stop();
  await server?.close();
});

const open = (hash, options) => openPage(server.url, { hash: `#/runs/${hash}`, ...options });
const tlRow = (page, name) => page.locator(".tl-row:not(.tl-axis)", { has: page.locator(".tl-select", { hasText: name }) });

test("the head says what the run waits for, and the timeline has its calls", async () => {
  const page = await open("checkout-1");
  await page.getByRole("heading", { name: "checkout-1" }).waitFor();
  await tlRow(page, "resize").waitFor();
  assert.match(await page.locator(".run-sentence").innerText(), /waiting[\s\S]*parcel/i);
  assert.equal(await tlRow(page, "check stock").count(), 1);
  assert.equal(await tlRow(page, "parcel").locator(".tl-wait").count(), 1);
  await tlRow(page, "resize").locator(".tl-select").click();
  await page.getByRole("complementary", { name: /^Call/ }).getByText("Attempt 1").waitFor();
  assert.match(page.url(), /call=/);
  await screenshot(page, "run-timeline");
  await assertAccessible(page, "timeline");
  assertClean(page);
  await closePage(page);
});

test("attempts, their failures and the time between them are apart", async () => {
  const page = await open("flaky-1/timeline");
  await tlRow(page, "unsteady").waitFor();
  assert.equal(await tlRow(page, "unsteady").locator(".tl-run").count(), 3);
  assert.equal(await tlRow(page, "unsteady").locator(".tl-failed").count(), 2);
  await tlRow(page, "unsteady").locator(".tl-select").click();
  await page.getByText("the other side hung up").first().waitFor();
  await page.getByRole("button", { name: "Zoom in" }).click();
  await page.keyboard.press("0");
  assertClean(page);
  await closePage(page);
});

test("children are opened inline and as a tree", async () => {
  const page = await open("family-1/timeline");
  await page.getByRole("button", { name: "Calls of family-1/ada" }).waitFor();
  await page.getByRole("button", { name: "Calls of family-1/ada" }).click();
  await page.goto(`${server.url}/#/runs/family-1/children`);
  await page.getByRole("link", { name: "family-1/ada" }).waitFor();
  assert.equal(await page.getByRole("treeitem").count(), 3);
  await screenshot(page, "run-children", { dark: false });
  await assertAccessible(page, "children");
  await page.getByRole("link", { name: "family-1/ada" }).click();
  await page.getByRole("heading", { name: "family-1/ada" }).waitFor();
  await page.getByRole("navigation", { name: "Where this run is" }).getByRole("link", { name: "family-1", exact: true }).waitFor();
  assertClean(page);
  await closePage(page);
});

/** Sends the signal `go` and returns when a running bar of the call was first in the document. */
async function seenAfterGo(page, id, name) {
  await tlRow(page, "go").waitFor();
  await page.getByText("live", { exact: true }).waitFor();
  await page.evaluate((wanted) => {
    globalThis.seenAt = 0;
    new MutationObserver(() => {
      const rows = [...document.querySelectorAll(".tl-row")].filter((row) => row.textContent.includes(wanted) && row.querySelector(".tl-run.tl-open"));
      if (rows.length > 0) globalThis.seenAt ||= Date.now();
    }).observe(document.body, { childList: true, subtree: true, attributes: true });
  }, name);
  await server.api("POST", `/v1/runs/${id}/signals`, { name: "go" });
  await page.waitForFunction(() => globalThis.seenAt > 0);
  return page.evaluate(() => globalThis.seenAt);
}

test("a step and a task that start are on the screen within 200 ms", async () => {
  for (const [kind, id, name] of [["late", "late-1", "announced"], ["stepping", "stepping-1", "long work"]]) {
    await server.start(kind, id);
    await server.until(id, "waiting");
    const page = await open(`${id}/timeline`);
    const seen = await seenAfterGo(page, id, name);
    const ms = seen - (kind === "late" ? taskBegan : stepBegan);
    console.log(`${name} was on the screen ${ms} ms after its worker began`);
    assert.ok(ms < 200, `${ms} ms`);
    await server.until(id, "completed");
    await page.locator(".run-sentence", { hasText: "completed" }).waitFor();
    assertClean(page);
    await closePage(page);
  }
});

test("held updates wait, and are applied when they continue", async () => {
  await server.start("late", "late-2");
  await server.until("late-2", "waiting");
  const page = await open("late-2/timeline");
  await tlRow(page, "go").waitFor();
  await page.getByRole("button", { name: "Hold" }).click();
  await server.api("POST", "/v1/runs/late-2/signals", { name: "go" });
  await page.getByRole("button", { name: /^Continue \(\d+\)/ }).waitFor();
  assert.equal(await tlRow(page, "announced").count(), 0);
  await page.getByRole("button", { name: /^Continue/ }).click();
  await tlRow(page, "announced").waitFor();
  assertClean(page);
  await closePage(page);
});

test("the log is compact or full, and a link leads to one event", async () => {
  const page = await open("checkout-1/log");
  await page.getByRole("button", { name: /Task resize completed/ }).waitFor();
  const compact = await page.locator(".log-row").count();
  await page.getByRole("button", { name: "Full" }).click();
  await page.getByRole("button", { name: "Task resize", exact: true }).waitFor();
  assert.ok((await page.locator(".log-row").count()) > compact);
  await page.getByRole("button", { name: "Task resize", exact: true }).click();
  const link = page.url();
  assert.match(link, /event=0(%3A|:)\d+/);
  await screenshot(page, "run-log", { dark: false });
  await assertAccessible(page, "log");
  await page.getByRole("complementary").getByRole("link", { name: "2", exact: true }).or(page.getByRole("complementary").locator("dd a").first()).first().click();
  await page.waitForURL(/timeline\?call=/);
  const other = await openPage(server.url, { hash: link.slice(link.indexOf("#")) });
  await other.getByRole("complementary", { name: /^Event 0:/ }).getByText("task_scheduled").waitFor();
  await other.getByLabel("Search the loaded events").fill("parcel");
  await other.waitForFunction(() => document.querySelectorAll(".log-row:not(.log-head)").length === 1);
  assertClean(other);
  await closePage(other);
  await closePage(page);
});

test("time travel shows the state as of an event", async () => {
  const page = await open("checkout-1/travel?index=2");
  await page.locator(".json", { hasText: "paying" }).waitFor();
  assert.equal(await page.locator(".json", { hasText: "shipping" }).count(), 0);
  await page.getByRole("slider").fill("9");
  await page.waitForURL(/index=9/);
  await page.keyboard.press("Escape");
  await page.getByRole("slider").evaluate((slider) => { slider.value = slider.max; slider.dispatchEvent(new Event("input", { bubbles: true })); });
  await page.locator(".json", { hasText: "shipping" }).waitFor();
  await page.locator(".travel-old").waitFor({ state: "detached" });
  await screenshot(page, "run-travel", { dark: false });
  await assertAccessible(page, "time travel");
  await page.getByRole("button", { name: "One event back" }).click();
  await page.getByRole("button", { name: "Fork from here" }).first().click();
  await page.getByRole("dialog").getByLabel("Id of the new run").fill("checkout-1-fork");
  await page.getByRole("dialog").getByLabel("Last event to copy").fill("");
  await page.getByRole("dialog").getByText("The same from a shell").click();
  await page.getByRole("dialog").getByText(/onward run fork checkout-1 .*--new-id checkout-1-fork/).waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Fork", exact: true }).click();
  await page.getByRole("heading", { name: "checkout-1-fork" }).waitFor();
  await page.getByText(/forked from/).waitFor();
  assertClean(page);
  await closePage(page);
});

test("state, input, attributes and facts", async () => {
  const page = await open("checkout-1/state");
  await page.getByRole("heading", { name: "Attributes" }).waitFor();
  await page.getByText("cat.png").first().waitFor();
  await screenshot(page, "run-state", { dark: false });
  await assertAccessible(page, "state");
  assertClean(page);
  await closePage(page);
});

test("an order is paid and approved from its page", async () => {
  const page = await open("order-1");
  await page.getByRole("button", { name: "Send it" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Payload (JSON)").fill("{wrong");
  await dialog.getByRole("button", { name: "Signal", exact: true }).click();
  await dialog.getByText(/not JSON/).first().waitFor();
  await dialog.getByLabel("Payload (JSON)").fill('{"cents": 4200}');
  await dialog.getByText("The same from a shell").click();
  await dialog.getByText(/onward run signal order-1 payment '\{"cents": 4200\}' --signal-id/).waitFor();
  await dialog.getByRole("button", { name: "Signal", exact: true }).click();
  await page.getByRole("button", { name: "Decide" }).click();
  await dialog.getByText("Elm Street 1").waitFor();
  await dialog.getByLabel("Feedback for the run").fill("looks fine");
  await assertAccessible(page, "approval");
  await dialog.getByRole("button", { name: "Approve" }).click();
  await page.locator(".run-sentence", { hasText: "completed" }).waitFor();
  const view = await server.until("order-1", "completed");
  assert.equal(view.outcome.output.json, "shipped, looks fine");
  assertClean(page);
  await closePage(page);
});

test("pause, resume, cancel with a question, retry and terminate", async () => {
  await server.start("waiter", "waiter-9");
  await server.until("waiter-9", "waiting");
  const page = await open("waiter-9");
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: "More" }).click();
  await page.getByRole("menuitem", { name: /^Pause/ }).click();
  await dialog.getByLabel("Reason").fill("lunch");
  await dialog.getByRole("button", { name: "Pause" }).click();
  await page.locator(".run-sentence", { hasText: "paused" }).waitFor();
  await page.getByRole("button", { name: "Resume" }).click();
  await dialog.getByRole("button", { name: "Resume" }).click();
  await page.locator(".run-sentence", { hasText: "waiting" }).waitFor();
  await page.getByRole("button", { name: "Cancel" }).click();
  assert.equal(await dialog.getByRole("button", { name: "Cancel", exact: true }).isDisabled(), true, "it asks first");
  await dialog.getByLabel("Yes, cancel this run").check();
  await dialog.getByLabel("Reason").fill("not needed");
  await dialog.getByRole("button", { name: "Cancel", exact: true }).click();
  await page.locator(".run-sentence", { hasText: "canceled" }).waitFor();
  await page.goto(`${server.url}/#/runs/broken-1`);
  await page.locator(".run-sentence", { hasText: "card declined" }).waitFor();
  await page.getByRole("button", { name: "Retry" }).click();
  await dialog.getByRole("button", { name: "Retry" }).click();
  await page.getByText("generation 1").first().waitFor();
  await page.getByRole("button", { name: "Earlier generation" }).waitFor();
  assertClean(page);
  await closePage(page);
});

test("a run that is deleted while its page is open says so", async () => {
  await server.start("quick", "quick-9", 1);
  await server.until("quick-9", "completed");
  const page = await open("quick-9");
  await page.getByRole("heading", { name: "quick-9" }).waitFor();
  await server.api("DELETE", "/v1/runs/quick-9?reason=test");
  await page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
  await page.getByText("This run was deleted").waitFor();
  await closePage(page);
});

test("the page of a run survives a restart of the server", async () => {
  const page = await open("checkout-1/timeline");
  await tlRow(page, "parcel").waitFor();
  await page.getByText("live", { exact: true }).waitFor();
  await server.down("SIGKILL");
  await page.getByText("The server does not answer. What is shown may be old.").waitFor();
  assert.equal(await tlRow(page, "parcel").count(), 1, "the timeline stays");
  await server.up();
  await page.getByText("The server does not answer.").waitFor({ state: "detached", timeout: 30_000 });
  await server.api("POST", "/v1/runs/checkout-1/signals", { name: "parcel", payload: 1 });
  await tlRow(page, "timer").waitFor({ timeout: 45_000 });
  assertClean(page);
  await closePage(page);
});

test("the pages of a run are usable on a phone", async () => {
  const page = await open("checkout-1", { viewport: PHONE });
  await tlRow(page, "resize").waitFor();
  for (const tab of ["timeline", "log", "travel", "state"]) {
    await page.goto(`${server.url}/#/runs/checkout-1/${tab}`);
    await page.waitForTimeout(300);
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(width <= 360, `${tab} is ${width} pixels wide`);
    if (tab === "timeline") await screenshot(page, "run-timeline-phone", { dark: false });
  }
  assertClean(page);
  await closePage(page);
});
