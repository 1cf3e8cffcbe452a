// Owns the browser of tests: every page fails the test for a script error, a foreign request or a message box.
import { chromium } from "playwright-core";
import assert from "node:assert/strict";
import { mkdir, readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";

const SCREENSHOTS = process.env.SCREENSHOTS;
const require = createRequire(import.meta.url);
let browser;
let axe;

export async function launch() {
  browser ??= await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
  return browser;
}

export async function closeBrowser() {
  await browser?.close();
  browser = undefined;
  idle.clear();
}

export const WIDE = { width: 1280, height: 800 };
export const PHONE = { width: 360, height: 740 };

// Pages that were closed, by their options: a new page costs a process of its own.
const idle = new Map();

/**
 * Opens a page of the console, with an empty storage. `page.problems` collects what must not happen.
 * A page that was closed is used again.
 */
export async function openPage(url, { viewport = WIDE, hash = "#/runs", ...more } = {}) {
  const key = JSON.stringify([viewport, more]);
  const page = idle.get(key)?.pop() ?? (await newPage(key, { viewport, ...more }));
  page.origin = url;
  page.problems.length = 0;
  if (page.url() === "about:blank") await page.goto(`${url}/${hash}`);
  else {
    await page.evaluate(() => localStorage.clear());
    await page.goto(`${url}/${hash}`);
  }
  return page;
}

/** Leaves a page for the next test. */
export async function closePage(page) {
  await page.context().clearCookies();
  await page.setViewportSize(page.size);
  if (!idle.has(page.key)) idle.set(page.key, []);
  idle.get(page.key).push(page);
  // The picture has no streams and no timers.
  await page.goto(`${page.origin}/console/icon.svg`).catch(() => undefined);
}

async function newPage(key, options) {
  const context = await (await launch()).newContext({ colorScheme: "light", reducedMotion: "reduce", locale: "en-US", timezoneId: "UTC", ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  Object.assign(page, { key, size: options.viewport, problems: [] });
  page.on("pageerror", (error) => page.problems.push(`script error: ${error.message}`));
  page.on("dialog", (dialog) => {
    page.problems.push(`message box: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(page.origin) && !/^(data|blob):/.test(request.url())) page.problems.push(`foreign request: ${request.url()}`);
  });
  page.on("console", (message) => {
    if (message.type() === "error" && /Content Security Policy|Refused to/.test(message.text())) page.problems.push(`policy: ${message.text()}`);
  });
  return page;
}

export function assertClean(page) {
  assert.deepEqual(page.problems, []);
}

/** Takes the screenshots of a page, light and dark, if a directory is given. */
export async function screenshot(page, name, { dark = true } = {}) {
  if (!SCREENSHOTS) return;
  await mkdir(SCREENSHOTS, { recursive: true });
  // Messages come and go: the pictures are the same without them.
  const toasts = (visibility) => page.evaluate((value) => document.querySelector(".toasts")?.style.setProperty("visibility", value), visibility);
  await toasts("hidden");
  for (const scheme of dark ? ["light", "dark"] : ["light"]) {
    await page.emulateMedia({ colorScheme: scheme });
    await page.screenshot({ path: join(SCREENSHOTS, `${name}-${scheme}.png`), animations: "disabled" });
  }
  await page.emulateMedia({ colorScheme: "light" });
  await toasts("visible");
}

/** Fails if axe-core finds something serious; colours are looked at in both schemes. */
export async function assertAccessible(page, what) {
  axe ??= await readFile(require.resolve("axe-core/axe.min.js"), "utf8");
  // The policy of the page forbids scripts in elements; the inspector's evaluation is not bound by it.
  if (!(await page.evaluate(() => "axe" in globalThis))) await page.evaluate(axe);
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    const only = colorScheme === "light" ? {} : { runOnly: ["color-contrast"] };
    const { violations } = await page.evaluate((more) => globalThis.axe.run(document, { resultTypes: ["violations"], ...more }), only);
    const found = violations
      .filter((violation) => ["serious", "critical"].includes(violation.impact))
      .map((violation) => `${what}, ${colorScheme}: ${violation.id}: ${violation.nodes.slice(0, 3).map((node) => `${node.html.slice(0, 160)} (${node.any[0]?.message ?? node.all[0]?.message ?? node.none[0]?.message ?? ""})`).join(" | ")}`);
    assert.deepEqual(found, []);
  }
  await page.emulateMedia({ colorScheme: "light" });
}
