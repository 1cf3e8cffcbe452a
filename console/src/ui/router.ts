/** Owns the address: pages and their filters are in the hash, so each view is a link. */
import { computed, signal } from "@preact/signals";

export interface Route {
  /** Decoded parts of the path: `#/runs/a%2Fb/log` is `["runs", "a/b", "log"]`. */
  path: string[];
  query: URLSearchParams;
}

const hash = signal(location.hash);
window.addEventListener("hashchange", () => (hash.value = location.hash));

export const route = computed<Route>(() => parse(hash.value));

export type QueryPatch = Record<string, string | number | readonly string[] | null | undefined>;

/** Returns a link: `href(["runs", id, "log"], { event: "0:3" })`. */
export function href(path: readonly (string | number)[], query: QueryPatch | URLSearchParams = {}): string {
  const search = query instanceof URLSearchParams ? query : merge(new URLSearchParams(), query);
  const text = search.toString();
  return `#/${path.map((part) => encodeURIComponent(part)).join("/")}${text === "" ? "" : `?${text}`}`;
}

/** Goes to a link of `href`; `replace` keeps the history short while a filter is typed. */
export function navigate(to: string, replace = false): void {
  if (to === location.hash) return;
  if (replace) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  hash.value = location.hash;
}

/** Changes some parameters of the current address; null removes one. */
export function setQuery(patch: QueryPatch, replace = true): void {
  const { path, query } = route.peek();
  navigate(href(path, merge(new URLSearchParams(query), patch)), replace);
}

function merge(query: URLSearchParams, patch: QueryPatch): URLSearchParams {
  for (const [name, value] of Object.entries(patch)) {
    query.delete(name);
    if (value === null || value === undefined || value === "") continue;
    for (const item of Array.isArray(value) ? value : [value]) query.append(name, String(item));
  }
  return query;
}

function parse(text: string): Route {
  const [path = "", ...search] = text.replace(/^#\/?/, "").split("?");
  return { path: path.split("/").filter((part) => part !== "").map(decode), query: new URLSearchParams(search.join("?")) };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
