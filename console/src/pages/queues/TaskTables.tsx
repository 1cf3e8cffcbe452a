/** Owns the tables of the waiting and running tasks of a queue. */
import { api } from "../../api/client";
import type { OpenTask } from "../../api/model";
import { Button } from "../../ui/Button";
import { Loading } from "../../ui/EmptyState";
import { ErrorNote } from "../../ui/ErrorPage";
import { href, setQuery } from "../../ui/router";
import { type Column, Table } from "../../ui/Table";
import { Duration } from "../../ui/Time";
import { usePolled } from "../operations/usePolled";
import { HeldBack, Oldest } from "./parts";

const SHOWN = 50;

/** Links to the call of a workflow, or to the run of a standalone task. */
function TaskLink({ task: { id, run } }: { task: OpenTask }) {
  const call = id.split("~").at(-1);
  return <a class="mono" href={href(["runs", run, "timeline"], { call })}>{run}</a>;
}

const SHARED: Column<OpenTask>[] = [
  { id: "kind", label: "Task", cell: ({ kind }) => <span class="mono">{kind}</span> },
  { id: "run", label: "Run", grow: true, cell: (task) => <TaskLink task={task} /> },
  { id: "key", label: "Key", cell: ({ key }) => (key ? <span class="mono ellipsis queue-key" title={key}>{key}</span> : <span class="muted">–</span>) },
  { id: "attempt", label: "Attempt", number: true, cell: ({ attempt }) => attempt },
];

const WAITING: Column<OpenTask>[] = [
  ...SHARED,
  { id: "priority", label: "Priority", number: true, cell: ({ priority }) => priority },
  { id: "since", label: "Waits since", number: true, cell: ({ visible_at }) => <Oldest at={visible_at} waits /> },
  { id: "held", label: "Why it waits", cell: ({ held_back_by, opens_at, last_failure }) => <HeldBack by={held_back_by} until={opens_at} otherwise={last_failure ? <>attempt failed with <code>{last_failure.code}</code></> : <span class="muted">for a worker</span>} /> },
];

const RUNNING: Column<OpenTask>[] = [
  ...SHARED,
  { id: "worker", label: "Worker", cell: ({ worker }) => (worker ? <span class="mono ellipsis queue-key" title={worker}>{worker}</span> : <span class="muted">–</span>) },
  { id: "for", label: "Runs for", number: true, cell: ({ started_at }) => (started_at ? <Duration from={started_at} /> : "–") },
];

export function TaskTables({ name, taskKey }: { name: string; taskKey: string | null }) {
  const load = async (signal: AbortSignal) => {
    const query = { queue: name, key: taskKey, limit: SHOWN };
    const [waiting, running] = await Promise.all([
      api.get("/v1/tasks", { signal, query: { ...query, state: "queued" } }),
      api.get("/v1/tasks", { signal, query: { ...query, state: "running" } }),
    ]);
    return { waiting: waiting.tasks, running: running.tasks };
  };
  const loaded = usePolled(load, [name, taskKey]);
  const [data, error] = [loaded.data.value, loaded.error.value];
  return (
    <>
      {taskKey !== null && (
        <p class="row">
          Tasks with the key <span class="mono">{taskKey}</span>
          <Button small onClick={() => setQuery({ key: null })}>Show all tasks</Button>
        </p>
      )}
      {data === null ? (error ? <ErrorNote error={error} /> : <Loading />) : (
        <>
          <Tasks title="Running tasks" tasks={data.running} columns={RUNNING} empty="No task runs" />
          <Tasks title="Waiting tasks" tasks={data.waiting} columns={WAITING} empty="No task waits" />
        </>
      )}
    </>
  );
}

function Tasks({ title, tasks, columns, empty }: { title: string; tasks: readonly OpenTask[]; columns: Column<OpenTask>[]; empty: string }) {
  return (
    <section class="section" aria-label={title}>
      <h2>{title}</h2>
      {tasks.length === SHOWN && <p class="muted">The first {SHOWN}, in the order in which they were queued.</p>}
      <Table label={title} rows={tasks} rowKey={({ id }) => id} empty={<p class="muted">{empty}.</p>} columns={columns} />
    </section>
  );
}
