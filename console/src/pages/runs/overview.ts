/** Owns what belongs to the list of runs beside its rows: counts, activity, the selection, a run found by its id. */
import { type ReadonlySignal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { api } from "../../api/client";
import { reconnects } from "../../api/connection";
import { namespace } from "../../api/identity";
import type { Activity, Counts, Run } from "../../api/model";
import { type Filter, SPANS, apiQuery, hasText } from "./filter";
import type { RunStore } from "./store";

const BUCKETS = 60;
// Counting reads many runs, so a busy feed counts again only so often.
const PAUSE_MS = 2500;

/** Loads counts and activity, and again after changes of the feed. */
export function useOverview(filter: Filter, key: string, store: RunStore): { counts: ReadonlySignal<Counts | null>; activity: ReadonlySignal<Activity | null> } {
  const counts = useSignal<Counts | null>(null);
  const activity = useSignal<Activity | null>(null);
  const loadedAt = useRef(0);
  const countedKey = useRef("");
  const hadSpan = useRef(false);
  // The counts do not depend on the chosen status, so they stay while it changes.
  const countKey = JSON.stringify({ ...JSON.parse(key), statuses: [] });
  const changes = store.changes.value;
  // The span follows the runs, so the list comes first. An answer with fewer runs than there are says nothing about their age.
  const span = spanOf(filter, store);
  useEffect(() => {
    // A new filter, and a list that is there now, need not wait.
    if (countedKey.current !== countKey || hadSpan.current !== (span !== null)) loadedAt.current = 0;
    countedKey.current = countKey;
    hadSpan.current = span !== null;
    const load = () => {
      loadedAt.current = Date.now();
      // An answer for an earlier filter is too late.
      const isWanted = () => countedKey.current === countKey;
      const ignore = () => undefined;
      api.get("/v1/counts", { query: apiQuery(filter, Date.now(), false) }).then((answer) => isWanted() && (counts.value = answer), ignore);
      if (span !== null) api.get("/v1/activity", { query: { kind: filter.kind, buckets: BUCKETS, ...activityBounds(filter, span) } }).then((answer) => isWanted() && (activity.value = answer), ignore);
    };
    const timer = setTimeout(load, Math.max(0, loadedAt.current + PAUSE_MS - Date.now()));
    return () => clearTimeout(timer);
  }, [countKey, changes, span === null, reconnects.value, namespace.value]);
  return { counts, activity };
}

const HOUR = 3_600_000;
const CHART_SPANS = [HOUR / 60, HOUR / 12, HOUR / 4, HOUR, 6 * HOUR, 24 * HOUR, 7 * 24 * HOUR, 30 * 24 * HOUR];

/** Returns the time that the chart covers: that of the filter, or the shortest that has all listed runs; `null` until they are there. */
function spanOf(filter: Filter, store: RunStore): number | null {
  if (filter.from) return 0;
  if (filter.since) return SPANS[filter.since]?.ms ?? HOUR;
  const oldest = store.runs.value.at(-1);
  if (!oldest) return store.loading.value ? null : HOUR;
  if (!store.complete.value) return HOUR;
  const age = Date.now() - Date.parse(oldest.created_at);
  return CHART_SPANS.find((span) => span >= age) ?? 30 * 24 * HOUR;
}

function activityBounds(filter: Filter, span: number): { from: string; until: string } {
  const until = filter.until ? Date.parse(filter.until) : Date.now();
  const from = filter.from ? Date.parse(filter.from) : until - span;
  return { from: new Date(Math.min(from, until - 60_000)).toISOString(), until: new Date(until).toISOString() };
}

/** Looks up a run whose whole id was entered, which may be far down the list. */
export function useExactRun(text: string): ReadonlySignal<Run | null> {
  const found = useSignal<Run | null>(null);
  useEffect(() => {
    found.value = null;
    if (text === "") return;
    const abort = new AbortController();
    api.get("/v1/runs/{id}", { path: { id: text }, signal: abort.signal }).then((run) => (found.value = run), () => undefined);
    return () => abort.abort();
  }, [text, namespace.value]);
  return found;
}

/** Returns the runs that contain the text, the one with that id first. */
export function shownRuns(runs: readonly Run[], text: string, exact: Run | null): readonly Run[] {
  if (text === "") return runs;
  const found = runs.filter((run) => hasText(run, text));
  return exact && !found.some((run) => run.id === exact.id) ? [exact, ...found] : found;
}

export interface Selection {
  ids: ReadonlySignal<ReadonlySet<string>>;
  toggle: (index: number, range: boolean) => void;
  clear: () => void;
}

/** The selected runs. A range goes from the last selected row to the given one. */
export function useSelection(rows: readonly Run[], key: string): Selection {
  const ids = useSignal<ReadonlySet<string>>(new Set());
  const anchor = useRef<string | null>(null);
  const latest = useRef(rows);
  latest.current = rows;
  const clear = () => {
    if (ids.value.size > 0) ids.value = new Set();
    anchor.current = null;
  };
  useEffect(clear, [key]);
  const toggle = (index: number, range: boolean) => {
    const run = latest.current[index];
    if (!run) return;
    const next = new Set(ids.value);
    const start = latest.current.findIndex((item) => item.id === anchor.current);
    if (range && start >= 0) {
      for (const item of latest.current.slice(Math.min(start, index), Math.max(start, index) + 1)) next.add(item.id);
    } else if (!next.delete(run.id)) next.add(run.id);
    anchor.current = run.id;
    ids.value = next;
  };
  return { ids, toggle, clear };
}
