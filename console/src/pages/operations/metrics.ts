/** Owns the figures that are read from the metrics of this server: current values, and rates between two readings. */
import { numberText } from "../../ui/format";

export type Figures = { name: string; value: string }[];

interface Reading {
  at: number;
  values: Map<string, number>;
}

const RATES: [string, string][] = [
  ["onward_commits_total", "Commits per second"],
  ["onward_task_seconds_count", "Tasks ended per second"],
  ["onward_inputs_total", "Inputs per second"],
  ["onward_http_requests_total", "Requests per second"],
];
const VALUES: [string, string][] = [
  ["onward_http_connections", "Connections"],
  ["onward_attached_readers", "Attached readers"],
];

let before: Reading | null = null;

/** Returns the figures of a page of metrics; rates need an earlier reading. */
export function figuresOf(page: string): Figures {
  const reading = { at: Date.now(), values: sums(page) };
  const earlier = before;
  before = reading;
  const figures: Figures = [];
  for (const [metric, name] of RATES) {
    const value = reading.values.get(metric);
    if (value === undefined) continue;
    const seconds = earlier ? (reading.at - earlier.at) / 1000 : 0;
    const grown = value - (earlier?.values.get(metric) ?? 0);
    // Counters begin again with the server.
    figures.push({ name, value: seconds > 0.5 && grown >= 0 ? (grown / seconds).toFixed(1) : "…" });
  }
  for (const [metric, name] of VALUES) {
    const value = reading.values.get(metric);
    if (value !== undefined) figures.push({ name, value: numberText(value) });
  }
  return figures;
}

/** Adds up the rows of each metric in the Prometheus text format. */
function sums(page: string): Map<string, number> {
  const values = new Map<string, number>();
  for (const line of page.split("\n")) {
    if (line === "" || line.startsWith("#")) continue;
    const name = /^\w+/.exec(line)?.[0];
    const value = Number(line.slice(line.lastIndexOf(" ") + 1));
    if (name && Number.isFinite(value)) values.set(name, (values.get(name) ?? 0) + value);
  }
  return values;
}
