/**
 * Owns the one feed of run changes of this window.
 * Browsers allow six HTTP/1.1 connections per host, so all views share it.
 */
import { effect, signal } from "@preact/signals";
import { namespace } from "./identity";
import type { FeedFrames } from "./model";
import { needsLogin, session } from "./session";
import { type Stream, type StreamState, openStream } from "./sse";

export interface FeedListener {
  run: (frame: FeedFrames["run"]) => void;
  /** Frames may have been lost: list again. */
  reset: () => void;
}

export const feedState = signal<StreamState>("connecting");

const listeners = new Set<FeedListener>();
const wanted = signal(0);

/** Follows the feed until the returned function is called. */
export function followFeed(listener: FeedListener): () => void {
  listeners.add(listener);
  wanted.value = listeners.size;
  return () => {
    listeners.delete(listener);
    wanted.value = listeners.size;
  };
}

function each(call: (listener: FeedListener) => void): void {
  for (const listener of [...listeners]) call(listener);
}

/** Connects whenever a view follows the feed. */
export function watchFeed(): void {
  let stream: Stream | null = null;
  let stopState: (() => void) | null = null;
  let connectedAs: string | null = null;
  effect(() => {
    const open = wanted.value > 0 && session.value !== null && !needsLogin.value;
    const as = open ? `${namespace.value ?? ""} ${session.value?.key_name ?? ""}` : null;
    if (as === connectedAs) return;
    connectedAs = as;
    stream?.close();
    stopState?.();
    stream = null;
    if (as === null) return;
    stream = openStream<FeedFrames>("/v1/live", {
      on: {
        run: (frame) => each((listener) => listener.run(frame)),
        // The feed has no ids: what happened before it was connected is found by listing.
        hello: () => each((listener) => listener.reset()),
        reset: () => each((listener) => listener.reset()),
      },
    });
    const { state } = stream;
    stopState = effect(() => void (feedState.value = state.value));
  });
}
