/** Owns loading of a run's log and timeline: pages on demand, and live frames on top of them. */
import { signal } from "@preact/signals";
import { api } from "../../api/client";
import { type ApiError, asApiError, isAborted } from "../../api/errors";
import { openStream, type Stream } from "../../api/sse";
import { LogStore, PAGE } from "./logStore";
import type { LoggedEvent, Payload, RunFrames } from "./model";
import { addActive, addEvent, addPage, emptyTimeline, keepActive, type Timeline } from "./timeline";

export interface Position {
  generation: number;
  from: number;
}

/** Reads events from a position on, page by page, through later generations. Ends at the end of the log. */
export async function* readEvents(run: string, start: Position, abort: AbortSignal, limit = 1000): AsyncGenerator<LoggedEvent[]> {
  let at: Position | null = start;
  while (at !== null) {
    const page: { events: LoggedEvent[]; next: Position | null } = await api.get("/v1/runs/{id}/events", {
      path: { id: run }, query: { generation: at.generation, from: at.from, limit }, signal: abort,
    }) as never;
    if (page.events.length > 0) yield page.events;
    const next: Position | null = page.next;
    // Beyond the end of an open log, the page is empty and repeats its position.
    if (next && next.generation === at.generation && next.from === at.from) return;
    at = next;
  }
}

/** Requests for pages of a log that are under way at a time: a browser has six connections to a server. */
const LOADS = 3;
/** Scrolling through a long log asks for more pages than are read, so the oldest wishes are given up. */
const WISHES = 16;

/** The log of one generation. */
export class LogFeed {
  readonly store: LogStore;
  /** Counts the changes of the store. */
  readonly version = signal(0);
  readonly error = signal<ApiError | null>(null);
  private readonly abort = new AbortController();
  /** Pages to load, the latest wish last. */
  private pending: number[] = [];
  private loads = 0;

  constructor(private readonly run: string, readonly generation: number, length: number | null) {
    this.store = new LogStore(generation);
    // The length of an earlier generation is known only at its end.
    this.store.length = length ?? 1;
  }

  close(): void {
    this.abort.abort();
  }

  add(event: LoggedEvent): void {
    if (this.store.add([event])) this.version.value++;
  }

  grow(length: number): void {
    if (length <= this.store.length) return;
    this.store.length = length;
    this.version.value++;
  }

  /** Loads the pages of these rows, if they are missing. Called while rows are drawn, so the request follows after that. */
  want(from: number, to: number): void {
    for (const page of this.store.missing(from, to)) {
      if (this.pending.length === 0) queueMicrotask(() => this.loadNext());
      this.pending.push(page);
    }
  }

  private loadNext(): void {
    for (const page of this.pending.splice(0, this.pending.length - WISHES)) this.store.failed(page);
    while (this.loads < LOADS) {
      const page = this.pending.pop();
      if (page === undefined) return;
      this.loads++;
      void this.load(page).finally(() => {
        this.loads--;
        this.loadNext();
      });
    }
  }

  private async load(page: number): Promise<void> {
    const from = page * PAGE;
    try {
      const loaded = await api.get("/v1/runs/{id}/events", {
        path: { id: this.run }, query: { generation: this.generation, from, limit: PAGE }, signal: this.abort.signal,
      });
      const events = loaded.events as LoggedEvent[];
      this.store.add(events);
      const next = loaded.next as Position | null;
      if (next && next.generation === this.generation && next.from > this.store.length) this.store.length = next.from;
      // One more row asks for the next page of a log whose length is unknown.
      if (next && next.generation === this.generation && events.length === PAGE && next.from === this.store.length) this.store.length++;
      if (events.length < PAGE && this.store.length > from + events.length && this.store.get(from + events.length) === undefined) {
        this.store.length = Math.max(from + events.length, this.lastKnown());
      }
      this.error.value = null;
    } catch (reason) {
      this.store.failed(page);
      if (isAborted(reason)) return;
      this.error.value = asApiError(reason);
    }
    this.version.value++;
  }

  private lastKnown(): number {
    let length = this.store.length;
    while (length > 0 && this.store.get(length - 1) === undefined) length--;
    return length;
  }

  /** Loads everything before or after the stretch around an index, some pages at a time. */
  extend(from: number, to: number): void {
    this.want(Math.max(0, from), Math.min(to, this.store.length));
  }
}

/** The timeline of one generation of a run. */
export class TimelineFeed {
  readonly timeline: Timeline = emptyTimeline();
  readonly version = signal(0);
  readonly error = signal<ApiError | null>(null);
  readonly loading = signal(true);
  readonly next = signal<string | null>(null);
  readonly startedAt = signal<string | null>(null);
  readonly endedAt = signal<string | null>(null);
  private readonly abort = new AbortController();

  private stream: Stream | null = null;

  /** Without a generation it is that of the latest; `isLive` follows the run by a stream of its own. */
  constructor(readonly run: string, readonly generation: number | null, isLive = false) {
    void this.load(null);
    if (!isLive) return;
    const names: (keyof RunFrames)[] = ["snapshot", "event", "step_started", "task_started", "task_progress"];
    const on = Object.fromEntries(names.map((name) => [name, (data: never) => this.onFrame(name, data)]));
    this.stream = openStream<RunFrames>("/v1/runs/{id}/live", { path: { id: run }, query: { from: "end" }, on, onReconnect: () => this.reload() });
  }

  close(): void {
    this.abort.abort();
    this.stream?.close();
  }

  async load(cursor: string | null): Promise<void> {
    this.loading.value = true;
    try {
      const page = await api.get("/v1/runs/{id}/timeline", {
        path: { id: this.run }, query: { generation: this.generation, limit: 1000, cursor }, signal: this.abort.signal,
      });
      addPage(this.timeline, page.calls);
      this.startedAt.value = page.started_at;
      this.endedAt.value ??= page.ended_at;
      this.next.value = page.next;
      this.error.value = null;
    } catch (reason) {
      if (isAborted(reason)) return;
      this.error.value = asApiError(reason);
    }
    this.loading.value = false;
    this.version.value++;
  }

  loadMore(): void {
    if (this.next.value !== null && !this.loading.value) void this.load(this.next.value);
  }

  reload(): void {
    void this.load(null);
  }

  onFrame<N extends keyof RunFrames>(name: N, data: RunFrames[N]): void {
    if (this.frame(name, data)) this.version.value++;
  }

  private frame(name: keyof RunFrames, data: unknown): boolean {
    switch (name) {
      case "event": return addEvent(this.timeline, data as RunFrames["event"]);
      case "snapshot": {
        const active = (data as RunFrames["snapshot"]).active;
        keepActive(this.timeline, active);
        for (const call of active) addActive(this.timeline, call);
        return true;
      }
      case "step_started": {
        const frame = data as RunFrames["step_started"];
        addActive(this.timeline, { ...frame, type: "step", started_at: frame.at, worker: null });
        return true;
      }
      case "task_started": {
        const frame = data as RunFrames["task_started"];
        addActive(this.timeline, { ...frame, type: "task", started_at: frame.at, input: null });
        return true;
      }
      case "task_progress": {
        const frame = data as RunFrames["task_progress"];
        this.timeline.progress.set(frame.call_id, frame.progress as Payload);
        return true;
      }
      default: return false;
    }
  }
}
