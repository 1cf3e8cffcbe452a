// Bundles the console into crates/onward-server/console/, which the server embeds.
// The output depends on the sources and the locked tools alone, so a rebuild is byte-identical.
import { build } from "esbuild";
import { copyFile, mkdir, readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const GZIP_BYTES_MAX = 150 * 1024;
const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "../crates/onward-server/console");

await mkdir(out, { recursive: true });
await build({
  absWorkingDir: here,
  entryPoints: { app: "src/main.tsx" },
  outdir: out,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["chrome123", "firefox128", "safari17.5"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  charset: "utf8",
  logLevel: "warning",
});
for (const name of ["index.html", "icon.svg"]) {
  await copyFile(join(here, "src", name), join(out, name));
}

let total = 0;
for (const name of ["index.html", "app.js", "app.css", "icon.svg"]) {
  const bytes = await readFile(join(out, name));
  const gzipped = gzipSync(bytes, { level: 9 }).length;
  total += gzipped;
  console.log(`${name.padEnd(12)} ${kib(bytes.length)} ${kib(gzipped)} gzipped`);
}
console.log(`${"total".padEnd(12)} ${" ".repeat(10)} ${kib(total)} gzipped`);
if (total > GZIP_BYTES_MAX) {
  console.error(`the console is larger than ${GZIP_BYTES_MAX / 1024} KiB`);
  process.exit(1);
}

function kib(bytes) {
  return `${(bytes / 1024).toFixed(1)} KiB`.padStart(10);
}
