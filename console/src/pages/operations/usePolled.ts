/** Owns the refresh of operations pages: the API has no feed for workers and queues, so they are polled while visible. */
import { online } from "../../api/connection";
import { type Loaded, useEvery, useLoad } from "../../ui/hooks";

const POLL_MS = 5000;

export function usePolled<T>(load: (signal: AbortSignal) => Promise<T>, deps: readonly unknown[] = [], ms = POLL_MS): Loaded<T> {
  const loaded = useLoad(load, deps);
  useEvery(ms, () => {
    if (online.value && !loaded.loading.value) loaded.reload();
  });
  return loaded;
}
