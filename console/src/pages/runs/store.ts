/**
 * Owns the listed runs: pages from the API, changes from the live feed.
 * Frames are applied once per picture, so a burst of starts does not freeze the page.
 */
import { batch, signal } from "@preact/signals";
import { type Query, api } from "../../api/client";
import { type ApiError, asApiError, isAborted } from "../../api/errors";
import type { FeedFrames, Run } from "../../api/model";

/** The first page is short, so that it is there soon. */
const FIRST_PAGE = 100;
const PAGE = 500;
const RELOADED_MAX = 5000;

export class RunStore {
  readonly runs = signal<readonly Run[]>([]);
  /** New runs that are held back while the list is scrolled or paused. */
  readonly held = signal(0);
  readonly loading = signal(true);
  readonly error = signal<ApiError | null>(null);
  readonly missing = signal<readonly string[]>([]);
  readonly complete = signal(false);
  /** Counts the changes of the feed, for what depends on them. */
  readonly changes = signal(0);
  /** New runs are held back while this is true. */
  holds = false;
  /** The whole feed is held back while this is true. */
  paused = false;

  private cursor: string | null = null;
  private abort = new AbortController();
  private pending = new Map<string, FeedFrames["run"]>();
  private listing = false;
  private heldRuns = new Map<string, Run>();
  private frame = 0;

  constructor(
    private readonly query: () => Query,
    private readonly accepts: (run: Run) => boolean,
  ) {}

  /** Lists from the beginning. Listed runs stay until the answer is there. */
  async reload(): Promise<void> {
    this.abort.abort();
    this.abort = new AbortController();
    this.pending.clear();
    // Frames that arrive meanwhile may be newer than the answer, so they are applied to it.
    this.listing = true;
    await this.load(null);
  }

  /** Loads the next page, if there is one and none is being loaded. */
  async more(): Promise<void> {
    if (this.loading.value || this.cursor === null || this.error.value) return;
    await this.load(this.cursor);
  }

  close(): void {
    this.abort.abort();
    cancelAnimationFrame(this.frame);
  }

  private async load(from: string | null): Promise<void> {
    const { signal: aborted } = this.abort;
    this.loading.value = true;
    try {
      const before = from === null ? [] : this.runs.value;
      // A list that is loaded again stays as long as it was, so that the reader keeps the place.
      const wanted = from === null ? Math.min(this.runs.value.length, RELOADED_MAX) : 0;
      const known = new Set(before.map((run) => run.id));
      const runs = [...before];
      let cursor = from;
      do {
        const page = await api.get("/v1/runs", { query: { ...this.query(), limit: cursor === null && wanted === 0 ? FIRST_PAGE : PAGE, cursor }, signal: aborted });
        if (aborted.aborted) return;
        for (const run of page.runs) {
          if (!known.has(run.id)) runs.push(run);
          known.add(run.id);
        }
        cursor = page.next ?? null;
        this.missing.value = page.missing_databases ?? [];
      } while (cursor !== null && runs.length < wanted);
      this.show(runs, cursor, from === null);
    } catch (error) {
      if (aborted.aborted || isAborted(error)) return;
      this.error.value = asApiError(error);
      this.loading.value = false;
      this.listing = false;
      this.schedule();
    }
  }

  private show(runs: readonly Run[], cursor: string | null, isNew: boolean): void {
    batch(() => {
      this.runs.value = runs;
      this.cursor = cursor;
      this.complete.value = cursor === null;
      this.error.value = null;
      this.loading.value = false;
      if (!isNew) return;
      this.dropHeld();
      this.listing = false;
      this.schedule();
    });
  }

  /** Takes a frame of the feed. */
  push(frame: FeedFrames["run"]): void {
    this.pending.set(frame.run.id, frame);
    this.schedule();
  }

  private schedule(): void {
    if (this.frame === 0) this.frame = requestAnimationFrame(() => this.apply());
  }

  /** Shows the runs that were held back. */
  release(): void {
    this.holds = false;
    this.paused = false;
    const held = [...this.heldRuns.values()];
    this.dropHeld();
    this.runs.value = merge(this.runs.value, new Map(), held, new Set());
    this.apply();
  }

  private dropHeld(): void {
    this.heldRuns.clear();
    this.held.value = 0;
  }

  private apply(): void {
    this.frame = 0;
    if (this.paused || this.listing || this.pending.size === 0) return;
    const latest = this.pending;
    this.pending = new Map();
    const listed = new Map(this.runs.value.map((run) => [run.id, run] as const));
    const changed = new Map<string, Run>();
    const added: Run[] = [];
    const removed = new Set<string>();
    for (const [id, { change, run }] of latest) {
      const wanted = change !== "deleted" && this.accepts(run);
      const known = listed.get(id);
      if (known) {
        if (change !== "deleted" && known.updated_at > run.updated_at) continue;
        if (wanted) changed.set(id, run);
        else removed.add(id);
      } else if (!wanted) this.heldRuns.delete(id);
      else if (this.isInLoadedPart(run)) {
        if (this.holds) this.heldRuns.set(id, run);
        else added.push(run);
      }
    }
    batch(() => {
      if (changed.size > 0 || added.length > 0 || removed.size > 0) this.runs.value = merge(this.runs.value, changed, added, removed);
      this.held.value = this.heldRuns.size;
      this.changes.value++;
    });
  }

  // Older runs than the last listed one come with their page.
  private isInLoadedPart(run: Run): boolean {
    const last = this.runs.value.at(-1);
    return this.complete.value || last === undefined || isBefore(run, last);
  }
}

// The order of the API: newest first.
function isBefore(a: Run, b: Run): boolean {
  return a.created_at > b.created_at || (a.created_at === b.created_at && a.id > b.id);
}

function merge(runs: readonly Run[], changed: Map<string, Run>, added: Run[], removed: Set<string>): Run[] {
  const result: Run[] = [];
  const news = added.sort((a, b) => (isBefore(a, b) ? -1 : 1));
  let next = 0;
  for (const run of runs) {
    while (next < news.length && isBefore(news[next] as Run, run)) result.push(news[next++] as Run);
    if (!removed.has(run.id)) result.push(changed.get(run.id) ?? run);
  }
  result.push(...news.slice(next));
  return result;
}
