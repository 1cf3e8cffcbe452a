/** Owns the latest runs of listed schedules: lists have no histories, so a schedule is read when it started or ended a run. */
import { type ReadonlySignal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { api } from "../../api/client";
import { namespace } from "../../api/identity";
import type { Schedule } from "../../api/model";
import { type HistoryEntry, lastRunOf, runsKey } from "./words";

/** Browsers allow six connections per host. */
const AT_ONCE = 3;

export type LastRuns = ReadonlySignal<ReadonlyMap<string, HistoryEntry | null>>;

/** Returns the latest run of each schedule; a schedule that is not read yet is absent. */
export function useLastRuns(schedules: readonly Schedule[]): LastRuns {
  const shown = useSignal<ReadonlyMap<string, HistoryEntry | null>>(new Map());
  const read = useRef(new Map<string, string>());
  const keyOf = (schedule: Schedule) => `${namespace.value ?? ""} ${runsKey(schedule)}`;
  const keys = schedules.map((schedule) => `${schedule.schedule} ${keyOf(schedule)}`).join("\n");
  useEffect(() => {
    const abort = new AbortController();
    const changed = schedules.filter((schedule) => read.current.get(schedule.schedule) !== keyOf(schedule));
    const next = async (): Promise<void> => {
      for (let schedule = changed.shift(); schedule && !abort.signal.aborted; schedule = changed.shift()) {
        const found = schedule.totals.started === 0 ? null : await lastRun(schedule.schedule, abort.signal);
        if (found === undefined || abort.signal.aborted) continue;
        read.current.set(schedule.schedule, keyOf(schedule));
        shown.value = new Map(shown.peek()).set(schedule.schedule, found);
      }
    };
    for (let n = 0; n < AT_ONCE; n++) void next();
    return () => abort.abort();
  }, [keys]);
  return shown;
}

/** Returns undefined if the schedule cannot be read; the next change of the list tries again. */
async function lastRun(id: string, signal: AbortSignal): Promise<HistoryEntry | null | undefined> {
  try {
    return lastRunOf((await api.get("/v1/schedules/{id}", { path: { id }, signal })).history);
  } catch {
    // It may be deleted, or the server away: both show elsewhere.
    return undefined;
  }
}
