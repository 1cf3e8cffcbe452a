/** Owns the timeline: calls as rows with bars, children inline, zoom, and the selected call beside it. */
import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { Button } from "../../ui/Button";
import { EmptyState, Loading } from "../../ui/EmptyState";
import { ErrorNote } from "../../ui/ErrorPage";
import { countText } from "../../ui/format";
import { useEvery } from "../../ui/hooks";
import { useKeys } from "../../ui/keys";
import { isPhone } from "../../ui/media";
import { setQuery } from "../../ui/router";
import { VirtualList, type VirtualListHandle } from "../../ui/VirtualList";
import { CallDetails } from "./CallDetails";
import { TimelineFeed } from "./feeds";
import { generationOf, GenerationSelect } from "./GenerationSelect";
import { isClosed, type TimelineCall } from "./model";
import type { RunSession } from "./session";
import { Axis, TimelineRow } from "./TimelineRow";
import { clampView, fitView, panView, type View, zoomView } from "./waterfall";

/** Streams of opened children: a browser has six connections to a server over HTTP/1. */
const LIVE_CHILDREN = 2;
/** Only the latest calls can end after the clock of this browser. */
const RECENT = 200;

export interface Row {
  feed: TimelineFeed;
  call: TimelineCall;
  depth: number;
  key: string;
}

export function keyOf(feed: TimelineFeed, call: TimelineCall): string {
  return `${feed.run} ${call.first_index ?? "live"} ${call.call_id}`;
}

function flatten(feed: TimelineFeed, children: Map<string, TimelineFeed>, depth: number, out: Row[]): Row[] {
  void feed.version.value;
  for (const call of feed.timeline.calls) {
    out.push({ feed, call, depth, key: keyOf(feed, call) });
    const child = call.child === null ? undefined : children.get(call.child);
    if (child && depth < 8) flatten(child, children, depth + 1, out);
  }
  return out;
}

export function TimelineTab({ session, query }: { session: RunSession; query: URLSearchParams }) {
  const latest = session.generation.value;
  const generation = generationOf(query, latest);
  const feed = session.timeline(generation);
  const clock = useSignal(Date.now());
  const window_ = useSignal<View | null>(null);
  const children = useSignal(new Map<string, TimelineFeed>());
  const nested = useSignal<string | null>(null);
  const list = useRef<VirtualListHandle>(null);
  useEffect(() => () => children.peek().forEach((child) => child.close()), []);
  useEffect(() => {
    window_.value = null;
  }, [generation]);
  const rows = flatten(feed, children.value, 0, []);
  const hasOpen = rows.some((row) => row.call.ended_at === null);
  useEvery(200, () => {
    if (hasOpen && !session.paused.value && window_.value === null) clock.value = Date.now();
  });
  const status = session.view.value?.status;
  const isOver = status !== undefined && (isClosed(status) || generation < latest);
  const startedAt = feed.startedAt.value ?? session.view.value?.created_at ?? new Date().toISOString();
  const endedAt = isOver ? (feed.endedAt.value ?? (generation === latest ? session.view.value?.ended_at ?? null : null)) : null;
  const bounds = fitView(startedAt, endedAt ?? (isOver ? lastEnd(rows) : null), clock.value, rows.slice(-RECENT).filter((row) => row.depth === 0).map((row) => row.call));
  const view = window_.value ? clampView(window_.value, bounds) : bounds;
  const wanted = query.get("call");
  const selected = useMemo(() => {
    const own = rows.filter((row) => row.depth === 0);
    return rows.find((row) => row.key === nested.value)
      ?? own.find((row) => row.call.call_id === wanted && !row.call.abandoned) ?? own.find((row) => row.call.call_id === wanted) ?? null;
  }, [rows, wanted, nested.value]);
  const select = (row: Row | null) => {
    nested.value = row && row.depth > 0 ? row.key : null;
    if (!row || row.depth === 0) setQuery({ call: row?.call.call_id ?? null });
    if (row) list.current?.scrollTo(rows.findIndex((one) => one.key === row.key));
  };
  const step = (by: number) => {
    const at = selected ? rows.findIndex((row) => row.key === selected.key) : -1;
    select(rows[Math.min(rows.length - 1, Math.max(0, at + by))] ?? null);
  };
  const zoom = (factor: number, at = 0.5) => (window_.value = zoomView(view, factor, at, bounds));
  const pan = (part: number) => (window_.value = panView(view, (view.to - view.from) * part, bounds));
  useKeys("Timeline", [
    { keys: "j", what: "next call", run: () => step(1) }, { keys: "k", what: "previous call", run: () => step(-1) },
    { keys: "+", what: "zoom in", run: () => zoom(0.6) }, { keys: "-", what: "zoom out", run: () => zoom(1 / 0.6) },
    { keys: "0", what: "show everything", run: () => (window_.value = null) },
    { keys: "h", what: "earlier", run: () => pan(-0.3) }, { keys: "l", what: "later", run: () => pan(0.3) },
    { keys: "Escape", what: "close the details", run: () => select(null) },
  ]);
  const toggle = (child: string) => {
    const next = new Map(children.value);
    const known = next.get(child);
    if (known) {
      known.close();
      next.delete(child);
    } else next.set(child, new TimelineFeed(child, null, !isOver && next.size < LIVE_CHILDREN));
    children.value = next;
  };
  const box = useRef<HTMLDivElement>(null);
  useWheelAndDrag(box, { zoom, pan });
  const scrolledTo = useRef<string | null>(null);
  useEffect(() => {
    // A link to a call scrolls to it once.
    if (!selected || scrolledTo.current === selected.key) return;
    scrolledTo.current = selected.key;
    list.current?.scrollTo(rows.findIndex((row) => row.key === selected.key), "nearest");
  }, [selected?.key, rows.length > 0]);
  return (
    <div class={selected ? "split" : "split split-one"}>
      <div class="split-main">
        <div class="tab-tools">
          <GenerationSelect generation={generation} latest={latest} />
          <span class="muted tabular">{countText(feed.timeline.calls.length, "call")}{feed.next.value && " so far"}</span>
          <Legend />
          <div class="tab-tools-end">
            <Button small icon="minus" label="Zoom out" onClick={() => zoom(1 / 0.6)} />
            <Button small icon="plus" label="Zoom in" onClick={() => zoom(0.6)} />
            <Button small disabled={window_.value === null} onClick={() => (window_.value = null)}>Fit</Button>
          </div>
        </div>
        {feed.error.value && <ErrorNote error={feed.error.value} />}
        <div class="tl" ref={box}>
          {rows.length === 0 ? (
            feed.loading.value ? <Loading what="Loading the timeline" /> : <EmptyState title="No calls yet">Steps, tasks, timers, signals and children appear here as the code makes them.</EmptyState>
          ) : (
            <VirtualList
              count={rows.length} rowHeight={isPhone.value ? 46 : 30} label="Calls of the run" handle={list} class="tl-list"
              header={<Axis view={view} origin={Date.parse(startedAt)} count={isPhone.value ? 3 : 8} />}
              rowKey={(index) => rows[index]?.key ?? index}
              onEndReached={() => feed.loadMore()}
              row={(index) => {
                const row = rows[index];
                return row && (
                  <TimelineRow row={row} view={view} now={clock.value} isSelected={row.key === selected?.key} isOpen={row.call.child !== null && children.value.has(row.call.child)}
                    onSelect={() => select(row.key === selected?.key ? null : row)} onToggle={() => row.call.child !== null && toggle(row.call.child)} />
                );
              }}
            />
          )}
        </div>
      </div>
      {selected && <CallDetails run={selected.feed.run} generation={selected.feed.generation ?? generation} call={selected.call} progress={selected.feed.timeline.progress.get(selected.call.call_id) ?? null} now={clock.value} onClose={() => select(null)} />}
    </div>
  );
}

function lastEnd(rows: Row[]): string | null {
  return rows.reduce<string | null>((last, { call }) => (call.ended_at !== null && (last === null || call.ended_at > last) ? call.ended_at : last), null);
}

function Legend() {
  return (
    <ul class="tl-legend" aria-label="Colours">
      <li><i class="key tl-queue" />in the queue</li>
      <li><i class="key tl-run" />runs</li>
      <li><i class="key tl-run tl-failed" />failed</li>
      <li><i class="key tl-gap" />until the next attempt</li>
      <li><i class="key tl-wait" />waits</li>
    </ul>
  );
}

function useWheelAndDrag(box: { current: HTMLElement | null }, on: { zoom: (factor: number, at: number) => void; pan: (part: number) => void }): void {
  const latest = useRef(on);
  latest.current = on;
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const wheel = (event: WheelEvent) => {
      const area = element.querySelector(".tl-axis-bars")?.getBoundingClientRect();
      if (!area || !(event.ctrlKey || event.metaKey || event.shiftKey)) return;
      event.preventDefault();
      if (event.shiftKey) latest.current.pan(Math.sign(event.deltaY || event.deltaX) * 0.1);
      else latest.current.zoom(event.deltaY > 0 ? 1.25 : 0.8, Math.min(1, Math.max(0, (event.clientX - area.left) / area.width)));
    };
    let from: number | null = null;
    const down = (event: PointerEvent) => {
      if (event.button === 0 && (event.target as Element).closest(".tl-bars, .tl-axis-bars")) from = event.clientX;
    };
    const move = (event: PointerEvent) => {
      const area = element.querySelector(".tl-axis-bars")?.getBoundingClientRect();
      if (from === null || !area || Math.abs(event.clientX - from) < 3) return;
      latest.current.pan((from - event.clientX) / area.width);
      from = event.clientX;
    };
    const up = () => (from = null);
    element.addEventListener("wheel", wheel, { passive: false });
    element.addEventListener("pointerdown", down);
    window.addEventListener("pointermove", move);
    window.addEventListener("pointerup", up);
    return () => {
      element.removeEventListener("wheel", wheel);
      element.removeEventListener("pointerdown", down);
      window.removeEventListener("pointermove", move);
      window.removeEventListener("pointerup", up);
    };
  }, []);
}
