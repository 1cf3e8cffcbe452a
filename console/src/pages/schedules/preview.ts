/** Owns the preview of the next slots while a specification is entered. */
import { type ReadonlySignal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api } from "../../api/client";
import { type ApiError, asApiError, isAborted } from "../../api/errors";
import { printJson } from "../../api/json";
import type { ScheduleSpec, UpcomingSlot } from "../../api/model";

/** The time without a key press after which the server is asked. */
const PAUSE_MS = 250;

export interface Preview {
  slots: readonly UpcomingSlot[] | null;
  error: ApiError | null;
}

/** Returns the next slots of a specification; an older request is canceled. Null as specification asks nothing. */
export function usePreview(spec: ScheduleSpec | null, limit: number): ReadonlySignal<Preview> {
  const preview = useSignal<Preview>({ slots: null, error: null });
  const text = spec === null ? null : printJson(spec);
  useEffect(() => {
    if (spec === null) {
      preview.value = { slots: null, error: null };
      return;
    }
    const abort = new AbortController();
    const timer = setTimeout(() => {
      api.post("/v1/slots", { spec, limit }, { signal: abort.signal }).then(
        ({ slots }) => {
          if (!abort.signal.aborted) preview.value = { slots, error: null };
        },
        (reason: unknown) => {
          if (!abort.signal.aborted && !isAborted(reason)) preview.value = { slots: null, error: asApiError(reason) };
        },
      );
    }, PAUSE_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text, limit]);
  return preview;
}
