/** Owns the page of workers: what each has code for, and which runs it holds. */
import { api } from "../../api/client";
import type { Worker } from "../../api/model";
import { EmptyState } from "../../ui/EmptyState";
import { Table } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { countText } from "../../ui/format";
import { href } from "../../ui/router";
import { Meter, OperationsPage } from "./Page";
import { usePolled } from "./usePolled";

export function WorkersPage() {
  const loaded = usePolled((signal) => api.get("/v1/workers", { signal }));
  return (
    <OperationsPage title="Workers" loaded={loaded}>
      {({ workers }) => (
        <>
          {workers.length > 0 && <p class="muted">{countText(workers.length, "worker")} connected to this server, holding {countText(workers.reduce((sum, worker) => sum + worker.runs, 0), "run")}</p>}
          <Table
            label="Workers"
            rows={workers}
            rowKey={(worker) => worker.id}
            empty={<EmptyState title="No worker is connected">Runs and tasks wait until a worker with their kind connects to this server.</EmptyState>}
            columns={[
              { id: "id", label: "Worker", cell: (worker) => <span class="mono">{worker.id}</span> },
              { id: "kinds", label: "Workflows", grow: true, cell: (worker) => <Names names={workflows(worker)} link /> },
              { id: "tasks", label: "Tasks", cell: (worker) => <Names names={worker.task_kinds} /> },
              { id: "queues", label: "Queues", cell: (worker) => worker.queues.map((queue) => queue ?? "default").join(", ") || "–" },
              { id: "runs", label: "Leases", cell: (worker) => <Meter value={worker.runs} max={worker.runs_max} label={`Runs held by ${worker.id}`} /> },
              { id: "seen", label: "Last seen", number: true, cell: (worker) => (worker.last_seen_at ? <Time at={worker.last_seen_at} /> : <span class="muted">in the server</span>) },
            ]}
          />
        </>
      )}
    </OperationsPage>
  );
}

function workflows(worker: Worker): string[] {
  return worker.kinds.map((kind) => (kind.version ? `${kind.kind} ${kind.version}` : kind.kind));
}

function Names({ names, link }: { names: readonly string[]; link?: boolean }) {
  if (names.length === 0) return <span class="muted">–</span>;
  return (
    <span class="names">
      {names.map((name) => (
        <span key={name} class="badge">
          {link ? <a href={href(["runs"], { kind: name.split(" ")[0] })}>{name}</a> : name}
        </span>
      ))}
    </span>
  );
}
