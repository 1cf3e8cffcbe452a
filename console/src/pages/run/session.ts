/**
 * Owns one run while its page is open: its view, its live stream, and the feeds of its tabs.
 * Frames can be held back (pause button), and events lost between two connections are read from the log.
 */
import { batch, computed, type ReadonlySignal, signal } from "@preact/signals";
import { api } from "../../api/client";
import { reconnects } from "../../api/connection";
import { type ApiError, asApiError, hasCode, isAborted } from "../../api/errors";
import { openStream, type Stream, type StreamState } from "../../api/sse";
import { ConversationFeed } from "../conversation/feed";
import { LogFeed, readEvents, TimelineFeed } from "./feeds";
import { isClosed, type LoggedEvent, type Payload, type RunFrames, type RunView } from "./model";

type FrameName = keyof RunFrames;
const RELOAD_MS = 700;

export class RunSession {
  readonly view = signal<RunView | null>(null);
  readonly error = signal<ApiError | null>(null);
  /** The run was there and is not any more. */
  readonly isDeleted = signal(false);
  readonly isAgent = signal(false);
  /** The latest generation, and the number of events in it. */
  readonly generation = signal(0);
  readonly length = signal(0);
  readonly paused = signal(false);
  readonly held = signal(0);
  readonly streamState: ReadonlySignal<StreamState>;
  private readonly logs = new Map<number, LogFeed>();
  private readonly timelines = new Map<number, TimelineFeed>();
  private talkFeed: ConversationFeed | null = null;
  private readonly abort = new AbortController();
  private readonly stream = signal<Stream | null>(null);
  private queue: [FrameName, unknown][] = [];
  private reloadTimer: ReturnType<typeof setTimeout> | undefined;
  private known: { generation: number; next: number } | null = null;
  private readonly stopWatching: () => void;

  constructor(readonly id: string) {
    this.streamState = computed(() => this.stream.value?.state.value ?? "connecting");
    this.follow();
    void this.load();
    void this.findConversation();
    let seen = reconnects.peek();
    const stop = reconnects.subscribe((count) => {
      if (count === seen) return;
      seen = count;
      void this.load();
      for (const feed of this.timelines.values()) feed.reload();
    });
    // A closed run has no stream: a return to the window checks whether it is still there.
    const look = () => {
      if (document.visibilityState === "visible") void this.load();
    };
    document.addEventListener("visibilitychange", look);
    this.stopWatching = () => {
      stop();
      document.removeEventListener("visibilitychange", look);
    };
  }

  private follow(): void {
    const names: FrameName[] = [
      "snapshot", "event", "step_started", "step_attempt_failed", "state_changed", "task_started", "task_progress", "emitted", "blocked", "end",
    ];
    const on = Object.fromEntries(names.map((name) => [name, (data: never) => this.receive(name, data)]));
    this.stream.value?.close();
    this.stream.value = openStream<RunFrames>("/v1/runs/{id}/live", {
      path: { id: this.id }, query: { from: "end" }, on, onError: (error) => this.refused(error),
    });
  }

  close(): void {
    this.abort.abort();
    this.stream.value?.close();
    this.stopWatching();
    clearTimeout(this.reloadTimer);
    for (const feed of [...this.logs.values(), ...this.timelines.values()]) feed.close();
    this.talkFeed?.close();
  }

  async load(): Promise<void> {
    try {
      const view = await api.get("/v1/runs/{id}", { path: { id: this.id }, signal: this.abort.signal });
      this.view.value = view;
      this.error.value = null;
      // A retried run is open again, after its stream has ended.
      if (!isClosed(view.status) && this.stream.value?.state.value === "ended") this.follow();
      // It may also have failed again before this answer: then no frame tells of its new generation.
      this.moveTo(view.generation, view.event_count);
    } catch (reason) {
      if (!isAborted(reason)) this.refused(asApiError(reason));
    }
  }

  private refused(error: ApiError): void {
    if (hasCode(error, "run_not_found") && this.view.value !== null) this.isDeleted.value = true;
    else this.error.value = error;
  }

  private async findConversation(): Promise<void> {
    try {
      const page = await api.get("/v1/runs/{id}/entries", { path: { id: this.id }, query: { limit: 1 }, signal: this.abort.signal });
      this.isAgent.value ||= page.leaf !== null || page.pending.length > 0;
    } catch {
      // The page itself shows why the run cannot be read.
    }
  }

  log(generation: number): LogFeed {
    let feed = this.logs.get(generation);
    if (!feed) {
      feed = new LogFeed(this.id, generation, generation === this.generation.value ? this.length.value : null);
      this.logs.set(generation, feed);
    }
    return feed;
  }

  timeline(generation: number): TimelineFeed {
    let feed = this.timelines.get(generation);
    if (!feed) {
      feed = new TimelineFeed(this.id, generation);
      this.timelines.set(generation, feed);
    }
    return feed;
  }

  /** The conversation, loaded when it is first shown. */
  get talk(): ConversationFeed {
    this.talkFeed ??= new ConversationFeed(this.id, this.generation.peek());
    return this.talkFeed;
  }

  /** Holds frames back, or applies those that were held. */
  setPaused(paused: boolean): void {
    this.paused.value = paused;
    this.talkFeed?.hold(paused);
    if (paused) return;
    const queue = this.queue;
    this.queue = [];
    this.held.value = 0;
    batch(() => {
      for (const [name, data] of queue) this.apply(name, data);
    });
  }

  private receive(name: FrameName, data: unknown): void {
    if (this.paused.value) {
      this.queue.push([name, data]);
      this.held.value = this.queue.length;
      return;
    }
    // One frame changes several signals: the page is drawn once for it.
    batch(() => this.apply(name, data));
  }

  private apply(name: FrameName, data: unknown): void {
    switch (name) {
      case "snapshot": this.onSnapshot(data as RunFrames["snapshot"]); break;
      case "event": this.onEvent(data as LoggedEvent); return;
      case "blocked": this.patch(data as RunFrames["blocked"]); break;
      case "state_changed": this.onState(data as RunFrames["state_changed"]); break;
      case "end": {
        const { status, outcome } = data as RunFrames["end"];
        this.patch({ status, outcome, awaiting: [], blocked_on: [], active: [] });
        this.reloadSoon(0);
        break;
      }
    }
    const generation = (data as { generation?: number }).generation ?? this.generation.value;
    this.timelines.get(generation)?.onFrame(name, data as never);
  }

  private patch(change: Partial<RunView>): void {
    if (!this.view.value) return;
    const known = (({ status, doing, blocked_on, awaiting, outcome, active }) => ({ status, doing, blocked_on, awaiting, outcome, active }))(change as RunView);
    const given = Object.fromEntries(Object.entries(known).filter(([, value]) => value !== undefined));
    // The sentence has its own time; the view is loaded again for the exact one.
    this.view.value = { ...this.view.value, ...given };
    this.reloadSoon();
  }

  private onState({ name, value }: RunFrames["state_changed"]): void {
    const view = this.view.value;
    if (!view) return;
    const state = { ...view.state } as Record<string, Payload>;
    if (value === null) delete state[name];
    else state[name] = value;
    this.view.value = { ...view, state };
  }

  private onSnapshot(snapshot: RunFrames["snapshot"]): void {
    const before = this.known;
    this.known = { generation: snapshot.generation, next: snapshot.next_index };
    this.moveTo(snapshot.generation, snapshot.next_index);
    this.patch(snapshot as Partial<RunView>);
    const isBehind = before && (before.generation < snapshot.generation || before.next < snapshot.next_index);
    if (isBehind) void this.fill(before.generation, before.next);
  }

  /** Reads events that came while the stream was not connected. Events are idempotent, so it does not matter if some arrive twice. */
  private async fill(generation: number, from: number): Promise<void> {
    try {
      for await (const events of readEvents(this.id, { generation, from }, this.abort.signal)) {
        for (const event of events) this.receive("event", event);
      }
    } catch {
      // The next connection begins with a snapshot and tries again.
    }
  }

  private moveTo(generation: number, length: number): void {
    if (generation > this.generation.value) {
      this.generation.value = generation;
      this.length.value = length;
    } else if (generation === this.generation.value) this.length.value = Math.max(this.length.value, length);
    this.logs.get(generation)?.grow(length);
  }

  private onEvent(event: LoggedEvent): void {
    if (!this.known || event.generation > this.known.generation) this.known = { generation: event.generation, next: event.index + 1 };
    else if (event.generation === this.known.generation) this.known.next = Math.max(this.known.next, event.index + 1);
    this.moveTo(event.generation, event.index + 1);
    this.logs.get(event.generation)?.add(event);
    this.timelines.get(event.generation)?.onFrame("event", event);
    this.talkFeed?.add(event);
    if (event.event.type === "entry_appended") this.isAgent.value = true;
    this.reloadSoon();
  }

  /** Counts, attributes and spend are not in the frames: the view is loaded once after a burst of events. */
  private reloadSoon(ms = RELOAD_MS): void {
    if (ms > 0 && this.reloadTimer !== undefined) return;
    clearTimeout(this.reloadTimer);
    this.reloadTimer = setTimeout(() => {
      this.reloadTimer = undefined;
      void this.load();
    }, ms);
  }

  get isOpen(): boolean {
    return this.view.value !== null && !isClosed(this.view.value.status);
  }
}
