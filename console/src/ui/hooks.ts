/** Owns the hooks of pages: load data, follow a stream, and the shared clock. */
import { type ReadonlySignal, signal, useComputed, useSignal, useSignalEffect } from "@preact/signals";
import { useCallback, useEffect, useRef } from "preact/hooks";
import { reconnects } from "../api/connection";
import { type ApiError, asApiError, isAborted } from "../api/errors";
import { namespace } from "../api/identity";
import { type Stream, type StreamOptions, type StreamState, openStream } from "../api/sse";

export interface Loaded<T> {
  /** The latest answer; stays while a newer one is loaded. */
  data: ReadonlySignal<T | null>;
  error: ReadonlySignal<ApiError | null>;
  loading: ReadonlySignal<boolean>;
  reload(): void;
}

/** Loads data when `deps` change, when the server returns, and on `reload`. A newer load cancels an older one. */
export function useLoad<T>(load: (signal: AbortSignal) => Promise<T>, deps: readonly unknown[]): Loaded<T> {
  const data = useSignal<T | null>(null);
  const error = useSignal<ApiError | null>(null);
  const loading = useSignal(true);
  const again = useSignal(0);
  const latest = useRef(load);
  latest.current = load;
  useEffect(() => {
    // Data of other dependencies would be shown as if it were of these.
    data.value = null;
    error.value = null;
  }, deps);
  useEffect(() => {
    const abort = new AbortController();
    loading.value = true;
    latest
      .current(abort.signal)
      .then((answer) => {
        if (abort.signal.aborted) return;
        data.value = answer;
        error.value = null;
        loading.value = false;
      })
      .catch((reason: unknown) => {
        if (abort.signal.aborted || isAborted(reason)) return;
        error.value = asApiError(reason);
        loading.value = false;
      });
    return () => abort.abort();
  }, [...deps, again.value, reconnects.value, namespace.value]);
  const reload = useCallback(() => void again.value++, []);
  return { data, error, loading, reload };
}

/** Follows a stream while the component is mounted; null as path follows none. */
export function useStream<Frames>(path: string | null, options: StreamOptions<Frames>, deps: readonly unknown[]): ReadonlySignal<StreamState> {
  const stream = useSignal<Stream | null>(null);
  const latest = useRef(options);
  latest.current = options;
  useEffect(() => {
    if (path === null) {
      stream.value = null;
      return;
    }
    const opened = openStream<Frames>(path, latest.current);
    stream.value = opened;
    return () => opened.close();
  }, [path, ...deps, namespace.value]);
  return useComputed(() => stream.value?.state.value ?? "connecting");
}

/** The time in milliseconds, renewed each second while the page is visible. */
export const now = signal(Date.now());
setInterval(() => {
  if (document.visibilityState === "visible") now.value = Date.now();
}, 1000);
document.addEventListener("visibilitychange", () => (now.value = Date.now()));

/** Runs `effect` every `ms` while the component is mounted and the page is visible. */
export function useEvery(ms: number, effect: () => void): void {
  const latest = useRef(effect);
  latest.current = effect;
  useEffect(() => {
    const timer = setInterval(() => {
      if (document.visibilityState === "visible") latest.current();
    }, ms);
    return () => clearInterval(timer);
  }, [ms]);
}

/** Sets the title of the window. */
export function useTitle(title: () => string): void {
  useSignalEffect(() => {
    document.title = `${title()} · Onward`;
  });
}
