/**
 * Owns server-sent events: a reader over fetch that resumes after the last event id,
 * reconnects with backoff, and shows the state of its connection as a signal.
 * EventSource cannot send headers (namespace) and hides the reason of a refusal.
 */
import { type ReadonlySignal, effect, signal } from "@preact/signals";
import { backoffMs } from "./backoff";
import { type RequestOptions, headersOf, urlOf } from "./client";
import { online, reportOffline } from "./connection";
import { type ApiError, Offline, Problem, isAborted, readProblem } from "./errors";
import { reportSignedOut } from "./identity";
import { parseJson } from "./json";

/** `waiting`: broken, reconnects after a delay. `ended`: the server sent its last frame. `failed`: refused. */
export type StreamState = "connecting" | "open" | "waiting" | "ended" | "failed";

export interface Stream {
  state: ReadonlySignal<StreamState>;
  error: ReadonlySignal<ApiError | null>;
  close(): void;
}

export type Handlers<Frames> = { [Name in keyof Frames]?: (data: Frames[Name], id: string | null) => void };

export interface StreamOptions<Frames> extends RequestOptions {
  on: Handlers<Frames>;
  /** Frames after which the stream is over; `end` unless given. */
  last?: (keyof Frames & string)[];
  lastEventId?: string;
  /** Called before each connection after the first. */
  onReconnect?: () => void;
  /** Called when a connection after the first is open: list again if the stream has no ids. */
  onReopen?: () => void;
  onError?: (error: ApiError) => void;
}

// The server sends comments; a connection that is silent for longer is dead.
const SILENCE_MS = 60_000;
// A window in the background gives its connections to others: browsers allow six per host.
const HIDDEN_MS = 60_000;

/** Opens a stream; `Frames` maps names of events to their data. Frames without a name are `message`. */
export function openStream<Frames>(path: string, options: StreamOptions<Frames>): Stream {
  const state = signal<StreamState>("connecting");
  const error = signal<ApiError | null>(null);
  const abort = new AbortController();
  const last = new Set<string>(options.last ?? ["end"]);
  let lastEventId = options.lastEventId;
  let opened = false;
  let attempt = 0;

  function dispatch(frame: Frame): boolean {
    if (frame.id !== null) lastEventId = frame.id;
    const data = frame.data === "" ? null : parseJson(frame.data);
    if (frame.event === "dropped" && data) lastEventId = (data as { cursor?: string }).cursor ?? lastEventId;
    if (frame.event === "error") throw problemOf(data);
    const handler = options.on[frame.event as keyof Frames];
    handler?.(data as Frames[keyof Frames], frame.id);
    return last.has(frame.event);
  }

  async function connect(): Promise<"ended" | "broken"> {
    const headers = headersOf("GET");
    headers.set("accept", "text/event-stream");
    if (lastEventId !== undefined) headers.set("last-event-id", lastEventId);
    const watchdog = new Watchdog(abort.signal);
    try {
      const response = await fetch(urlOf(path, options), { headers, cache: "no-store", credentials: "same-origin", signal: watchdog.signal });
      if (!response.ok || response.body === null) throw await readProblem(response);
      state.value = "open";
      error.value = null;
      if (opened) options.onReopen?.();
      opened = true;
      for await (const frame of framesOf(response.body, () => watchdog.feed())) {
        attempt = 0;
        if (dispatch(frame)) return "ended";
      }
      return "broken";
    } finally {
      watchdog.stop();
    }
  }

  async function loop(): Promise<void> {
    for (let first = true; !abort.signal.aborted; first = false) {
      if (!first) options.onReconnect?.();
      try {
        if ((await connect()) === "ended") {
          state.value = "ended";
          return;
        }
      } catch (reason) {
        if (abort.signal.aborted) return;
        if (isHidden()) {
          await visible(abort.signal);
          continue;
        }
        const failed = failureOf(reason);
        error.value = failed;
        options.onError?.(failed);
        if (failed instanceof Problem && failed.status === 401) reportSignedOut();
        if (failed instanceof Problem && failed.status < 500 && failed.status !== 429) {
          state.value = "failed";
          return;
        }
        reportOffline();
      }
      if (abort.signal.aborted) return;
      state.value = "waiting";
      await delay(backoffMs(attempt++), abort.signal);
      if (!abort.signal.aborted) state.value = "connecting";
    }
  }

  void loop();
  return { state, error, close: () => abort.abort() };
}

function failureOf(reason: unknown): ApiError {
  if (reason instanceof Problem || reason instanceof Offline) return reason;
  return new Offline(isAborted(reason) ? "The stream was silent for too long." : "The stream was interrupted.");
}

function problemOf(data: unknown): Problem {
  const body = (data ?? {}) as Partial<Problem>;
  return new Problem(body.status ?? 500, body.code ?? "stream_failed", body.detail ?? "The stream failed.", body.hint ?? null);
}

/** Aborts a connection that is silent or long in the background, or with its stream. */
class Watchdog {
  private readonly abort = new AbortController();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private hiddenTimer: ReturnType<typeof setTimeout> | undefined;
  private readonly onClose = () => this.abort.abort();
  private readonly onVisibility = () => {
    clearTimeout(this.hiddenTimer);
    if (isHidden()) this.hiddenTimer = setTimeout(this.onClose, HIDDEN_MS);
  };
  constructor(private readonly parent: AbortSignal) {
    parent.addEventListener("abort", this.onClose);
    document.addEventListener("visibilitychange", this.onVisibility);
    this.onVisibility();
    this.feed();
  }
  get signal(): AbortSignal {
    return this.abort.signal;
  }
  feed(): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(this.onClose, SILENCE_MS);
  }
  stop(): void {
    clearTimeout(this.timer);
    clearTimeout(this.hiddenTimer);
    document.removeEventListener("visibilitychange", this.onVisibility);
    this.parent.removeEventListener("abort", this.onClose);
    this.abort.abort();
  }
}

function isHidden(): boolean {
  return document.visibilityState === "hidden";
}

/** Waits until the window is visible, or the stream is closed. */
function visible(closed: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const check = () => {
      if (isHidden() && !closed.aborted) return;
      document.removeEventListener("visibilitychange", check);
      closed.removeEventListener("abort", check);
      resolve();
    };
    document.addEventListener("visibilitychange", check);
    closed.addEventListener("abort", check);
    check();
  });
}

/** Waits; ends early when the server is back or the stream is closed. */
function delay(ms: number, closed: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const wasOffline = !online.value;
    let dispose: (() => void) | undefined;
    const done = () => {
      clearTimeout(timer);
      closed.removeEventListener("abort", done);
      dispose?.();
      resolve();
    };
    const timer = setTimeout(done, ms);
    closed.addEventListener("abort", done);
    dispose = effect(() => {
      if (wasOffline && online.value) queueMicrotask(done);
    });
  });
}

interface Frame {
  event: string;
  data: string;
  id: string | null;
}

async function* framesOf(body: ReadableStream<Uint8Array>, onBytes: () => void): AsyncGenerator<Frame> {
  const reader = body.pipeThrough(new TextDecoderStream() as unknown as TransformStream<Uint8Array, string>).getReader();
  const parser = new FrameParser();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      onBytes();
      yield* parser.push(value);
    }
  } finally {
    void reader.cancel().catch(() => undefined);
  }
}

/** Splits text into frames, however the chunks are cut. */
export class FrameParser {
  private rest = "";
  private event = "message";
  private data: string[] = [];
  private id: string | null = null;

  *push(chunk: string): Generator<Frame> {
    const lines = (this.rest + chunk).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line !== "") this.field(line);
      else if (this.data.length > 0 || this.event !== "message") yield this.take();
    }
  }

  private field(line: string): void {
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "event") this.event = value;
    else if (name === "data") this.data.push(value);
    else if (name === "id") this.id = value;
  }

  private take(): Frame {
    const frame = { event: this.event, data: this.data.join("\n"), id: this.id };
    this.event = "message";
    this.data = [];
    this.id = null;
    return frame;
  }
}
