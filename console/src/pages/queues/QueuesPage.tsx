/** Owns the list of queues: depth, age, what limits use and hold back, tasks in quarantine, rate limits of providers. */
import { api } from "../../api/client";
import { hasCode } from "../../api/errors";
import type { Queue, QueueSettings, QueueView } from "../../api/model";
import { EmptyState } from "../../ui/EmptyState";
import { numberText } from "../../ui/format";
import { Badge } from "../../ui/Status";
import { Table } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { Figure, OperationsPage } from "../operations/Page";
import { usePolled } from "../operations/usePolled";
import { Oldest, QueueLink, RateShare, RunningShare, States, Workers, nameOf } from "./parts";
import { Quarantine, RateLimits } from "./Quarantine";

const MINUTES = 15;

/** The queues with limits whose use is read; those behind them show their limits alone. */
const READ_MAX = 30;

interface Row {
  name: string;
  queue: string | null;
  kinds: Queue[];
  settings: QueueSettings | null;
  queued: number;
  running: number;
  quarantined: number;
  oldest: string | null;
}

async function load(signal: AbortSignal) {
  const until = new Date();
  const from = new Date(until.getTime() - MINUTES * 60_000);
  const [queues, limits, quarantined, activity] = await Promise.all([
    api.get("/v1/queues", { signal }),
    api.get("/v1/rate-limits", { signal }),
    api.get("/v1/tasks", { signal, query: { state: "quarantined", limit: 100 } }),
    api.get("/v1/activity", { signal, query: { from: from.toISOString(), until: until.toISOString(), buckets: MINUTES } }),
  ]);
  const rows = rowsOf(queues.queues, queues.settings);
  const limited = rows.filter(({ settings, queued, running }) => settings !== null && queued + running > 0).slice(0, READ_MAX);
  const views = new Map(await Promise.all(limited.map(async ({ name }): Promise<[string, QueueView | null]> => [name, await viewOf(name, signal)])));
  return { rows, views, limits: limits.rate_limits, quarantined: quarantined.tasks, activity };
}

/** Reads a queue; a key for other queues may not. */
async function viewOf(name: string, signal: AbortSignal): Promise<QueueView | null> {
  return api.get("/v1/queues/{id}", { path: { id: name }, signal, query: { limit: 1 } }).catch((error: unknown) => {
    if (hasCode(error, "not_allowed")) return null;
    throw error;
  });
}

/** Returns a row for each queue that has tasks, workers or settings. */
function rowsOf(queues: readonly Queue[], settings: readonly { queue?: string | null; settings: QueueSettings }[]): Row[] {
  const rows = new Map<string, Row>();
  const rowOf = (queue: string | null): Row => {
    const name = nameOf(queue);
    const row = rows.get(name) ?? { name, queue, kinds: [], settings: null, queued: 0, running: 0, quarantined: 0, oldest: null };
    rows.set(name, row);
    return row;
  };
  for (const of of queues) {
    const row = rowOf(of.queue ?? null);
    row.kinds.push(of);
    for (const name of ["queued", "running", "quarantined"] as const) row[name] += of[name];
    if (of.queued > 0 && of.oldest_at && (row.oldest === null || of.oldest_at < row.oldest)) row.oldest = of.oldest_at;
  }
  for (const of of settings) rowOf(of.queue ?? null).settings = of.settings;
  return [...rows.values()].sort((a, b) => (a.queue ?? "").localeCompare(b.queue ?? ""));
}

export function QueuesPage() {
  const loaded = usePolled(load);
  return (
    <OperationsPage title="Queues" loaded={loaded}>
      {({ rows, views, limits, quarantined, activity }) => (
        <>
          <Figures rows={rows} views={views} started={sum(activity.buckets, "started")} ended={sum(activity.buckets, "completed") + sum(activity.buckets, "failed") + sum(activity.buckets, "canceled")} />
          <QueueTable rows={rows} views={views} />
          {quarantined.length > 0 && <Quarantine tasks={quarantined} onChange={loaded.reload} />}
          {limits.length > 0 && <RateLimits limits={limits} onChange={loaded.reload} />}
        </>
      )}
    </OperationsPage>
  );
}

function sum<K extends string>(rows: readonly Record<K, number>[], name: K): number {
  return rows.reduce((total, row) => total + row[name], 0);
}

type Views = ReadonlyMap<string, QueueView | null>;

function Figures({ rows, views, started, ended }: { rows: readonly Row[]; views: Views; started: number; ended: number }) {
  const oldest = rows.flatMap((row) => (row.oldest === null ? [] : [row.oldest])).sort()[0];
  return (
    <dl class="figures">
      <Figure name="Queued tasks" value={numberText(sum(rows, "queued"))} />
      <Figure name="Running tasks" value={numberText(sum(rows, "running"))} />
      <Figure name="Held back by limits" value={numberText([...views.values()].reduce((total, view) => total + (view?.held_back ?? 0), 0))} />
      <Figure name="In quarantine" value={numberText(sum(rows, "quarantined"))} />
      <Figure name="Oldest queued" value={oldest ? <Time at={oldest} /> : "–"} />
      <Figure name="Runs started per minute" value={(started / MINUTES).toFixed(1)} />
      <Figure name="Runs ended per minute" value={(ended / MINUTES).toFixed(1)} />
    </dl>
  );
}

function QueueTable({ rows, views }: { rows: readonly Row[]; views: Views }) {
  return (
    <Table
      label="Queues"
      rows={rows}
      rowKey={({ name }) => name}
      empty={<EmptyState title="No queue has tasks or workers">A queue appears with its first task or worker, and with its first limit.</EmptyState>}
      columns={[
        { id: "queue", label: "Queue", cell: ({ queue, settings }) => <span class="row"><QueueLink queue={queue} /><States settings={settings} /></span> },
        { id: "kinds", label: "Tasks", grow: true, cell: ({ kinds }) => <span class="mono queue-kinds">{kinds.map(({ kind }) => kind).join(", ") || "–"}</span> },
        { id: "queued", label: "Queued", number: true, cell: ({ queued }) => numberText(queued) },
        { id: "running", label: "Running", cell: ({ running, settings }) => <RunningShare running={running} settings={settings} /> },
        { id: "rate", label: "Rate", cell: ({ name, settings }) => <RateShare view={views.get(name)} settings={settings} /> },
        { id: "held", label: "Held back", number: true, cell: ({ name }) => <Held view={views.get(name)} /> },
        { id: "oldest", label: "Oldest", number: true, cell: ({ oldest }) => <Oldest at={oldest} waits={oldest !== null} /> },
        { id: "quarantined", label: "Quarantined", number: true, cell: ({ quarantined }) => (quarantined > 0 ? <Badge tone="bad" text={numberText(quarantined)} /> : "0") },
        { id: "workers", label: "Workers", number: true, cell: ({ kinds }) => <Workers kinds={kinds} /> },
      ]}
    />
  );
}

function Held({ view }: { view: QueueView | null | undefined }) {
  if (!view || view.held_back === 0) return <span class="muted">–</span>;
  return <Badge tone="warn" text={numberText(view.held_back)} />;
}
