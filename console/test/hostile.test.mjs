// Hostile texts in every field that a caller or a worker fills: no script runs, nothing is loaded from elsewhere.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { assertClean, closeBrowser, closePage, openPage } from "./helpers/browser.mjs";
import { HOSTILE, tasks, workflows } from "./helpers/fixtures.mjs";
import { TestServer } from "./helpers/server.mjs";
import { TestWorker } from "./helpers/worker.mjs";

let server;
let worker;
const ids = [];

before(async () => {
  server = await TestServer.start();
  const named = Object.fromEntries(HOSTILE.map((text) => [text, workflows.hostile]));
  const offers = Object.fromEntries(HOSTILE.map((text) => [text, { input_schema: { json: { type: "object", title: text, description: text, properties: { text: { type: "string", title: text, description: text } } } } }]));
  worker = new TestWorker(server.url, { workflows: { ...workflows, ...named }, tasks: { ...tasks, ...Object.fromEntries(HOSTILE.map((text) => [text, tasks.resize])) }, offers, name: "worker-<img src=x onerror=window.hit=20>" }).start();
  for (const [n, text] of HOSTILE.entries()) {
    const id = `${n} ${text}`.slice(0, 250);
    ids.push(id);
    const attributes = { [text]: text.slice(0, 200) };
    await server.start(text, id, { text, [text]: text }, { attributes });
    await server.api("POST", "/v1/tasks", { kind: text, id: `task ${id}`.slice(0, 250), queue: text, input: text });
  }
  for (const id of ids) await server.until(id, "waiting", "failed", "paused");
  await server.api("POST", `/v1/runs/${encodeURIComponent(ids[0])}/cancel`, { reason: HOSTILE[0] });
});

after(async () => {
  await closeBrowser();
  await worker?.stop();
  await server?.close();
});

async function visit(page, hash) {
  await page.goto(`${server.url}/${hash}`);
  await page.waitForTimeout(400);
}

test("no list or page of the frame runs or loads what is in a payload", async () => {
  const page = await openPage(server.url);
  await page.locator(".run-row:not(.run-head)").nth(5).waitFor();
  for (const hash of ["#/approvals", "#/workers", "#/queues", "#/kinds", "#/servers", "#/spend", `#/runs?q=${encodeURIComponent(HOSTILE[1])}`, `#/runs?kind=${encodeURIComponent(HOSTILE[0])}&start=${encodeURIComponent(HOSTILE[0])}`, `#/${encodeURIComponent(HOSTILE[0])}`, `#/login?to=${encodeURIComponent("javascript:window.hit=30")}`]) await visit(page, hash);
  await page.goto(`${server.url}/#/approvals`);
  await page.locator(".approval h2", { hasText: "\\u{202e}txt.exe" }).waitFor();
  await visit(page, "#/kinds");
  for (const button of await page.getByRole("button", { name: "Schemas" }).all()) await button.click();
  assert.equal(await page.evaluate(() => window.hit), undefined);
  assertClean(page);
  await closePage(page);
});

test("no view of a run runs or loads what is in its log", async () => {
  const page = await openPage(server.url);
  for (const [n, id] of ids.entries()) {
    // The other views show a part of the same payloads with the same components.
    const tabs = n % 5 === 0 ? ["timeline", "log", "travel", "state", "children", "conversation"] : ["timeline", "log", "state"];
    for (const tab of tabs) {
      await page.goto(`${server.url}/#/runs/${encodeURIComponent(id)}/${tab}`);
      await page.waitForTimeout(120);
    }
  }
  assert.equal(await page.evaluate(() => window.hit), undefined);
  const links = await page.evaluate(() => [...document.querySelectorAll("a")].map((link) => link.getAttribute("href") ?? "").filter((href) => !/^(#|https?:)/.test(href)));
  assert.deepEqual(links, []);
  assertClean(page);
  await closePage(page);
});

test("the policy of the page forbids inline scripts and foreign addresses", async () => {
  const response = await fetch(`${server.url}/`, { headers: { accept: "text/html" } });
  const policy = response.headers.get("content-security-policy");
  for (const part of ["default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "form-action 'none'", "base-uri 'none'", "frame-ancestors 'none'"]) assert.ok(policy?.includes(part), `${part} in ${policy}`);
  assert.ok(!/unsafe|\*|https?:/.test(policy), policy);
});
