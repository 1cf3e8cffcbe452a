// Bundles a module of the console for tests without a browser, with the few globals that its imports read.
import { build } from "esbuild";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const src = join(dirname(fileURLToPath(import.meta.url)), "../src");

/** Returns the exports of the modules, each path below `src/`. */
export async function load(...modules) {
  const { outputFiles } = await build({
    stdin: { contents: modules.map((path) => `export * from ${JSON.stringify(`./${path}`)};`).join("\n"), resolveDir: src, loader: "ts" },
    bundle: true,
    write: false,
    format: "esm",
    jsx: "automatic",
    jsxImportSource: "preact",
    loader: { ".css": "empty" },
    banner: { js: GLOBALS },
    logLevel: "warning",
  });
  return import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].contents).toString("base64")}`);
}

const GLOBALS = `
const silent = { addEventListener() {}, visibilityState: "visible" };
globalThis.window ??= silent;
globalThis.document ??= silent;
globalThis.location ??= { origin: "http://localhost:7400", hash: "" };
`;
