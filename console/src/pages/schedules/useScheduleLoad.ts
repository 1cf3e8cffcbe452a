/**
 * Owns the refresh of the pages of schedules.
 * The feed of runs reports each start and end, and the next slot has a known time: nothing else changes often, so the poll is slow.
 */
import { useEffect, useRef } from "preact/hooks";
import { online } from "../../api/connection";
import { followFeed } from "../../api/feed";
import { type Loaded, useEvery, useLoad } from "../../ui/hooks";
import { scheduleOfRun } from "./words";

/** Changes that no run shows, such as a pause by another person, appear after this time. */
const POLL_MS = 30_000;

/** Several changes are one request. */
const PAUSE_MS = 700;

/** The server decides a slot some time after it is due. */
const DECIDED_MS = 1_500;

/** The longest delay of a browser's timer. */
const TIMER_MAX_MS = 2 ** 31 - 1;

export interface ScheduleLoad<T> {
  load: (signal: AbortSignal) => Promise<T>;
  deps: readonly unknown[];
  /** Whether runs of this schedule change the data. */
  isShown: (schedule: string) => boolean;
  /** The time of the next slot in the data. */
  nextDue: (data: T) => string | undefined;
}

/** Loads data, and again when a shown schedule starts a run, when one ends, and when a slot was due. */
export function useScheduleLoad<T>(options: ScheduleLoad<T>): Loaded<T> {
  const loaded = useLoad(options.load, options.deps);
  const latest = useRef(options);
  latest.current = options;
  const timer = useRef<ReturnType<typeof setTimeout> | null>(null);
  const soon = () => {
    timer.current ??= setTimeout(() => {
      timer.current = null;
      if (loaded.loading.peek()) soon();
      else if (online.peek() && document.visibilityState === "visible") loaded.reload();
    }, PAUSE_MS);
  };
  useEffect(() => () => clearTimeout(timer.current ?? undefined), []);
  useEffect(() => followFeed({
    run: ({ run }) => {
      const schedule = scheduleOfRun(run.id);
      if (schedule !== null && latest.current.isShown(schedule)) soon();
    },
    // The first connection follows the first load: what happened between them is not in the feed.
    reset: soon,
  }), []);
  const data = loaded.data.value;
  const due = data === null ? undefined : options.nextDue(data);
  useEffect(() => {
    if (due === undefined) return;
    const wait = Math.min(TIMER_MAX_MS, Math.max(0, Date.parse(due) - Date.now()) + DECIDED_MS);
    const at = setTimeout(soon, wait);
    return () => clearTimeout(at);
  }, [due]);
  useEvery(POLL_MS, soon);
  return loaded;
}
