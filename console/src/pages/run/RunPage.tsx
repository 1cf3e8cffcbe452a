/** Owns the page of one run: its session, its tabs, and what is shown if the run cannot be. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { hasCode } from "../../api/errors";
import { Button } from "../../ui/Button";
import { EmptyState, Loading } from "../../ui/EmptyState";
import { ErrorPage } from "../../ui/ErrorPage";
import { useTitle } from "../../ui/hooks";
import { useKeys } from "../../ui/keys";
import { href, navigate } from "../../ui/router";
import { type Tab, Tabs } from "../../ui/Tabs";
import { ConversationTab } from "../conversation/ConversationTab";
import { GraphTab, isFlow } from "../flows/GraphTab";
import type { PageProps } from "../registry";
import { ChildrenTab } from "./ChildrenTab";
import { DivergenceNote } from "./Divergence";
import { Header } from "./Header";
import { LogTab } from "./LogTab";
import { RunSession } from "./session";
import { StateTab } from "./StateTab";
import { TimelineTab } from "./TimelineTab";
import { TravelTab } from "./TravelTab";
import { Waits } from "./Waits";

export type TabId = "timeline" | "log" | "travel" | "state" | "children" | "conversation" | "graph";

const LABELS: [TabId, string, string][] = [
  ["timeline", "Timeline", "1"], ["conversation", "Conversation", "2"], ["log", "Log", "3"], ["travel", "Time travel", "4"],
  ["state", "State", "5"], ["children", "Children", "6"], ["graph", "Graph", "7"],
];

export function RunPage({ params, route }: PageProps) {
  const id = params.id ?? "";
  const session = useSignal<RunSession | null>(null);
  useEffect(() => {
    const opened = new RunSession(id);
    session.value = opened;
    return () => opened.close();
  }, [id]);
  useTitle(() => id);
  if (session.value === null || session.value.id !== id) return <Loading />;
  return <Loaded session={session.value} tab={params.tab} query={route.query} />;
}

function Loaded({ session, tab, query }: { session: RunSession; tab: string | undefined; query: URLSearchParams }) {
  const view = session.view.value;
  const error = session.error.value;
  const isAgent = session.isAgent.value;
  // The bare address of an agent leads to what people look for first.
  const fallback: TabId = query.has("event") ? "log" : "timeline";
  const active = LABELS.find(([name]) => name === tab)?.[0] ?? fallback;
  const isOffered = (name: TabId) => (name === "conversation" ? isAgent : name === "graph" ? view !== null && isFlow(view) : true);
  const shown = LABELS.filter(([name]) => isOffered(name) || active === name);
  useKeys("This run", shown.map(([name, label, keys]) => ({ keys, what: `show ${label.toLowerCase()}`, run: () => navigate(href(["runs", session.id, name])) })));
  if (session.isDeleted.value) {
    return (
      <div class="page">
        <EmptyState title="This run was deleted" actions={<Button href="#/runs">Go to the runs</Button>}>
          <code>{session.id}</code> was here when the page was opened. It is gone now, with its log.
        </EmptyState>
      </div>
    );
  }
  if (view === null) {
    if (error === null) return <Loading what="Loading the run" />;
    return (
      <div class="page">
        <ErrorPage error={error} retry={() => void session.load()}>
          {hasCode(error, "run_not_found") && (
            <p class="muted">
              It may have been deleted, or belong to another namespace. <a href="#/runs">All runs</a>
            </p>
          )}
        </ErrorPage>
      </div>
    );
  }
  const tabs: Tab[] = shown.map(([name, label]) => ({
    id: name, label, href: href(["runs", session.id, name]), count: name === "children" ? view.counts.children_started || null : null,
  }));
  return (
    <div class="page-full run-page">
      <Header session={session} view={view} hasMessageBox={active === "conversation"} />
      {view.pause?.divergence && <DivergenceNote run={view.id} generation={view.generation} divergence={view.pause.divergence} />}
      <Waits view={view} hasMessageBox={active === "conversation"} onDone={() => void session.load()} />
      <Tabs tabs={tabs} active={active} label="Views of the run" />
      <section class="run-tab" role="tabpanel" aria-label={LABELS.find(([name]) => name === active)?.[1]}>
        {active === "timeline" && <TimelineTab session={session} query={query} />}
        {active === "log" && <LogTab session={session} query={query} />}
        {active === "travel" && <TravelTab session={session} query={query} />}
        {active === "state" && <StateTab session={session} view={view} />}
        {active === "children" && <ChildrenTab run={view.id} />}
        {active === "graph" && <GraphTab view={view} />}
        {active === "conversation" && <ConversationTab session={session} view={view} query={query} />}
      </section>
    </div>
  );
}
