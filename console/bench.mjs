// Measures the console: its size, and how soon its first page is usable. `--json` prints one object per line.
import { readFile, readdir } from "node:fs/promises";
import { gzipSync } from "node:zlib";
import { closeBrowser, launch, WIDE } from "./test/helpers/browser.mjs";
import { TestServer } from "./test/helpers/server.mjs";

const ROUNDS = process.argv.includes("--quick") ? 5 : 21;
const RUNS = 200;

const files = new URL("../crates/onward-server/console/", import.meta.url);
let bytes = 0;
for (const name of await readdir(files)) bytes += gzipSync(await readFile(new URL(name, files)), { level: 9 }).length;
report("console.bundle_kb_gz", bytes / 1024, "KiB");

const server = await TestServer.start();
try {
  for (let number = 0; number < RUNS; number++) await server.start("order", `order-${number}`);
  const browser = await launch();
  const times = [];
  for (let round = 0; round < ROUNDS; round++) {
    const context = await browser.newContext({ viewport: WIDE }); // nothing is cached
    const page = await context.newPage();
    const began = performance.now();
    await page.goto(`${server.url}/`);
    await page.getByRole("link", { name: `order-${RUNS - 1}`, exact: true }).waitFor();
    times.push(performance.now() - began);
    await context.close();
  }
  report("console.first_page_ms", median(times), "ms");
} finally {
  await closeBrowser();
  await server.close();
}

function median(values) {
  return values.sort((a, b) => a - b)[Math.floor(values.length / 2)];
}

function report(name, value, unit) {
  const rounded = Number(value.toPrecision(3));
  console.log(process.argv.includes("--json") ? JSON.stringify({ name, value: rounded, unit }) : `${name.padEnd(34)} ${String(rounded).padStart(14)} ${unit}`);
}
