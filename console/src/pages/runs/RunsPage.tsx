/** Owns the list of runs: filter, counts, chart, live rows, selection and keys. */
import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { api } from "../../api/client";
import { reconnects } from "../../api/connection";
import { Offline } from "../../api/errors";
import { feedState, followFeed } from "../../api/feed";
import { namespace } from "../../api/identity";
import { can } from "../../api/session";
import { Button } from "../../ui/Button";
import { ErrorNote, ErrorPage } from "../../ui/ErrorPage";
import { LiveState } from "../../ui/Live";
import { VirtualList, type VirtualListHandle } from "../../ui/VirtualList";
import { countText } from "../../ui/format";
import { useLoad, useTitle } from "../../ui/hooks";
import { useKeys } from "../../ui/keys";
import { isPhone } from "../../ui/media";
import { href, navigate, setQuery } from "../../ui/router";
import type { PageProps } from "../registry";
import { type BulkVerb, FilteredDialog, SelectedDialog } from "./Bulk";
import { Filters } from "./Filters";
import { BulkButtons, NoRuns, Overview, SelectionBar, listedText } from "./parts";
import { RunHeader, RunRow } from "./RunRow";
import { StartDialog } from "./StartDialog";
import { apiQuery, isEmpty, matches, readFilter } from "./filter";
import { shownRuns, useExactRun, useOverview, useSelection } from "./overview";
import { RunStore } from "./store";

// More than the rows that are in the document at a time.
const SLOTS = 96;

export function RunsPage({ route }: PageProps) {
  useTitle(() => "Runs");
  const filter = readFilter(route.query);
  // The text is applied by the console and needs no new list.
  const listKey = JSON.stringify({ ...filter, text: "" });
  const store = useMemo(() => new RunStore(() => apiQuery(filter, Date.now(), true), (run) => matches(filter, run, Date.now())), [listKey]);
  useEffect(() => {
    void store.reload();
    return () => store.close();
  }, [store, reconnects.value, namespace.value]);
  useEffect(() => followFeed({ run: (frame) => store.push(frame), reset: () => void store.reload() }), [store]);
  const kinds = useLoad((signal) => api.get("/v1/kinds", { signal }), []);
  const { counts, activity } = useOverview(filter, listKey, store);
  const exact = useExactRun(filter.text);

  const listed = store.runs.value;
  const rows = useMemo(() => shownRuns(listed, filter.text, exact.value), [listed, filter.text, exact.value]);
  useEffect(() => {
    // A text may have its first matches on later pages.
    if (filter.text !== "" && rows.length < 50) void store.more();
  }, [filter.text, rows.length, store.loading.value]);

  useEffect(() => {
    if (!store.loading.value && performance.getEntriesByName("onward-usable").length === 0) performance.mark("onward-usable");
  }, [store.loading.value]);

  const selection = useSelection(rows, listKey);
  const active = useSignal(-1);
  const list = useRef<VirtualListHandle>(null);
  const paused = useSignal(false);
  const dialog = useSignal<{ verb: BulkVerb; all: boolean } | null>(null);
  const operate = can("operate");
  const starting = route.query.get("start");

  const move = (to: number) => {
    const index = Math.max(0, Math.min(rows.length - 1, to));
    active.value = index;
    list.current?.scrollTo(index);
    requestAnimationFrame(() => document.querySelector<HTMLElement>(`[data-run="${index}"]`)?.focus({ preventScroll: true }));
  };
  const keepFocus = () =>
    requestAnimationFrame(() => {
      // The focused row was scrolled away and its link shows another run now.
      const focused = document.activeElement;
      if (focused instanceof HTMLElement && focused.dataset.run !== undefined && focused.dataset.run !== String(active.value)) list.current?.element?.focus({ preventScroll: true });
    });
  const current = () => rows[active.value];
  useKeys("Runs", [
    { keys: "j", what: "next run", run: () => move(active.value + 1) },
    { keys: "k", what: "previous run", run: () => move(active.value - 1) },
    { keys: "ArrowDown", what: "next run", hidden: true, run: () => move(active.value + 1) },
    { keys: "ArrowUp", what: "previous run", hidden: true, run: () => move(active.value - 1) },
    { keys: "g g", what: "first run", run: () => move(0) },
    { keys: "Enter", what: "open the run", run: () => current() && navigate(href(["runs", current()?.id ?? ""])) },
    { keys: "x", what: "select the run", run: () => operate && active.value >= 0 && selection.toggle(active.value, false) },
    { keys: "/", what: "search", run: () => document.querySelector<HTMLElement>("[data-search] input")?.focus() },
    { keys: "n", what: "start a run", run: () => can("start") && setQuery({ start: filter.kind || "1" }) },
    { keys: "p", what: "pause or continue live updates", run: () => togglePause() },
    { keys: "Escape", what: "clear the selection", run: () => selection.clear() },
  ]);
  const togglePause = () => {
    paused.value = !paused.value;
    store.paused = paused.value;
    if (!paused.value) store.release();
  };

  return (
    <div class="page page-full runs-page">
      <div class="page-head">
        <h1>Runs</h1>
        <LiveState state={feedState.value} paused={paused.value} />
        <div class="page-actions">
          <Button icon={paused.value ? "play" : "pause"} pressed={paused.value} label={paused.value ? "Continue live updates" : "Pause live updates"} onClick={togglePause} />
          {can("start") && (
            <Button kind="primary" icon="plus" onClick={() => setQuery({ start: filter.kind || "1" })}>
              Start a run
            </Button>
          )}
        </div>
      </div>
      <Filters filter={filter} kinds={[...new Set(kinds.data.value?.kinds.map((kind) => kind.kind) ?? [])]} />
      <Overview counts={counts.value} activity={activity.value} filter={filter} />
      {store.missing.value.length > 0 && <p class="note note-warning">Runs of these databases are missing, because they are down: {store.missing.value.join(", ")}</p>}
      <div class="run-bar">
        {selection.ids.value.size > 0 ? (
          <SelectionBar count={selection.ids.value.size} onVerb={(verb) => (dialog.value = { verb, all: false })} onClear={selection.clear} />
        ) : (
          <>
            <span class="muted">{listedText(rows.length, store.complete.value, filter.text !== "")}</span>
            {operate && rows.length > 0 && filter.text === "" && <BulkButtons counts={counts.value} statuses={filter.statuses} onVerb={(verb) => (dialog.value = { verb, all: true })} />}
          </>
        )}
      </div>
      {store.error.value && store.runs.value.length > 0 && !(store.error.value instanceof Offline) && <ErrorNote error={store.error.value} />}
      {store.held.value > 0 && (
        <Button class="new-runs" small kind="primary" onClick={() => { store.release(); list.current?.scrollTo(0, "start"); }}>
          {countText(store.held.value, "new run")}
        </Button>
      )}
      {store.error.value && store.runs.value.length === 0 ? (
        <ErrorPage error={store.error.value} retry={() => void store.reload()} />
      ) : rows.length === 0 ? (
        <NoRuns loading={store.loading.value} filtered={!isEmpty(filter) || filter.text !== ""} />
      ) : (
        <VirtualList
          handle={list}
          role="table"
          label="Runs"
          class="run-list"
          count={rows.length}
          rowHeight={isPhone.value ? 60 : 32}
          // A row that leaves gives its elements to one that enters, which is much cheaper than new ones.
          rowKey={(index) => index % SLOTS}
          header={isPhone.value ? undefined : <RunHeader canSelect={operate} />}
          onEndReached={() => void store.more()}
          onScrolled={(top) => {
            // Rows must not move under the reader; at the top, new runs appear at once.
            keepFocus();
            const holds = top > 40;
            if (store.holds && !holds) store.release();
            store.holds = holds;
          }}
          row={(index) => {
            const run = rows[index];
            return run && <RunRow run={run} index={index} active={index === active.value} selected={selection.ids.value.has(run.id)} canSelect={operate} onSelect={selection.toggle} onFocus={(at) => (active.value = at)} />;
          }}
        />
      )}
      {starting !== null && (kinds.data.value || kinds.error.value) && <StartDialog kind={starting === "1" ? "" : starting} kinds={kinds.data.value?.kinds ?? []} onClose={() => setQuery({ start: null })} />}
      {dialog.value && !dialog.value.all && <SelectedDialog verb={dialog.value.verb} runs={rows.filter((run) => selection.ids.value.has(run.id))} onDone={selection.clear} onClose={() => (dialog.value = null)} />}
      {dialog.value?.all && <FilteredDialog verb={dialog.value.verb} filter={filter} runs={store.runs.value} onDone={() => undefined} onClose={() => (dialog.value = null)} />}
    </div>
  );
}
