/** The directories of the examples: a real program keeps its directory. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Returns a new directory, which is removed at the end of the process. */
export function directory(): string {
  const path = mkdtempSync(join(tmpdir(), "onward-example-"));
  process.on("exit", () => rmSync(path, { recursive: true, force: true }));
  return path;
}
