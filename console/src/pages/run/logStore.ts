/**
 * Owns the events of one generation that are loaded: pages by index, so a log of any length opens at any place.
 * The compact log needs neighbours, so it works on the loaded stretch around an event.
 */
import type { LoggedEvent } from "./model";
import { callOf, lineOf } from "./summary";

export const PAGE = 200;

export class LogStore {
  private readonly events = new Map<number, LoggedEvent>();
  private readonly requested = new Set<number>();
  /** The number of events in the log, as far as it is known. */
  length = 0;

  constructor(readonly generation: number) {}

  get(index: number): LoggedEvent | undefined {
    return this.events.get(index);
  }

  /** Adds events, from a page or the live feed. Returns whether one is new. */
  add(events: readonly LoggedEvent[]): boolean {
    let isNew = false;
    for (const event of events) {
      if (event.generation !== this.generation) continue;
      if (!this.events.has(event.index)) isNew = true;
      this.events.set(event.index, event);
      this.length = Math.max(this.length, event.index + 1);
    }
    return isNew;
  }

  /** Returns the pages that have to be loaded for these rows, each only once. */
  missing(from: number, to: number): number[] {
    const pages: number[] = [];
    for (let index = Math.max(0, from); index < Math.min(to, this.length); index++) {
      if (this.events.has(index)) continue;
      const page = Math.floor(index / PAGE);
      if (!this.requested.has(page)) {
        this.requested.add(page);
        pages.push(page);
      }
      index = (page + 1) * PAGE - 1;
    }
    return pages;
  }

  /** A page that could not be loaded may be requested again. */
  failed(page: number): void {
    this.requested.delete(page);
  }

  /** Returns the bounds of the loaded stretch around an index. */
  stretch(around: number): { from: number; to: number } {
    if (!this.events.has(around)) return { from: around, to: around };
    let from = around;
    let to = around + 1;
    while (this.events.has(from - 1)) from--;
    while (this.events.has(to)) to++;
    return { from, to };
  }
}

export interface CompactRow {
  /** The last event of the row: its result, or the latest that happened. */
  event: LoggedEvent;
  /** The event that began the call, if it is in the stretch. */
  begin: LoggedEvent | null;
  /** All events of the row, in order. */
  indexes: number[];
}

/** Joins the events of each call to one row and leaves bookkeeping out. Signals that arrive are rows of their own. */
export function compactRows(events: readonly LoggedEvent[]): CompactRow[] {
  const rows: CompactRow[] = [];
  const open = new Map<string, CompactRow>();
  for (const event of events) {
    if (event.event.type === "segment_abandoned") open.clear();
    const id = callOf(event.event);
    const row = id === null ? undefined : open.get(id);
    const { isBookkeeping } = lineOf(event.event);
    if (row) {
      row.indexes.push(event.index);
      if (!isBookkeeping) row.event = event;
      continue;
    }
    if (isBookkeeping && event.event.type !== "signal_awaited") continue;
    const created: CompactRow = { event, begin: id === null ? null : event, indexes: [event.index] };
    if (id !== null) open.set(id, created);
    rows.push(created);
  }
  return rows;
}
