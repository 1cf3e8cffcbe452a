// Ten thousand runs, and how soon the first page is usable.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { assertClean, closeBrowser, openPage, screenshot } from "./helpers/browser.mjs";
import { TestServer } from "./helpers/server.mjs";

const RUNS = 10_000;
const AT_ONCE = 64;
let server;

before(async () => {
  server = await TestServer.start();
  let next = 0;
  const work = async () => {
    for (let n = next++; n < RUNS; n = next++) await server.start(["order", "refund", "index-documents"][n % 3], `run-${String(n).padStart(5, "0")}`, { n }, { attributes: { customer: String(n % 100) } });
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
});

after(async () => {
  await closeBrowser();
  await server?.close();
});

test("the first page of ten thousand runs is usable within a second", async () => {
  // The first page of a new browser pays for the start of its processes.
  await (await openPage(server.url)).context().close();
  const page = await openPage(server.url, { hash: "#/runs" });
  await page.locator(".run-row:not(.run-head)").first().waitFor();
  const ms = await page.evaluate(() => performance.getEntriesByType("mark").find((mark) => mark.name === "onward-usable")?.startTime ?? performance.now());
  console.log(`the first rows were there after ${Math.round(ms)} ms`);
  assert.ok(ms < 1000, `${ms} ms`);
  await page.context().close();
});

test("ten thousand runs scroll smoothly and keep the document small", async () => {
  const page = await openPage(server.url);
  await page.locator(".run-row:not(.run-head)").first().waitFor();
  const result = await page.evaluate(async () => {
    const list = document.querySelector(".run-list");
    const frames = [];
    let last = performance.now();
    const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
    const until = performance.now() + 30_000;
    let rows = 0;
    while (performance.now() < until) {
      list.scrollTop += 1200;
      await frame();
      const now = performance.now();
      frames.push(now - last);
      last = now;
      rows = Math.max(rows, document.querySelectorAll(".run-row").length);
      if (/^10,000 runs/.test(document.querySelector(".run-bar").textContent) && list.scrollTop + list.clientHeight >= list.scrollHeight - 2) break;
    }
    frames.sort((a, b) => a - b);
    return { rows, frames: frames.length, median: frames[frames.length >> 1], p99: frames[Math.floor(frames.length * 0.99)], most: frames.at(-1), end: document.querySelector(".run-bar").textContent, last: [...document.querySelectorAll(".run-row a")].at(-1)?.textContent };
  });
  console.log(`scrolled through: ${JSON.stringify(result)}`);
  assert.match(result.end, /^10,000 runs/);
  assert.ok(result.rows < 120, `${result.rows} rows in the document`);
  assert.ok(result.median < 50, `a picture every ${result.median} ms`);
  assert.ok(result.p99 < 150, `the slowest pictures take ${result.p99} ms`);
  await screenshot(page, "runs-10000", { dark: false });
  assertClean(page);
  await page.context().close();
});

test("a run far down the list is found by its id", async () => {
  const page = await openPage(server.url);
  await page.getByLabel("Search in ids").fill("run-00003");
  await page.getByRole("link", { name: "run-00003", exact: true }).waitFor();
  await page.context().close();
});
