/** Owns the list of schedules. */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { api } from "../../api/client";
import { namespace } from "../../api/identity";
import type { Schedule } from "../../api/model";
import { can } from "../../api/session";
import { Button } from "../../ui/Button";
import { EmptyState } from "../../ui/EmptyState";
import { numberText } from "../../ui/format";
import { useKeys } from "../../ui/keys";
import { href, setQuery } from "../../ui/router";
import { Table } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { OperationsPage } from "../operations/Page";
import type { PageProps } from "../registry";
import { EditDialog } from "./EditDialog";
import { useLastRuns } from "./lastRuns";
import { Outcome, StateOf, Times } from "./parts";
import { SlotTime } from "./SlotTime";
import { useScheduleLoad } from "./useScheduleLoad";
import { type HistoryEntry, zoneOf } from "./words";

const PAGE = 50;

interface Page {
  schedules: Schedule[];
  next: string | null;
}

/** Loads the first pages of the list. */
async function load(pages: number, signal: AbortSignal): Promise<Page> {
  const schedules: Schedule[] = [];
  let next: string | null = null;
  for (let page = 0; page < pages; page++) {
    const reply: { schedules: Schedule[]; next?: string | null } = await api.get("/v1/schedules", { signal, query: { limit: PAGE, cursor: next } });
    schedules.push(...reply.schedules);
    next = reply.next ?? null;
    if (next === null) break;
  }
  return { schedules, next };
}

/** Returns the next time at which a slot of a list is due. */
function nextDue({ schedules }: Page): string | undefined {
  return schedules.flatMap(({ next }) => (next[0] ? [next[0].due_at] : [])).sort()[0];
}

export function SchedulesPage({ route }: PageProps) {
  const pages = useSignal(1);
  const shown = useRef<ReadonlySet<string>>(new Set());
  const loaded = useScheduleLoad<Page>({
    load: (signal) => load(pages.peek(), signal),
    deps: [],
    isShown: (schedule) => shown.current.has(schedule),
    nextDue,
  });
  const schedules = loaded.data.value?.schedules ?? [];
  shown.current = new Set(schedules.map(({ schedule }) => schedule));
  const lastRuns = useLastRuns(schedules);
  useEffect(() => void (pages.value = 1), [namespace.value]);
  const operate = can("operate");
  const create = () => setQuery({ create: route.query.get("kind") ?? "1" });
  useKeys("Schedules", [{ keys: "n", what: "create a schedule", run: () => operate && create() }]);
  return (
    <>
      <OperationsPage
        title="Schedules"
        loaded={loaded}
        actions={operate && <Button kind="primary" icon="plus" onClick={create}>Create a schedule</Button>}
      >
        {({ next }) => (
          <>
            <ScheduleTable schedules={schedules} lastRuns={lastRuns.value} />
            {next !== null && (
              <Button busy={loaded.loading.value} onClick={() => { pages.value++; loaded.reload(); }}>
                Show more
              </Button>
            )}
          </>
        )}
      </OperationsPage>
      {operate && route.query.has("create") && <EditDialog schedule={null} onClose={() => setQuery({ create: null })} />}
    </>
  );
}

function ScheduleTable({ schedules, lastRuns }: { schedules: readonly Schedule[]; lastRuns: ReadonlyMap<string, HistoryEntry | null> }) {
  return (
    <Table
      label="Schedules"
      rows={schedules}
      rowKey={({ schedule }) => schedule}
      empty={
        <EmptyState title="There is no schedule">
          A schedule starts runs by the clock: <code>onward schedule create nightly --kind report --cron "0 2 * * *"</code> starts one each night.
        </EmptyState>
      }
      columns={[
        { id: "id", label: "Schedule", cell: ({ schedule }) => <a class="mono" href={href(["schedules", schedule])}>{schedule}</a> },
        { id: "kind", label: "Kind", cell: ({ kind }) => <a class="mono" href={href(["runs"], { kind })}>{kind}</a> },
        { id: "times", label: "Times", grow: true, cell: ({ spec }) => <Times spec={spec} /> },
        { id: "state", label: "State", cell: (schedule) => <StateOf schedule={schedule} /> },
        { id: "next", label: "Next slot", cell: ({ next, spec }) => (next[0] ? <SlotTime at={next[0].slot} zone={zoneOf(spec)} relative /> : <span class="muted">–</span>) },
        { id: "last", label: "Last run", cell: ({ schedule }) => <LastRun entry={lastRuns.get(schedule)} /> },
        { id: "totals", label: "Started / failed / skipped", number: true, cell: ({ totals }) => `${numberText(totals.started)} / ${numberText(totals.failed)} / ${numberText(totals.skipped)}` },
      ]}
    />
  );
}

function LastRun({ entry }: { entry: HistoryEntry | null | undefined }) {
  if (entry === undefined) return <span class="muted">…</span>;
  if (!entry?.started) return <span class="muted">none</span>;
  return (
    <span class="schedule-last">
      <Outcome entry={entry} />
      <a class="muted" href={href(["runs", entry.started.run])}><Time at={entry.at} /></a>
    </span>
  );
}
