// Owns the browser of tests: every page fails the test for a script error, a foreign request or a message box.
import { chromium } from "playwright-core";
import assert from "node:assert/strict";
import { mkdir, readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";

const SCREENSHOTS = process.env.SCREENSHOTS;
const require = createRequire(import.meta.url);
let browser;

export async function launch() {
  browser ??= await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
  return browser;
}

export async function closeBrowser() {
  await browser?.close();
  browser = undefined;
}

export const WIDE = { width: 1280, height: 800 };
export const PHONE = { width: 360, height: 740 };

/** Opens a page of the console. `page.problems` collects what must not happen. */
export async function openPage(url, { viewport = WIDE, hash = "#/runs", colorScheme = "light", ...more } = {}) {
  const context = await (await launch()).newContext({ viewport, colorScheme, locale: "en-US", timezoneId: "UTC", ...more });
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  page.problems = [];
  page.on("pageerror", (error) => page.problems.push(`script error: ${error.message}`));
  page.on("dialog", (dialog) => {
    page.problems.push(`message box: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(url) && !/^(data|blob):/.test(request.url())) page.problems.push(`foreign request: ${request.url()}`);
  });
  page.on("console", (message) => {
    if (message.type() === "error" && /Content Security Policy|Refused to/.test(message.text())) page.problems.push(`policy: ${message.text()}`);
  });
  await page.goto(`${url}/${hash}`);
  return page;
}

export function assertClean(page) {
  assert.deepEqual(page.problems, []);
}

/** Takes the screenshots of a page, light and dark, if a directory is given. */
export async function screenshot(page, name, { dark = true } = {}) {
  if (!SCREENSHOTS) return;
  await mkdir(SCREENSHOTS, { recursive: true });
  for (const scheme of dark ? ["light", "dark"] : ["light"]) {
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce" });
    await page.screenshot({ path: join(SCREENSHOTS, `${name}-${scheme}.png`), animations: "disabled" });
  }
  await page.emulateMedia({ colorScheme: "light", reducedMotion: null });
}

/** Fails if axe-core finds something serious, in both colour schemes. */
export async function assertAccessible(page, what) {
  const source = await readFile(require.resolve("axe-core/axe.min.js"), "utf8");
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    // The policy of the page forbids scripts in elements; the inspector's evaluation is not bound by it.
    await page.evaluate(source);
    const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
    const found = violations
      .filter((violation) => ["serious", "critical"].includes(violation.impact))
      .map((violation) => `${what}, ${colorScheme}: ${violation.id}: ${violation.nodes.slice(0, 3).map((node) => `${node.html.slice(0, 160)} (${node.any[0]?.message ?? node.all[0]?.message ?? node.none[0]?.message ?? ""})`).join(" | ")}`);
    assert.deepEqual(found, []);
  }
  await page.emulateMedia({ colorScheme: "light" });
}
