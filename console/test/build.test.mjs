// The committed output and types are those of the sources, and the sources have nothing that turns text into markup.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";

const run = promisify(execFile);
const home = new URL("..", import.meta.url).pathname;
const committed = new URL("../../crates/onward-server/console/", import.meta.url).pathname;

async function inTemporary(action) {
  const directory = await mkdtemp(join(tmpdir(), "onward-build-"));
  try {
    await action(directory);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

test("the committed console is the one that the sources build", () =>
  inTemporary(async (directory) => {
    const { stdout } = await run(process.execPath, ["build.mjs", directory], { cwd: home });
    console.log(stdout.trim().split("\n").at(-1));
    const names = (await readdir(directory)).sort();
    assert.deepEqual(names, ["app.css", "app.js", "icon.svg", "index.html"]);
    assert.deepEqual((await readdir(committed)).sort(), names);
    for (const name of names) assert.ok((await readFile(join(directory, name))).equals(await readFile(join(committed, name))), `${name} differs: run npm run build`);
  }));

test("the types are those of the OpenAPI document", () =>
  inTemporary(async (directory) => {
    const out = join(directory, "types.ts");
    await run(process.execPath, ["node_modules/openapi-typescript/bin/cli.js", "../docs/openapi.json", "--output", out, "--alphabetize"], { cwd: home });
    assert.ok((await readFile(out)).equals(await readFile(join(home, "src/api/types.ts"))), "the types differ: run npm run types");
  }));

test("no source turns text into markup or code", async () => {
  const names = (await readdir(join(home, "src"), { recursive: true })).filter((name) => /\.tsx?$/.test(name));
  for (const name of names) {
    const text = await readFile(join(home, "src", name), "utf8");
    assert.doesNotMatch(text, /dangerouslySetInnerHTML|\.innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function\(|srcdoc/, name);
  }
});
