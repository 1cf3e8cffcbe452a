/** Owns the log: every event by index in the full view, one row per call in the compact one, with the selected event beside it. */
import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { recall, remember } from "../../ui/storage";
import { Button } from "../../ui/Button";
import { EmptyState } from "../../ui/EmptyState";
import { ErrorNote } from "../../ui/ErrorPage";
import { Input } from "../../ui/Field";
import { countText } from "../../ui/format";
import { useKeys } from "../../ui/keys";
import { isPhone } from "../../ui/media";
import { setQuery } from "../../ui/router";
import { VirtualList, type VirtualListHandle } from "../../ui/VirtualList";
import { EventDetails } from "./EventDetails";
import { EventRow } from "./EventRow";
import type { LogFeed } from "./feeds";
import { generationOf, GenerationSelect } from "./GenerationSelect";
import { type CompactRow, compactRows } from "./logStore";
import { eventRef, type LoggedEvent, readEventRef } from "./model";
import type { RunSession } from "./session";
import { searchText } from "./summary";

/** A log up to this length is loaded whole for the compact view. */
const WHOLE = 2000;
const SETTLE_MS = 2000;

export function LogTab({ session, query }: { session: RunSession; query: URLSearchParams }) {
  const latest = session.generation.value;
  const generation = generationOf(query, latest);
  const feed = session.log(generation);
  void feed.version.value;
  const linked = readEventRef(query.get("event"));
  const selected = linked?.generation === generation ? linked.index : null;
  const mode = useSignal<"compact" | "full">(recall("log") === "full" ? "full" : "compact");
  const search = useSignal("");
  const follow = useSignal(selected === null && session.isOpen);
  const anchor = useSignal(selected ?? Math.max(0, feed.store.length - 1));
  const list = useRef<VirtualListHandle>(null);
  useEffect(() => {
    anchor.value = selected ?? Math.max(0, feed.store.length - 1);
    if (feed.store.length <= WHOLE) anchor.value = selected ?? 0;
    feed.want(...around(anchor.value, feed));
  }, [generation]);
  useEffect(() => {
    if (selected === null) return;
    const { from, to } = feed.store.stretch(anchor.value);
    if (selected < from || selected >= to) anchor.value = selected;
    feed.want(...around(selected, feed));
  }, [selected, generation]);
  const isWhole = mode.value === "full" && search.value.trim() === "";
  const rows = useMemo(() => (isWhole ? null : stretchRows(feed, anchor.value, mode.value, search.value)), [isWhole, feed, feed.version.value, anchor.value, mode.value, search.value]);
  const count = rows ? rows.length : feed.store.length;
  const indexAt = (row: number) => (rows ? (rows[row]?.event.index ?? 0) : row);
  const rowOf = (index: number) => (rows ? rows.findIndex((row) => row.indexes.includes(index)) : index);
  const select = (index: number | null) => setQuery({ event: index === null ? null : eventRef(generation, index), generation: null });
  const step = (by: number) => {
    const at = selected === null ? (by > 0 ? -1 : count) : rowOf(selected);
    const to = Math.min(count - 1, Math.max(0, at + by));
    if (count === 0) return;
    select(indexAt(to));
    list.current?.scrollTo(to);
  };
  useKeys("Log", [
    { keys: "j", what: "next event", run: () => step(1) }, { keys: "k", what: "previous event", run: () => step(-1) },
    { keys: "c", what: "compact or full", run: () => choose(mode.value === "full" ? "compact" : "full") },
    { keys: "Escape", what: "close the details", run: () => select(null) },
  ]);
  const choose = (next: "compact" | "full") => {
    mode.value = next;
    remember("log", next);
  };
  const shownLink = useRef({ link: "", row: -1, at: 0 });
  useEffect(() => {
    // A deep link scrolls as soon as its event is there, and again if earlier events arrive right after it.
    if (selected === null || !feed.store.get(selected)) return;
    const link = `${generation}:${selected}:${mode.value}`;
    const shown = shownLink.current;
    const row = rowOf(selected);
    const isNew = shown.link !== link;
    if (row < 0 || (!isNew && (shown.row === row || Date.now() - shown.at > SETTLE_MS))) return;
    shownLink.current = { link, row, at: isNew ? Date.now() : shown.at };
    list.current?.scrollTo(row, "center");
  });
  const event = selected === null ? null : (feed.store.get(selected) ?? null);
  const stretch = rows ? feed.store.stretch(anchor.value) : null;
  return (
    <div class={selected === null ? "split split-one" : "split"}>
      <div class="split-main">
        <div class="tab-tools">
          <GenerationSelect generation={generation} latest={latest} />
          <div class="segmented" role="group" aria-label="How much is shown">
            <Button small pressed={mode.value === "compact"} onClick={() => choose("compact")}>Compact</Button>
            <Button small pressed={mode.value === "full"} onClick={() => choose("full")}>Full</Button>
          </div>
          <Input label="Search the loaded events" quiet type="search" placeholder="Search" value={search.value} onInput={(value) => (search.value = value)} />
          <Jump length={feed.store.length} onJump={(index) => select(index)} />
          <span class="muted tabular">{countText(feed.store.length, "event")}</span>
          {session.isOpen && generation === latest && (
            <div class="tab-tools-end"><Button small pressed={follow.value} onClick={() => (follow.value = !follow.value)}>Follow</Button></div>
          )}
        </div>
        {feed.error.value && <ErrorNote error={feed.error.value} />}
        {stretch && stretch.from > 0 && <More text={`Events 0 to ${stretch.from - 1} are not loaded.`} verb="Load earlier" onClick={() => feed.extend(stretch.from - 1000, stretch.from)} />}
        {count === 0 && search.value.trim() !== "" ? <EmptyState title="No loaded event matches" /> : (
          <VirtualList
            count={count} rowHeight={isPhone.value ? 50 : 28} label="Events" role="list" class="log-list" handle={list}
            header={isPhone.value ? undefined : <LogHead />}
            stickToEnd={follow.value && selected === null}
            rowKey={(row) => indexAt(row)}
            onEndReached={() => stretch && stretch.to < feed.store.length && feed.extend(stretch.to, stretch.to + 600)}
            row={(at) => {
              const row = rows?.[at];
              if (!rows) feed.want(at, at + 1);
              const shown = row?.event ?? feed.store.get(at);
              return <EventRow run={session.id} index={row?.event.index ?? at} event={shown} row={row ?? null} isSelected={selected !== null && (row ? row.indexes.includes(selected) : at === selected)} onSelect={() => select(indexAt(at))} />;
            }}
          />
        )}
      </div>
      {selected !== null && <EventDetails session={session} event={event} index={selected} generation={generation} onClose={() => select(null)} />}
    </div>
  );
}

function around(index: number, feed: LogFeed): [number, number] {
  return feed.store.length <= WHOLE ? [0, feed.store.length] : [index - 300, index + 300];
}

function stretchRows(feed: LogFeed, anchor: number, mode: "compact" | "full", search: string): CompactRow[] {
  const { from, to } = feed.store.stretch(anchor);
  const events: LoggedEvent[] = [];
  for (let index = from; index < to; index++) {
    const event = feed.store.get(index);
    if (event) events.push(event);
  }
  const wanted = search.trim().toLowerCase();
  const found = wanted === "" ? events : events.filter((event) => searchText(event).includes(wanted));
  if (mode === "full") return found.map((event) => ({ event, begin: null, indexes: [event.index] }));
  return compactRows(found);
}

function LogHead() {
  return (
    <div class="log-row log-head">
      <span class="log-index">Event</span><span>Time</span><span>What happened</span><span>Content</span><span>Call</span>
    </div>
  );
}

function More({ text, verb, onClick }: { text: string; verb: string; onClick: () => void }) {
  return <p class="log-more muted">{text} <Button small onClick={onClick}>{verb}</Button></p>;
}

function Jump({ length, onJump }: { length: number; onJump: (index: number) => void }) {
  const text = useSignal("");
  return (
    <form class="jump" onSubmit={(event) => {
      event.preventDefault();
      const index = Number(text.value);
      if (text.value.trim() !== "" && Number.isInteger(index) && index >= 0) onJump(Math.min(length - 1, index));
    }}>
      <Input label="Go to an event" quiet placeholder="Event" type="number" min={0} max={length - 1} value={text.value} onInput={(value) => (text.value = value)} />
    </form>
  );
}
