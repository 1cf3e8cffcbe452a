// Keys, scopes and forged requests, in a browser against a real server with keys.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { assertAccessible, assertClean, closeBrowser, closePage, openPage, screenshot } from "./helpers/browser.mjs";
import { tasks, workflows } from "./helpers/fixtures.mjs";
import { TestServer } from "./helpers/server.mjs";
import { TestWorker } from "./helpers/worker.mjs";

let server;
let worker;
const secret = (name) => server.keys[name].secret;

before(async () => {
  const keys = [
    { name: "ada", scope: "all", namespace: "*" },
    { name: "reader", scope: "read" },
    { name: "starter", scope: "read,start" },
    { name: "decider", scope: "read,approve" },
    { name: "operator", scope: "read,operate" },
    { name: "blind", scope: "start" },
    { name: "leaver", scope: "read" },
    { name: "worker", scope: "work" },
  ];
  server = await TestServer.start({ keys });
  worker = new TestWorker(server.url, { workflows, tasks, key: secret("worker") }).start();
  await server.start("refund", "refund-1", { title: "Refund?" }, {}, secret("ada"));
  await server.start("waiter", "waiter-1", null, {}, secret("ada"));
  await server.api("PUT", "/v1/flows/greet", { document: "flow: greet\nsteps: [{ name: ask, approval: Greet? }]" }, secret("ada"));
});

after(async () => {
  await closeBrowser();
  await worker?.stop();
  await server?.close();
});

async function signIn(name, hash = "#/runs") {
  const page = await openPage(server.url, { hash });
  await page.getByLabel("API key").fill(secret(name));
  await page.getByRole("button", { name: "Sign in" }).click();
  return page;
}

test("a wrong key is refused, the right one leads back to the page", async () => {
  const page = await openPage(server.url, { hash: "#/runs?status=waiting" });
  await page.getByLabel("API key").fill("onw_wrong");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("The server does not accept this key.").waitFor();
  await screenshot(page, "login", { dark: false });
  await assertAccessible(page, "login");
  await page.getByLabel("API key").fill(secret("ada"));
  await page.keyboard.press("Enter");
  await page.getByRole("link", { name: "waiter-1" }).waitFor();
  assert.match(page.url(), /#\/runs\?status=waiting$/);
  await page.getByText("ada", { exact: true }).waitFor();
  const cookies = await page.context().cookies();
  const cookie = cookies.find(({ name }) => name === "onward_session");
  assert.equal(cookie.httpOnly, true);
  assert.equal(cookie.sameSite, "Strict");
  assert.equal(await page.evaluate(() => document.cookie), "");
  assert.ok(!(await page.evaluate(() => JSON.stringify(localStorage))).includes("onw_"));
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("API key").waitFor();
  assertClean(page);
  await closePage(page);
});

test("each scope has the actions it permits", async () => {
  for (const [name, mayStart, mayDecide, mayOperate] of [["reader", false, false, false], ["starter", true, false, false], ["decider", false, true, false], ["operator", false, false, true]]) {
    const page = await signIn(name);
    await page.getByRole("link", { name: "waiter-1" }).waitFor();
    assert.equal(await page.getByRole("button", { name: "Start a run" }).count(), mayStart ? 1 : 0, `${name} starts`);
    assert.equal(await page.getByRole("button", { name: "Cancel all that match" }).count(), mayOperate ? 1 : 0, `${name} operates`);
    await page.goto(`${server.url}/#/approvals`);
    const approve = page.getByRole("button", { name: "Approve" });
    await approve.waitFor();
    assert.equal(await approve.isEnabled(), mayDecide, `${name} decides`);
    await page.goto(`${server.url}/#/flows/greet`);
    await page.getByRole("heading", { name: "Graph" }).waitFor();
    assert.equal(await page.getByRole("link", { name: "Start a run" }).count(), mayStart ? 1 : 0, `${name} starts a flow`);
    await closePage(page);
  }
});

test("a key without the scope read gets a page that says so", async () => {
  const page = await signIn("blind");
  await page.getByText("This key may not do that").waitFor();
  await page.goto(`${server.url}/#/flows`);
  await page.getByRole("heading", { name: "Flows", level: 1 }).waitFor();
  await page.getByText("This key may not do that").waitFor();
  await closePage(page);
});

test("a revoked key ends the session in the middle, and another key continues there", async () => {
  const page = await signIn("leaver", "#/approvals");
  await page.getByRole("article", { name: "Refund?" }).waitFor();
  await server.revokeKey(server.keys.leaver.id);
  await page.getByLabel("API key").waitFor({ timeout: 30_000 });
  await page.getByLabel("API key").fill(secret("ada"));
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("article", { name: "Refund?" }).waitFor();
  assert.match(page.url(), /#\/approvals$/);
  await closePage(page);
});

test("a request with the cookie and without the header of the console is refused", async () => {
  const page = await signIn("ada");
  await page.getByRole("link", { name: "waiter-1" }).waitFor();
  const answers = await page.evaluate(async () => {
    const forged = await fetch("/v1/runs/waiter-1/cancel", { method: "POST" });
    const simple = await fetch("/v1/runs/waiter-1/cancel", { method: "POST", body: "{}", headers: { "content-type": "text/plain" } });
    return [forged.status, (await forged.json()).code, simple.status];
  });
  assert.deepEqual(answers, [403, "csrf", 403]);
  const view = await server.api("GET", "/v1/runs/waiter-1", undefined, secret("ada"));
  assert.equal(view.status, "waiting");
  await closePage(page);
});
