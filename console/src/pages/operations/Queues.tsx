/** Owns the page of queues: depth, age, tasks in quarantine, rate limits. */
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { api } from "../../api/client";
import { curlLine } from "../../api/commands";
import type { Queue, Schemas } from "../../api/model";
import { can } from "../../api/session";
import { ActionDialog } from "../../ui/ActionDialog";
import { Button } from "../../ui/Button";
import { EmptyState } from "../../ui/EmptyState";
import { Badge } from "../../ui/Status";
import { Table } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { numberText } from "../../ui/format";
import { now } from "../../ui/hooks";
import { href } from "../../ui/router";
import { OperationsPage, QueueName } from "./Page";
import { usePolled } from "./usePolled";

const MINUTES = 15;

async function load(signal: AbortSignal) {
  const until = new Date();
  const from = new Date(until.getTime() - MINUTES * 60_000);
  const [queues, limits, quarantined, activity] = await Promise.all([
    api.get("/v1/queues", { signal }),
    api.get("/v1/rate-limits", { signal }),
    api.get("/v1/tasks", { signal, query: { state: "quarantined", limit: 100 } }),
    api.get("/v1/activity", { signal, query: { from: from.toISOString(), until: until.toISOString(), buckets: MINUTES } }),
  ]);
  return { queues: queues.queues, limits: limits.rate_limits, quarantined: quarantined.tasks, activity };
}

export function QueuesPage() {
  const loaded = usePolled(load);
  return (
    <OperationsPage title="Queues" loaded={loaded}>
      {({ queues, limits, quarantined, activity }) => (
        <>
          <Figures queues={queues} started={sum(activity.buckets, "started")} ended={sum(activity.buckets, "completed") + sum(activity.buckets, "failed") + sum(activity.buckets, "canceled")} />
          <QueueTable queues={queues} />
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

function Figures({ queues, started, ended }: { queues: readonly Queue[]; started: number; ended: number }) {
  const oldest = queues.flatMap((queue) => (queue.oldest_at && queue.queued > 0 ? [queue.oldest_at] : [])).sort()[0];
  return (
    <dl class="figures">
      <Figure name="Queued tasks" value={numberText(sum(queues, "queued"))} />
      <Figure name="Running tasks" value={numberText(sum(queues, "running"))} />
      <Figure name="In quarantine" value={numberText(sum(queues, "quarantined"))} />
      <Figure name="Oldest queued" value={oldest ? <Time at={oldest} /> : "–"} />
      <Figure name="Runs started per minute" value={(started / MINUTES).toFixed(1)} />
      <Figure name="Runs ended per minute" value={(ended / MINUTES).toFixed(1)} />
    </dl>
  );
}

export function Figure({ name, value }: { name: string; value: ComponentChildren }) {
  return (
    <div class="figure">
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

function QueueTable({ queues }: { queues: readonly Queue[] }) {
  return (
    <Table
      label="Queues"
      rows={queues}
      rowKey={(queue) => `${queue.queue ?? ""} ${queue.kind}`}
      empty={<EmptyState title="No queue has tasks or workers">A queue appears with its first task or worker.</EmptyState>}
      columns={[
        { id: "kind", label: "Task", grow: true, cell: (queue) => <span class="mono">{queue.kind}</span> },
        { id: "queue", label: "Queue", cell: (queue) => <QueueName name={queue.queue} /> },
        { id: "queued", label: "Queued", number: true, cell: (queue) => numberText(queue.queued) },
        { id: "running", label: "Running", number: true, cell: (queue) => numberText(queue.running) },
        { id: "oldest", label: "Oldest", number: true, cell: (queue) => <Oldest queue={queue} /> },
        { id: "quarantined", label: "Quarantined", number: true, cell: (queue) => (queue.quarantined > 0 ? <Badge tone="bad" text={numberText(queue.quarantined)} /> : "0") },
        { id: "workers", label: "Workers", number: true, cell: (queue) => (queue.workers === 0 && queue.queued > 0 ? <Badge tone="warn" text="none" /> : numberText(queue.workers)) },
      ]}
    />
  );
}

// A task that waits for its next attempt is visible in the future.
function Oldest({ queue }: { queue: Queue }) {
  if (!queue.oldest_at || queue.queued === 0) return <span class="muted">–</span>;
  return Date.parse(queue.oldest_at) > now.value + 1500 ? <span class="muted">next <Time at={queue.oldest_at} /></span> : <Time at={queue.oldest_at} />;
}

function Quarantine({ tasks, onChange }: { tasks: readonly Schemas["OpenTask"][]; onChange: () => void }) {
  const retrying = useSignal<string | null>(null);
  return (
    <section class="section">
      <h2>Tasks in quarantine</h2>
      <p class="muted">They lost their worker several times in a row, so they wait for a person.</p>
      <Table
        label="Tasks in quarantine"
        rows={tasks}
        rowKey={(task) => task.id}
        columns={[
          { id: "kind", label: "Task", cell: (task) => <span class="mono">{task.kind}</span> },
          { id: "run", label: "Run", grow: true, cell: (task) => <a class="mono" href={href(["runs", task.run])}>{task.run}</a> },
          { id: "lost", label: "Lost workers", number: true, cell: (task) => task.lost_workers },
          { id: "failure", label: "Last failure", cell: (task) => task.last_failure?.message ?? "–" },
          { id: "retry", label: "", cell: (task) => <Button small disabled={!can("operate")} onClick={() => (retrying.value = task.id)}>Retry</Button> },
        ]}
      />
      {retrying.value && (
        <ActionDialog
          title="Retry the task?"
          verb="Retry"
          warning="The task may have stopped its workers. A retry may stop another one."
          lines={{ cli: null, curl: curlLine("POST", "/v1/tasks/{id}/retry", { path: { id: retrying.value } }) }}
          action={async () => {
            await api.post("/v1/tasks/{id}/retry", undefined, { path: { id: retrying.value ?? "" } });
            onChange();
          }}
          onClose={() => (retrying.value = null)}
        >
          <p class="mono">{retrying.value}</p>
        </ActionDialog>
      )}
    </section>
  );
}

function RateLimits({ limits, onChange }: { limits: readonly Schemas["RateLimit"][]; onChange: () => void }) {
  const reopening = useSignal<string | null>(null);
  return (
    <section class="section">
      <h2>Rate limits</h2>
      <p class="muted">A provider has refused calls of these kinds until the given time.</p>
      <Table
        label="Rate limits"
        rows={limits}
        rowKey={(limit) => limit.kind}
        columns={[
          { id: "kind", label: "Kind", grow: true, cell: (limit) => <span class="mono">{limit.kind}</span> },
          { id: "until", label: "Until", cell: (limit) => <Time at={limit.until} mode="both" /> },
          { id: "reopen", label: "", cell: (limit) => <Button small disabled={!can("operate")} onClick={() => (reopening.value = limit.kind)}>Call again now</Button> },
        ]}
      />
      {reopening.value && (
        <ActionDialog
          title={`Call ${reopening.value} again now?`}
          verb="Call again now"
          lines={{ cli: null, curl: curlLine("POST", "/v1/rate-limits/reopen", {}, { kind: reopening.value }) }}
          action={async () => {
            await api.post("/v1/rate-limits/reopen", { kind: reopening.value ?? "" });
            onChange();
          }}
          onClose={() => (reopening.value = null)}
        >
          <p>The provider may refuse the next calls, too.</p>
        </ActionDialog>
      )}
    </section>
  );
}
