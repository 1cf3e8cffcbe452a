// The pages of flows and the graph of a run, in a browser against a real server with its worker of flows.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { load } from "./bundle.mjs";
import { PHONE, assertAccessible, assertClean, closeBrowser, closePage, openPage, screenshot } from "./helpers/browser.mjs";
import { HOSTILE, workflows } from "./helpers/fixtures.mjs";
import { TestServer } from "./helpers/server.mjs";
import { TestWorker, setState, signal } from "./helpers/worker.mjs";

const { diffLines } = await load("pages/flows/lineDiff.ts");
const { inTheme } = await load("pages/flows/drawing.ts");

const publish = (question) => `flow: publish
description: Checks a page, and publishes it if a person agrees
inputs:
  page: { type: string, default: home }
steps:
  - name: check
    wait: checked
  - name: links
    each: { in: "[1, 2, 3]", as: link }
    action: uuid
    store: links
  - name: ask
    approval: "${question}"
    within: 2d
    next:
      - { when: result.approved, goto: publish }
      - { goto: end }
  - name: publish
    task: upload
    with: { page: "{{ inputs.page }}" }
    retry: { attempts: 3, backoff: 1s }
    timeout: 30s
`;
const LONG = "l".repeat(100);

let server;
let worker;
const apply = async (name, document) => (await server.api("PUT", `/v1/flows/${name}`, { document })).flow.version;
const applyPublish = () => apply("publish", publish("Is the page ready?"));
const applyLong = () => apply(LONG, `flow: ${LONG}\nsteps:\n  - { name: ${"s".repeat(100)}, approval: "${"W".repeat(2000)}" }\n`);
const send = (id, name) => server.api("POST", `/v1/runs/${id}/signals`, { name });

before(async () => {
  server = await TestServer.start();
  // A program's flow: the server has no definition of it.
  const program = function* () {
    yield setState("flow/plan", { step: "plan", state: "done", times: 2, done: 3, of: 4, next: [HOSTILE[1]] });
    yield setState(`flow/${HOSTILE[1]}`, { step: HOSTILE[1], state: HOSTILE[0], times: HOSTILE[0] });
    yield signal("never");
  };
  // Looks like the progress of a flow, but is not.
  const other = function* () {
    yield setState("flow/number", 7);
    yield setState("flow/text", { step: 1, state: null });
    yield signal("never");
  };
  worker = new TestWorker(server.url, { workflows: { ...workflows, program, other }, tasks: {} }).start();
});

after(async () => {
  await closeBrowser();
  await worker?.stop();
  await server?.close();
});

const picture = (page) => page.locator(".flow-picture");
/** Waits until the picture, in words, has a text; they change with the picture. */
const shows = (page, words) => page.waitForFunction((text) => document.querySelector(".flow-picture")?.alt.includes(text), words);
const fits = async (page, what) => {
  await page.setViewportSize(PHONE);
  await page.waitForFunction(() => [document.documentElement, document.querySelector("main")].every((box) => box.scrollWidth <= window.innerWidth), null, { timeout: 5000 }).catch(() => assert.fail(`${what} is too wide for a phone`));
};

/** Returns the colour of the ground of the picture as the browser draws it. */
function ground(page) {
  return page.evaluate(async () => {
    const image = document.querySelector(".flow-picture");
    await image.decode();
    const canvas = new OffscreenCanvas(20, 20);
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0);
    return [...context.getImageData(15, 15, 1, 1).data.slice(0, 3)];
  });
}

test("a server without flows says how to store one; stored ones are listed", async () => {
  const page = await openPage(server.url, { hash: "#/flows" });
  await page.getByText("No flow is stored").waitFor();
  await assertAccessible(page, "no flows");
  await apply("publish", publish("Publish?"));
  await applyLong();
  // The list is polled.
  await page.getByRole("link", { name: "publish" }).waitFor();
  await assertAccessible(page, "flows");
  await fits(page, "the list of flows");
  await page.getByRole("link", { name: "Start" }).last().click();
  await page.getByRole("dialog").getByLabel("page").waitFor();
  assert.equal(await page.getByRole("dialog").getByLabel("page").inputValue(), "home");
  assertClean(page);
  await closePage(page);
});

test("a flow shows its graph, its versions with what changed, and its document", async () => {
  const first = await apply("publish", publish("Publish?"));
  const second = await applyPublish();
  const page = await openPage(server.url, { hash: "#/flows/publish" });
  await shows(page, "check to links");
  assert.ok(await picture(page).evaluate((image) => image.decode().then(() => image.naturalWidth > 100)));
  const changes = page.getByRole("region", { name: "Changes" });
  assert.deepEqual(await changes.locator(".diff-removed, .diff-added").allInnerTexts(), ['-     approval: "Publish?"', '+     approval: "Is the page ready?"']);
  assert.match(await changes.innerText(), new RegExp(`Changes since ${first}`));
  assert.match(await page.getByRole("region", { name: "Document" }).innerText(), /flow: publish\n/);
  const middle = await picture(page).evaluate((image) => image.clientWidth / 2);
  await picture(page).hover({ position: { x: middle, y: 45 } });
  await page.waitForFunction(() => document.querySelector(".flow-picture").title.startsWith("publish (start)"));
  await screenshot(page, "flow", { dark: false });
  await assertAccessible(page, "a flow");
  await page.getByRole("region", { name: "Versions" }).getByRole("link", { name: first }).click();
  await page.getByRole("region", { name: "Document" }).getByText('approval: "Publish?"').waitFor();
  assert.match(page.url(), new RegExp(`version=${first}$`));
  assert.equal(await page.locator("[aria-current=true]", { hasText: first }).count(), 1);
  await page.goto(`${server.url}/#/flows/publish?version=${second}x`);
  await page.getByText("This version is not stored").waitFor();
  await fits(page, "a flow");
  assertClean(page);
  await closePage(page);
});

test("the picture has the theme of the console, whatever the system has", async () => {
  await applyPublish();
  const page = await openPage(server.url, { hash: "#/flows/publish" });
  await shows(page, "check to links");
  const isDark = async () => (await ground(page))[0] < 128;
  assert.equal(await isDark(), false);
  await page.getByRole("button", { name: "Theme: auto" }).click();
  await page.emulateMedia({ colorScheme: "dark" });
  await page.getByRole("button", { name: "Theme: light" }).waitFor();
  assert.equal(await isDark(), false);
  await page.getByRole("button", { name: "Theme: light" }).click();
  await page.emulateMedia({ colorScheme: "light" });
  await page.getByRole("button", { name: "Theme: dark" }).waitFor();
  await page.waitForFunction(() => document.querySelector(".flow-picture").complete);
  assert.equal(await isDark(), true);
  await page.getByRole("button", { name: "Theme: dark" }).click();
  assertClean(page);
  await closePage(page);
});

test("the picture is zoomed by buttons and keys, and moved with the mouse", async () => {
  await applyPublish();
  const page = await openPage(server.url, { hash: "#/flows/publish" });
  await page.setViewportSize({ width: 800, height: 700 });
  await shows(page, "check to links");
  const width = () => picture(page).evaluate((image) => image.clientWidth);
  const actual = await picture(page).evaluate((image) => image.decode().then(() => image.naturalWidth));
  assert.equal(await width(), actual);
  await page.getByRole("button", { name: "Zoom in" }).click();
  assert.ok((await width()) > actual * 1.2);
  for (let n = 0; n < 4; n++) await page.keyboard.press("+");
  const scroller = page.getByRole("region", { name: "Graph of publish" });
  const left = () => scroller.evaluate((element) => element.scrollLeft);
  const before = await left();
  assert.ok(before > 0, "the middle stays in the middle");
  await scroller.hover();
  await page.mouse.down();
  const area = await scroller.boundingBox();
  await page.mouse.move(area.x + area.width / 2 + 50, area.y + area.height / 2);
  await page.mouse.up();
  assert.equal(Math.round(before - (await left())), 50);
  await page.keyboard.press("0");
  assert.ok(await scroller.evaluate((element) => element.scrollHeight <= element.clientHeight && element.scrollWidth <= element.clientWidth));
  await page.getByRole("button", { name: "100 %" }).click();
  assert.equal(await width(), actual);
  assertClean(page);
  await closePage(page);
});

test("the graph of a run follows its steps, one drawing after the other", async () => {
  await applyPublish();
  await server.start("publish", "live-1", {});
  await server.until("live-1", "waiting");
  const page = await openPage(server.url, { hash: "#/runs/live-1" });
  let open = 0;
  let most = 0;
  const release = [];
  await page.route("**/v1/runs/live-1/graph", async (route) => {
    most = Math.max(most, ++open);
    if (release.length > 0) await new Promise((resolve) => release.push(resolve));
    const response = await route.fetch();
    open--;
    await route.fulfill({ response });
  });
  await page.getByRole("tab", { name: "Graph" }).click();
  await shows(page, "check (wait), checked, now: running");
  await send("live-1", "checked");
  await shows(page, "links (action), uuid, each, now: done, 3 of 3");
  await shows(page, "now: running");
  await screenshot(page, "run-graph");
  await assertAccessible(page, "the graph of a run");
  // Changes while a drawing is on its way do not cancel it.
  release.push(() => undefined);
  const { approvals } = await server.api("GET", "/v1/approvals");
  const { id } = approvals.find(({ run }) => run === "live-1");
  const [asked] = await Promise.all([page.waitForRequest(/live-1\/graph/), server.api("POST", `/v1/approvals/${encodeURIComponent(id)}`, { approved: true, decision_id: "live" })]);
  await page.getByText(/upload/).first().waitFor();
  for (const go of release.splice(0)) go();
  await shows(page, "publish (task), upload, 3 attempts, timeout 30s, now: running");
  assert.equal(asked.failure(), null);
  assert.equal(most, 1);
  await page.unroute("**/v1/runs/live-1/graph");
  await fits(page, "the graph of a run");
  await page.reload();
  await shows(page, "now: running");
  const tab = await page.getByRole("tab", { name: "Graph" }).boundingBox();
  assert.ok(tab.x >= 0 && tab.x + tab.width <= PHONE.width, "the tab in use is in view");
  assertClean(page);
  await closePage(page);
});

test("runs of other kinds have no graph, and a program's flow has a list of its steps", async () => {
  await server.start("other", "other-1");
  await server.start("program", "program-1");
  for (const id of ["other-1", "program-1"]) await server.until(id, "waiting");
  const page = await openPage(server.url, { hash: "#/runs/other-1" });
  await page.getByRole("tab", { name: "State" }).waitFor();
  assert.equal(await page.getByRole("tab", { name: "Graph" }).count(), 0);
  await page.goto(`${server.url}/#/runs/program-1/graph`);
  await page.getByText("No picture").waitFor();
  assert.match(await page.getByRole("region", { name: "Steps" }).innerText(), /plan\s+done\s+2\s+3 of 4/);
  await page.getByText(HOSTILE[1]).waitFor();
  await assertAccessible(page, "the steps of a run");
  assertClean(page);
  await closePage(page);
});

test("an unknown flow has a page that says so", async () => {
  const page = await openPage(server.url, { hash: `#/flows/${encodeURIComponent(HOSTILE[0])}` });
  await page.getByText("There is no such flow").waitFor();
  assert.equal(await page.getByRole("link", { name: "Start a run" }).count(), 0);
  assertClean(page);
  await closePage(page);
});

test("texts of a document are texts, however they look", async () => {
  const text = HOSTILE.join(" ") + "</style></svg>]]>";
  await applyLong();
  // Others are no templates.
  const texts = HOSTILE.filter((text) => !text.includes("{{"));
  const flow = { flow: "texts", description: text, inputs: { x: { type: "string", description: text, default: text } }, steps: texts.map((text, at) => ({ name: `step${at}`, approval: text, show: text, next: [{ when: `inputs.x == ${JSON.stringify(text)}`, goto: "end" }, { goto: at + 1 < texts.length ? `step${at + 1}` : "end" }] })) };
  await apply("texts", JSON.stringify(flow, null, 1));
  flow.description = HOSTILE[0];
  await apply("texts", JSON.stringify(flow, null, 1));
  await server.start("texts", "texts-1", {});
  await server.until("texts-1", "waiting");
  const page = await openPage(server.url, { hash: "#/flows/texts" });
  await shows(page, "step1");
  assert.ok(await picture(page).evaluate((image) => image.decode().then(() => true)));
  await picture(page).hover();
  await page.getByRole("region", { name: "Changes" }).waitFor();
  await page.goto(`${server.url}/#/runs/texts-1/graph`);
  await shows(page, "now: running");
  for (const hash of ["flows", `flows/${LONG}`]) {
    await page.goto(`${server.url}/#/${hash}`);
    await page.getByText(LONG).first().waitFor();
    await fits(page, hash);
  }
  assert.equal(await page.evaluate(() => window.hit), undefined);
  assertClean(page);
  await closePage(page);
});

test("a theme is set in the style of a picture, not in its names", () => {
  const rule = "@media (prefers-color-scheme:dark){text{fill:red}}";
  const svg = `<svg><title>${rule}</title><style>${rule}</style><text>${rule}</text></svg>`;
  assert.equal(inTheme(svg, "auto"), svg);
  assert.equal(inTheme(svg, "dark"), svg.replace(`<style>${rule}`, "<style>@media all{text{fill:red}}"));
  assert.equal(inTheme(svg, "light"), svg.replace(`<style>${rule}`, "<style>@media not all{text{fill:red}}"));
});

test("a difference of lines has both documents, and no more changes than needed", () => {
  const side = (lines, without) => lines.filter(({ change }) => change !== without).map(({ text }) => text).join("\n");
  const check = (left, right) => {
    const lines = diffLines(left, right);
    assert.equal(side(lines, "added"), left);
    assert.equal(side(lines, "removed"), right);
    return lines.filter(({ change }) => change === "same").length;
  };
  assert.equal(check("a\nb\nc\nd", "a\nx\nc\nd\ne"), 3);
  assert.equal(check("", ""), 1);
  assert.equal(check("a\nb\n", "b\na\n"), 2);
  const many = (word) => Array.from({ length: 3000 }, (_, at) => `${word} ${at}`).join("\n");
  assert.equal(check(`x\n${many("a")}\ny`, `x\n${many("b")}\ny`), 2);
  const seed = Date.now() >>> 0;
  let state = seed;
  const next = (below) => ((state = (Math.imul(state, 1664525) + 1013904223) >>> 0) >>> 16) % below;
  const some = () => Array.from({ length: next(12) }, () => "abc"[next(3)]).join("\n");
  for (let round = 0; round < 300; round++) {
    const [left, right] = [some(), some()];
    try {
      check(left, right);
    } catch (error) {
      throw new Error(`seed ${seed}: ${JSON.stringify([left, right])}: ${error.message}`);
    }
  }
});
