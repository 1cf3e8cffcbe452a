/** Prints figures as crates/onward-bench does. */

import { readFileSync } from "node:fs";

export const isQuick = process.argv.includes("--quick");

/** Prints a figure: one line of JSON with `--json`. */
export function report(name, value, unit) {
  const rounded = round(value);
  const isJson = process.argv.includes("--json");
  console.log(isJson ? JSON.stringify({ name, value: rounded, unit }) : `${name.padEnd(34)} ${String(rounded).padStart(14)} ${unit}`);
}

/** Rounds to three significant digits or whole numbers: more would be noise. */
function round(value) {
  return Math.abs(value) >= 1_000 ? Math.round(value) : Number(value.toPrecision(3));
}

export function median(values) {
  return values.toSorted((one, other) => one - other)[Math.floor(values.length / 2)];
}

/** Returns the resident memory of this process in bytes. */
export function resident() {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync("/proc/self/status", "utf8"))[1]) * 1024;
}

/** Keeps runs of ten steps active for a while after the warm-up and returns the steps per second. */
export async function throughput(run, concurrency, milliseconds, warmUp = 500) {
  const begin = performance.now() + warmUp;
  const end = begin + milliseconds;
  const caller = async () => {
    let runs = 0;
    for (let now; (now = performance.now()) < end; ) {
      await run(runs);
      if (now >= begin) runs++;
    }
    return runs;
  };
  const runs = await Promise.all(Array.from({ length: concurrency }, caller));
  return (runs.reduce((sum, count) => sum + count, 0) * 10_000) / (performance.now() - begin);
}
