// The pages of schedules, in a browser against a real server.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { PHONE, assertAccessible, assertClean, closeBrowser, closePage, openPage, screenshot } from "./helpers/browser.mjs";
import { HOSTILE, ORDER_SCHEMA, tasks, workflows } from "./helpers/fixtures.mjs";
import { TestServer } from "./helpers/server.mjs";
import { TestWorker } from "./helpers/worker.mjs";

let server;
let worker;

const put = (id, body) => server.api("PUT", `/v1/schedules/${encodeURIComponent(id)}`, body);
const post = (id, verb, body) => server.api("POST", `/v1/schedules/${encodeURIComponent(id)}/${verb}`, body);
const read = (id) => server.api("GET", `/v1/schedules/${encodeURIComponent(id)}`);
const UNTIL_MS = 60_000;

/** Waits until a schedule satisfies a condition. */
async function until(id, holds, what) {
  const limit = Date.now() + UNTIL_MS;
  for (;;) {
    const schedule = await read(id);
    if (holds(schedule)) return schedule;
    assert.ok(Date.now() < limit, `${id} is never ${what}: ${JSON.stringify(schedule)}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

const row = (page, id) => page.locator("tbody tr", { has: page.getByRole("link", { name: id, exact: true }) });
const section = (page, name) => page.getByRole("region", { name, exact: true }).or(page.locator(`section[aria-label="${name}"]`)).first();
const open = (id, more = {}) => openPage(server.url, { hash: `#/schedules/${encodeURIComponent(id)}`, ...more });
const fits = (page) => page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth);

before(async () => {
  server = await TestServer.start();
  const offers = { order: { input_schema: { json: ORDER_SCHEMA } } };
  worker = new TestWorker(server.url, { workflows, tasks, offers }).start();
  for (let known = false; !known; ) known = (await server.api("GET", "/v1/kinds")).kinds.some(({ kind }) => kind === "order");
});

after(async () => {
  await closeBrowser();
  await worker?.stop();
  await server?.close();
});

test("without schedules the list shows the command that creates one", async () => {
  const page = await openPage(server.url, { hash: "#/schedules" });
  await page.getByText("There is no schedule").waitFor();
  await page.getByText(/onward schedule create nightly --kind/).waitFor();
  assertClean(page);
  await closePage(page);
});

test("the list shows what each schedule does, its state, its next slot and its last run", async () => {
  await put("nightly", { kind: "quick", input: { size: 3 }, spec: { cron: ["0 2 * * *"], time_zone: "Europe/Berlin" } });
  await put("halted", { kind: "quick", spec: { every: [{ every_ms: 900_000, offset_ms: 60_000 }] } });
  await post("halted", "pause", { note: "until the migration is done" });
  await put("failing", { kind: "broken", spec: { cron: ["0 0 1 1 *"] } });
  const page = await openPage(server.url, { hash: "#/schedules" });
  await row(page, "nightly").getByText("0 2 * * *").waitFor();
  await row(page, "nightly").getByText("Europe/Berlin").waitFor();
  await row(page, "nightly").getByText("none", { exact: true }).waitFor();
  assert.match(await row(page, "nightly").locator("time").first().getAttribute("title"), /02:00:00 Europe\/Berlin/);
  await row(page, "halted").getByText("every 15m + 1m").waitFor();
  await row(page, "halted").getByText("until the migration is done").waitFor();
  // The runs appear by the feed, without a reload of the page and long before the slow poll.
  const asked = Date.now();
  await post("nightly", "trigger", { request_id: "first" });
  await post("failing", "trigger", { request_id: "first" });
  await row(page, "nightly").getByText("completed").waitFor();
  await row(page, "failing").getByText("failed").first().waitFor();
  assert.ok(Date.now() - asked < 25_000, "the feed shows the runs, not the poll");
  await screenshot(page, "schedules");
  await assertAccessible(page, "schedules");
  await page.setViewportSize(PHONE);
  assert.ok(await fits(page), "the list is not too wide for a phone");
  await screenshot(page, "schedules-phone", { dark: false });
  assertClean(page);
  await closePage(page);
});

test("nothing is loaded again while nothing changes", async () => {
  const page = await openPage(server.url, { hash: "#/schedules" });
  await row(page, "nightly").getByText("completed").waitFor();
  // The connection of the feed asks for one more load.
  await page.waitForTimeout(2500);
  let requests = 0;
  page.on("request", (request) => (requests += /\/v1\/schedules/.test(request.url()) ? 1 : 0));
  // A run that no schedule started changes nothing here.
  await server.start("quick", "other-run");
  await server.until("other-run", "completed");
  await page.waitForTimeout(12_000);
  assert.ok(requests <= 1, `${requests} requests, of which the slow poll may have sent one`);
  const before = requests;
  await post("nightly", "trigger", { request_id: "again" });
  await page.waitForFunction(() => [...document.querySelectorAll("tbody tr")].some((one) => one.innerText.includes("nightly") && one.innerText.includes("2 / 0 / 0")));
  assert.ok(requests > before);
  await closePage(page);
});

test("a schedule is created from the schema of its kind, with a preview and errors at their fields", async () => {
  const page = await openPage(server.url, { hash: "#/schedules" });
  await page.getByRole("button", { name: "Create a schedule" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Id *").fill("orders");
  await dialog.getByLabel("Kind").fill("order");
  await dialog.getByLabel("item").fill("a teapot");
  await dialog.getByLabel("quantity").fill("2");
  const cron = dialog.getByLabel("Cron");
  await cron.fill("0 61 * * *");
  await dialog.locator(".field", { has: page.getByLabel("Cron") }).locator(".field-error", { hasText: /spec\.cron\[0\]/ }).waitFor();
  await cron.fill("0 9 * * MON-FRI");
  await dialog.getByText(/The next 10 slots/).waitFor();
  assert.equal(await dialog.locator(".slot-day").count(), 10);
  await dialog.getByLabel("Time zone").fill("Mars/Olympus");
  await dialog.locator(".field", { has: page.getByLabel("Time zone") }).locator(".field-error", { hasText: /Mars/ }).waitFor();
  await dialog.getByLabel("Time zone").fill("Europe/Berlin");
  await dialog.getByText(/the zone of the schedule is Europe\/Berlin/).waitFor();
  assert.match(await dialog.locator(".slot-times time").first().getAttribute("title"), /09:00:00 Europe\/Berlin/);
  await dialog.getByLabel("Every").fill("soon");
  await dialog.locator(".field-error", { hasText: "soon: not a duration" }).waitFor();
  assert.ok(await dialog.getByRole("button", { name: "Create" }).isDisabled());
  await dialog.getByLabel("Every").fill("");
  await dialog.getByLabel("Overlap").selectOption("buffer_one");
  await dialog.getByLabel("Pause the schedule when a run fails").check();
  await dialog.getByText("Catch-up, buffer").click();
  await dialog.getByLabel("Catch-up").fill("10ms");
  await screenshot(page, "schedule-create");
  await assertAccessible(page, "the form of a schedule");
  await dialog.getByRole("button", { name: "Create" }).click();
  await dialog.locator(".field", { has: page.getByLabel("Catch-up") }).locator(".field-error", { hasText: "options.catch_up_ms" }).waitFor();
  await dialog.getByLabel("Catch-up").fill("2h");
  await dialog.getByLabel("quantity").fill("3");
  await dialog.getByText("The same from a shell").click();
  assert.match(await dialog.getByLabel("command line", { exact: true }).innerText(), /^onward schedule create orders --kind order --input .* --cron '0 9 \* \* MON-FRI' --zone Europe\/Berlin --overlap buffer_one --catch-up 2h --pause-on-failure$/);
  assert.match(await dialog.getByLabel("curl", { exact: true }).innerText(), /^curl -X PUT /);
  await dialog.getByRole("button", { name: "Create" }).click();
  await page.getByRole("heading", { name: "orders", level: 1 }).waitFor();
  const stored = await read("orders");
  assert.deepEqual(stored.input, { json: { item: "a teapot", quantity: 3 } });
  assert.deepEqual(stored.spec, { cron: ["0 9 * * MON-FRI"], time_zone: "Europe/Berlin" });
  assert.deepEqual(stored.options, { overlap: "buffer_one", catch_up_ms: 7_200_000, pause_on_failure: true, buffer_max: null });
  assertClean(page);
  await closePage(page);
});

test("an input that the schema refuses, and a kind that no worker declared, are errors of the form", async () => {
  const page = await openPage(server.url, { hash: "#/schedules?create=1" });
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Id *").fill("refused");
  await dialog.getByLabel("Kind").fill("order");
  await dialog.getByLabel("Cron").fill("@daily");
  await dialog.getByRole("button", { name: "as JSON" }).click();
  await dialog.getByLabel("Input", { exact: true }).fill('{"item": "x", "quantity": 1000}');
  await dialog.getByRole("button", { name: "Create" }).click();
  await dialog.locator(".schema-form .field-error").waitFor();
  await dialog.getByLabel("Kind").fill("unheard-of");
  await dialog.getByLabel("Store it although").waitFor();
  await dialog.getByRole("button", { name: "Create" }).click();
  await dialog.locator(".field", { has: page.getByLabel("Kind") }).locator(".field-error").waitFor();
  await dialog.getByLabel("Store it although").check();
  await dialog.getByRole("button", { name: "Create" }).click();
  await page.getByRole("heading", { name: "refused", level: 1 }).waitFor();
  assert.equal((await read("refused")).kind, "unheard-of");
  assertClean(page);
  await closePage(page);
});

test("an edit keeps what the form does not show, and replaces the rest", async () => {
  await put("edited", { kind: "quick", input: { a: 1 }, attributes: { team: "data" }, budget: { cost: "2.50" }, spec: { cron: ["@daily"], except: [{ dates: ["2026-12-24"] }], jitter_ms: 1000 } });
  const page = await open("edited");
  await page.getByRole("button", { name: "Edit" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Cron").fill("@hourly");
  await dialog.getByRole("button", { name: "Replace the definition" }).click();
  await section(page, "Definition").getByText("@hourly").first().waitFor();
  const stored = await read("edited");
  assert.deepEqual(stored.spec, { cron: ["@hourly"], except: [{ dates: ["2026-12-24"] }], jitter_ms: 1000 });
  assert.deepEqual([stored.attributes, stored.budget.cost, stored.input], [{ team: "data" }, "2.5", { json: { a: 1 } }]);
  assertClean(page);
  await closePage(page);
});

test("the id of another schedule is not taken without a confirmation", async () => {
  await put("taken", { kind: "quick", spec: { cron: ["@daily"] } });
  const page = await openPage(server.url, { hash: "#/schedules?create=1" });
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Id *").fill("taken");
  await dialog.getByLabel("Kind").fill("quick");
  await dialog.getByLabel("Cron").fill("@hourly");
  await dialog.getByRole("button", { name: "Create" }).click();
  await dialog.getByText("The schedule taken exists.").waitFor();
  assert.deepEqual((await read("taken")).spec, { cron: ["@daily"] });
  await dialog.getByLabel("Replace the definition of taken").check();
  await dialog.getByRole("button", { name: "Create" }).click();
  await page.getByRole("heading", { name: "taken", level: 1 }).waitFor();
  assert.deepEqual((await read("taken")).spec, { cron: ["@hourly"] });
  assertClean(page);
  await closePage(page);
});

test("a schedule is paused with a note, triggered, resumed and deleted; each asks and shows its command", async () => {
  await put("acted", { kind: "quick", spec: { cron: ["0 3 * * *"] } });
  const page = await open("acted");
  const dialog = page.getByRole("dialog");
  const line = async () => {
    await dialog.getByText("The same from a shell").click();
    return dialog.getByLabel("command line", { exact: true }).innerText();
  };
  await page.getByRole("button", { name: "Pause" }).click();
  await dialog.getByLabel("Note").fill("a migration");
  assert.equal(await line(), "onward schedule pause acted '--note=a migration'");
  await assertAccessible(page, "the dialog of a pause");
  await dialog.getByRole("button", { name: "Pause" }).click();
  await page.getByText(/: a migration\. Slots are skipped/).waitFor();
  assert.equal((await read("acted")).paused.note, "a migration");
  await page.getByRole("button", { name: "Trigger" }).click();
  await dialog.getByLabel("Overlap").selectOption("allow_all");
  assert.equal(await line(), "onward schedule trigger acted --overlap allow_all");
  await dialog.getByRole("button", { name: "Start a run" }).click();
  await section(page, "History").getByRole("link", { name: /^acted@now:/ }).waitFor();
  await section(page, "History").getByText("completed").waitFor();
  await page.getByRole("button", { name: "Resume" }).click();
  assert.equal(await line(), "onward schedule resume acted");
  await dialog.getByRole("button", { name: "Resume" }).click();
  await page.getByRole("button", { name: "Pause" }).waitFor();
  assert.equal((await read("acted")).paused ?? null, null);
  await page.getByRole("button", { name: "Delete" }).click();
  assert.ok(await dialog.getByRole("button", { name: "Delete the schedule" }).isDisabled());
  await dialog.getByLabel("Id of the schedule").fill("acted");
  assert.equal(await line(), "onward schedule delete acted");
  await dialog.getByRole("button", { name: "Delete the schedule" }).click();
  await page.getByRole("heading", { name: "Schedules", level: 1 }).waitFor();
  await assert.rejects(read("acted"), /schedule_not_found/);
  await page.goto(`${server.url}/#/schedules/acted`);
  await page.getByText("There is no such schedule").waitFor();
  assertClean(page);
  await closePage(page);
});

test("a backfill takes a range, and is shown while it is under way with the slots that are left", async () => {
  await put("filled", { kind: "slow", input: { ms: 1500 }, spec: { cron: ["0 * * * *"] } });
  const page = await open("filled");
  await page.getByRole("button", { name: "Backfill" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("From").fill("2026-01-01T02:00");
  await dialog.getByLabel("Until").fill("2026-01-01T01:00");
  await dialog.getByText("The range ends before it begins.").waitFor();
  assert.ok(await dialog.getByRole("button", { name: "Start the runs" }).isDisabled());
  await dialog.getByLabel("Until").fill("2026-01-01T06:00");
  await dialog.getByText("The same from a shell").click();
  assert.equal(await dialog.getByLabel("command line", { exact: true }).innerText(), "onward schedule backfill filled --from 2026-01-01T02:00:00.000Z --until 2026-01-01T06:00:00.000Z");
  await dialog.getByRole("button", { name: "Start the runs" }).click();
  await section(page, "Running and waiting").getByRole("link", { name: /^filled@2026-01-01T0\d:00:00Z$/ }).waitFor();
  await until("filled", ({ totals }) => totals.completed === 4, "complete");
  await page.waitForFunction(() => document.querySelectorAll('[aria-label="History"] tbody tr').length === 4);
  const history = await section(page, "History").locator("tbody").innerText();
  for (const hour of [2, 3, 4, 5]) assert.match(history, new RegExp(`filled@2026-01-01T0${hour}:00:00Z`));
  assert.doesNotMatch(history, /T06:00/);
  assert.match(history, /backfill/);
  assertClean(page);
  await closePage(page);
});

test("the page shows the next slots by day, the runs, and skipped slots with their reason", async () => {
  await put("busy", { kind: "waiter", spec: { every: [{ every_ms: 1000 }], end_at: new Date(Date.now() + 3_600_000).toISOString() } });
  await until("busy", ({ totals }) => totals.skipped > 1, "skipping");
  await put("busy", { kind: "waiter", spec: { cron: ["0 9,17 * * MON-FRI"], time_zone: "America/New_York" } });
  const page = await open("busy");
  await section(page, "Running and waiting").getByRole("link", { name: /^busy@/ }).waitFor();
  await section(page, "History").getByText(/slots? without a run: a run was running/).first().waitFor();
  await page.getByText("The next 50 slots, in your zone UTC; the zone of the schedule is America/New_York.").waitFor();
  const { slots } = await server.api("GET", "/v1/schedules/busy/slots?limit=50");
  assert.equal(await page.locator(".slot-day").count(), new Set(slots.map(({ slot }) => slot.slice(0, 10))).size);
  await screenshot(page, "schedule");
  await assertAccessible(page, "a schedule");
  await page.setViewportSize(PHONE);
  assert.ok(await fits(page), "the page is not too wide for a phone");
  await screenshot(page, "schedule-phone", { dark: false });
  assertClean(page);
  await closePage(page);
});

test("hostile ids, notes and inputs are text, and a hostile time zone is refused as text", async () => {
  const hostile = HOSTILE.filter((text) => !/[/@]/.test(text)).slice(0, 6);
  assert.ok(hostile.length >= 4);
  for (const text of hostile) {
    await put(text, { kind: text, input: { [text]: text }, attributes: { note: text.slice(0, 200) }, spec: { cron: ["@daily"] }, force: true });
    await post(text, "pause", { note: text });
  }
  const page = await openPage(server.url, { hash: "#/schedules" });
  for (const text of hostile) await page.getByRole("link", { name: text, exact: true }).first().waitFor({ state: "attached" });
  for (const text of hostile) {
    await page.goto(`${server.url}/#/schedules/${encodeURIComponent(text)}`);
    await page.getByText(/Slots are skipped until it is resumed/).waitFor();
    await page.getByRole("button", { name: "Edit" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Time zone").fill(text);
    await dialog.locator(".field", { has: page.getByLabel("Time zone") }).locator(".field-error").waitFor();
    await dialog.getByRole("button", { name: "Back" }).click();
  }
  assert.equal(await page.evaluate(() => window.hit), undefined);
  assertClean(page);
  await closePage(page);
});

test("a key without the scope operate sees schedules and changes nothing", async () => {
  const closed = await TestServer.start({ keys: [{ name: "boss", scope: "all" }, { name: "viewer", scope: "read" }] });
  try {
    await closed.api("PUT", "/v1/schedules/seen", { kind: "quick", spec: { cron: ["@daily"] }, force: true }, closed.keys.boss.secret);
    await assert.rejects(closed.api("POST", "/v1/schedules/seen/pause", {}, closed.keys.viewer.secret), /403/);
    const page = await openPage(closed.url, { hash: "#/login" });
    await page.getByLabel("API key").fill(closed.keys.viewer.secret);
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Runs", level: 1 }).waitFor();
    await page.goto(`${closed.url}/#/schedules?create=1`);
    await page.getByRole("link", { name: "seen", exact: true }).waitFor();
    assert.equal(await page.getByRole("button", { name: "Create a schedule" }).count(), 0);
    assert.equal(await page.getByRole("dialog").count(), 0);
    await page.getByRole("link", { name: "seen", exact: true }).click();
    await page.getByRole("heading", { name: "seen", level: 1 }).waitFor();
    await section(page, "Next slots").waitFor();
    for (const name of ["Pause", "Trigger", "Backfill", "Edit", "Delete"]) assert.equal(await page.getByRole("button", { name, exact: true }).count(), 0, name);
    await closePage(page);
  } finally {
    await closed.close();
  }
});

test("the pages are reached and used by keys", async () => {
  const page = await openPage(server.url);
  await page.getByRole("heading", { name: "Runs", level: 1 }).waitFor();
  await page.keyboard.press("g");
  await page.keyboard.press("c");
  await page.getByRole("heading", { name: "Schedules", level: 1 }).waitFor();
  await page.keyboard.press("n");
  await page.getByRole("dialog").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await page.getByRole("link", { name: "nightly", exact: true }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "nightly", level: 1 }).waitFor();
  assertClean(page);
  await closePage(page);
});
