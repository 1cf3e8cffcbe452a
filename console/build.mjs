// Bundles the console into crates/onward-server/console/, which the server embeds.
// The output depends on the sources and the locked tools alone, so a rebuild is byte-identical. Files that are up to date are not
// written: the server would be compiled again.
import { build } from "esbuild";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const GZIP_BYTES_MAX = 150 * 1024;
const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "../crates/onward-server/console");

await mkdir(out, { recursive: true });
const { outputFiles } = await build({
  absWorkingDir: here,
  entryPoints: { app: "src/main.tsx" },
  outdir: out,
  write: false,
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
const copied = ["index.html", "icon.svg"].map(async (name) => [name, await readFile(join(here, "src", name))]);
const files = [...outputFiles.map(({ path, contents }) => [basename(path), Buffer.from(contents)]), ...(await Promise.all(copied))];

let total = 0;
for (const [name, bytes] of files) {
  const path = join(out, name);
  const current = await readFile(path).catch(() => undefined);
  if (!current?.equals(bytes)) await writeFile(path, bytes);
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
