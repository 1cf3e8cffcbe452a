/** Owns the filter of the list: in the address, as a query of the API, as a filter of bulk requests. */
import type { Query } from "../../api/client";
import { type Attributes, type Run, STATUSES, type Schemas, type Status } from "../../api/model";
import type { QueryPatch } from "../../ui/router";

export interface Filter {
  kind: string;
  statuses: Status[];
  attributes: { name: string; value: string }[];
  /** `15m`, `1h`, `24h`, `7d`, or empty. */
  since: string;
  from: string;
  until: string;
  /** Text in the id, the kind or an attribute; applied by the console. */
  text: string;
}

export const SPANS: Record<string, { label: string; ms: number }> = {
  "15m": { label: "last 15 minutes", ms: 900_000 },
  "1h": { label: "last hour", ms: 3_600_000 },
  "24h": { label: "last 24 hours", ms: 86_400_000 },
  "7d": { label: "last 7 days", ms: 604_800_000 },
};

export function readFilter(query: URLSearchParams): Filter {
  const attributes: Filter["attributes"] = [];
  for (const [name, value] of query) {
    if (name.startsWith("attr.") && name.length > 5) attributes.push({ name: name.slice(5), value });
  }
  const since = query.get("since") ?? "";
  return {
    kind: query.get("kind") ?? "",
    statuses: query.getAll("status").filter((status): status is Status => (STATUSES as string[]).includes(status)),
    attributes,
    since: since in SPANS ? since : "",
    from: timeOrEmpty(query.get("from")),
    until: timeOrEmpty(query.get("until")),
    text: query.get("q") ?? "",
  };
}

function timeOrEmpty(text: string | null): string {
  return text !== null && !Number.isNaN(Date.parse(text)) ? text : "";
}

/** Returns the parameters that remove every filter from an address. */
export function noFilter(query: URLSearchParams): QueryPatch {
  return Object.fromEntries([...query.keys()].map((name) => [name, null]));
}

/** Returns the bounds of the time of creation. */
export function bounds(filter: Filter, now: number): { created_from?: string; created_until?: string } {
  const span = SPANS[filter.since];
  // Whole minutes, so that equal views send equal requests.
  if (span) return { created_from: new Date(Math.floor((now - span.ms) / 60_000) * 60_000).toISOString() };
  return { created_from: filter.from || undefined, created_until: filter.until || undefined };
}

/** Returns the query for lists and counts; the status is left out for counts. */
export function apiQuery(filter: Filter, now: number, withStatus: boolean): Query {
  const query: Query = { kind: filter.kind, ...bounds(filter, now) };
  if (withStatus) query.status = filter.statuses;
  for (const { name, value } of filter.attributes) query[`attr.${name}`] = value;
  return query;
}

/** Returns whether a run of the feed belongs to the list. */
export function matches(filter: Filter, run: Run, now: number): boolean {
  if (filter.kind !== "" && run.kind !== filter.kind) return false;
  if (!filter.attributes.every(({ name, value }) => attributeText(run.attributes[name]) === value)) return false;
  if (filter.statuses.length > 0 && !filter.statuses.includes(run.status)) return false;
  const { created_from, created_until } = bounds(filter, now);
  const created = Date.parse(run.created_at);
  if (created_from && created < Date.parse(created_from)) return false;
  return !created_until || created < Date.parse(created_until);
}

/** Returns whether the text of the filter occurs in a run. */
export function hasText(run: Run, text: string): boolean {
  const wanted = text.toLowerCase();
  if (run.id.toLowerCase().includes(wanted) || run.kind.toLowerCase().includes(wanted)) return true;
  return Object.entries(run.attributes).some(([name, value]) => `${name}=${attributeText(value)}`.toLowerCase().includes(wanted));
}

export function attributeText(value: Attributes[string] | undefined): string {
  return typeof value === "object" && value !== null ? String(value.time) : String(value ?? "");
}

/** Returns the filter of a bulk request. Values get the type that the listed runs have. */
export function bulkFilter(filter: Filter, runs: readonly Run[], now: number): Schemas["RunFilter"] {
  const attributes: Record<string, Attributes[string]> = {};
  for (const { name, value } of filter.attributes) {
    const listed = runs.find((run) => attributeText(run.attributes[name]) === value)?.attributes[name];
    attributes[name] = listed ?? value;
  }
  return {
    ...(filter.kind && { kind: filter.kind }),
    ...(filter.statuses.length > 0 && { status: filter.statuses }),
    ...(filter.attributes.length > 0 && { attributes }),
    ...bounds(filter, now),
  };
}

export function isEmpty(filter: Filter): boolean {
  return filter.kind === "" && filter.statuses.length === 0 && filter.attributes.length === 0 && filter.since === "" && filter.from === "" && filter.until === "";
}
