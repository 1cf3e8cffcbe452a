/** Owns the conversation of an agent: the entries of one branch, live answers, and beside them branches, costs or a prompt. */
import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { can } from "../../api/session";
import { Button } from "../../ui/Button";
import { EmptyState, Loading } from "../../ui/EmptyState";
import { ErrorNote } from "../../ui/ErrorPage";
import { useKeys } from "../../ui/keys";
import { setQuery } from "../../ui/router";
import { isClosed, type RunView } from "../run/model";
import type { RunSession } from "../run/session";
import { BranchPanel } from "./BranchPanel";
import { CompareView } from "./CompareView";
import { Composer, type BranchPoint } from "./Composer";
import { DraftView, WaitingView } from "./DraftView";
import { EntryView } from "./EntryView";
import type { ModelCall } from "./fold";
import { PromptPanel } from "./PromptPanel";
import { EntryTree } from "./tree";

/** Entries that are drawn at first; earlier ones on request. */
const SHOWN = 120;

export function ConversationTab({ session, view, query }: { session: RunSession; view: RunView; query: URLSearchParams }) {
  const feed = session.talk;
  const version = feed.version.value;
  const { conversation } = feed;
  const isOpen = !isClosed(view.status);
  useEffect(() => {
    if (!isOpen) return;
    feed.follow();
    return () => feed.unfollow();
  }, [feed, isOpen]);
  const tree = useMemo(() => new EntryTree(conversation.entries, conversation.leaf), [version, conversation]);
  const shown = useSignal(SHOWN);
  const branching = useSignal<BranchPoint | null>(null);
  const entryId = query.get("entry");
  const leaf = leafOf(tree, query.get("leaf"), entryId);
  const path = tree.path(leaf);
  const isCurrent = leaf === tree.current;
  const call = callOf(conversation.calls, query.get("saw"));
  const other = query.get("with");
  const marks = useMemo(() => new Map(conversation.checkpoints.map((mark) => [mark.leaf, mark])), [version]);
  const list = useRef<HTMLDivElement>(null);
  useFollowEnd(list, isCurrent && entryId === null, [version, feed.draftVersion.value]);
  useScrollToEntry(list, entryId, path.some((entry) => entry.id === entryId));
  useKeys("Conversation", [
    { keys: "Escape", what: "back to the current branch", run: () => setQuery({ saw: null, with: null, entry: null, leaf: null }) },
    { keys: "b", what: "compare with the latest other branch", run: () => {
      const first = tree.branches().find((branch) => branch.leaf !== leaf);
      if (first) setQuery({ with: first.leaf });
    } },
  ]);
  if (feed.error.value && conversation.entries.size === 0) return <div class="tab-scroll"><ErrorNote error={feed.error.value} /><Button onClick={() => feed.retry()}>Try again</Button></div>;
  if (feed.loading.value && conversation.entries.size === 0) return <Loading what="Reading the conversation" />;
  if (!conversation.isAgent && conversation.waiting.length === 0) {
    return <EmptyState title="This run has no conversation">Agents have one: their code appends entries, and models answer them.</EmptyState>;
  }
  if (other !== null && tree.entries.has(other)) {
    return <CompareView left={path} right={tree.path(other)} leftName={nameOf(tree, leaf)} rightName={nameOf(tree, other)} onClose={() => setQuery({ with: null })} />;
  }
  const from = Math.max(0, path.length - shown.value);
  const wantedAt = path.findIndex((entry) => entry.id === entryId);
  const first = wantedAt >= 0 ? Math.min(from, Math.max(0, wantedAt - 10)) : from;
  const visible = path.slice(first);
  return (
    <div class="split talk">
      <div class="split-main">
        {!isCurrent && (
          <p class="note talk-note">
            {path.at(-1)?.isAbandoned ? "An abandoned branch." : "Another branch than the current one."}
            <Button small onClick={() => setQuery({ leaf: null, entry: null })}>Show the current branch</Button>
            {leaf && tree.current && <Button small onClick={() => setQuery({ leaf: tree.current, with: leaf, entry: null })}>Compare</Button>}
          </p>
        )}
        <div class="talk-list" ref={list} role="log" aria-label="Conversation" aria-live="off" tabIndex={0}>
          {(feed.from.value > 0 || first > 0) && (
            <p class="log-more muted">
              {first > 0 ? <>{first} earlier entries <Button small onClick={() => (shown.value += 500)}>Show</Button></> : <>Turns before generation {feed.from.value} are not loaded. <Button small onClick={() => feed.loadEarlier()}>Load earlier</Button></>}
            </p>
          )}
          {visible.map((entry, at) => (
            <EntryView
              key={entry.id} run={view.id} conversation={conversation} version={version} entry={entry} number={first + at + 1}
              siblings={tree.siblingsOf(entry)} checkpoint={marks.get(entry.id) ?? null} isSelected={entry.id === entryId}
              canBranch={isOpen && can("signal")}
              onSibling={(sibling) => setQuery({ leaf: tree.leafBelow(sibling.id), entry: sibling.id })}
              onBranch={(one, replaces) => (branching.value = { from: replaces ? one.parent : one.id, replaces: replaces ? one : null, after: replaces ? null : one })}
              onSaw={(one) => one.call && setQuery({ saw: `${one.call.generation}~${one.call.callId}` })}
            />
          ))}
          {isCurrent && <DraftView feed={feed} />}
          {isCurrent && <WaitingView waiting={conversation.waiting} />}
          {path.length === 0 && !feed.loading.value && <EmptyState title="Nothing was said yet" />}
        </div>
        <Composer session={session} view={view} branching={branching.value} onBranchEnd={() => (branching.value = null)} />
      </div>
      {call ? (
        <PromptPanel conversation={conversation} tree={tree} call={call} run={view.id} onClose={() => setQuery({ saw: null })} />
      ) : (
        <BranchPanel view={view} conversation={conversation} tree={tree} leaf={leaf} />
      )}
    </div>
  );
}

/** The branch to show: that of the address, one that has the linked entry, or the current one. */
function leafOf(tree: EntryTree, leaf: string | null, entry: string | null): string | null {
  if (leaf !== null && tree.entries.has(leaf)) return leaf;
  if (entry !== null && tree.entries.has(entry)) return tree.leafBelow(entry);
  return tree.current;
}

function callOf(calls: readonly ModelCall[], saw: string | null): ModelCall | null {
  const match = /^(\d+)~(.+)$/.exec(saw ?? "");
  return (match && calls.find((call) => call.generation === Number(match[1]) && call.callId === match[2])) || null;
}

function nameOf(tree: EntryTree, leaf: string | null): string {
  return leaf === tree.current ? "Current branch" : tree.entries.get(leaf ?? "")?.isAbandoned ? "Abandoned branch" : "Other branch";
}

/** Stays at the end while something is written there, unless the reader has scrolled up. */
function useFollowEnd(list: { current: HTMLElement | null }, isOn: boolean, deps: unknown[]): void {
  const atEnd = useRef(true);
  useEffect(() => {
    const element = list.current;
    if (!element) return;
    const scroll = () => (atEnd.current = element.scrollHeight - element.scrollTop - element.clientHeight < 40);
    element.addEventListener("scroll", scroll, { passive: true });
    return () => element.removeEventListener("scroll", scroll);
  }, [list.current]);
  useEffect(() => {
    const element = list.current;
    if (isOn && atEnd.current && element) element.scrollTop = element.scrollHeight;
  }, [isOn, ...deps]);
}

function useScrollToEntry(list: { current: HTMLElement | null }, entry: string | null, isThere: boolean): void {
  useEffect(() => {
    if (entry === null || !isThere) return;
    list.current?.querySelector(`#entry-${CSS.escape(entry)}`)?.scrollIntoView({ block: "center" });
  }, [entry, isThere]);
}
