/** Owns what waits for a person among the tasks: those in quarantine, and the kinds that a provider refuses. */
import { useSignal } from "@preact/signals";
import { api } from "../../api/client";
import { curlLine } from "../../api/commands";
import type { OpenTask, Schemas } from "../../api/model";
import { can } from "../../api/session";
import { ActionDialog } from "../../ui/ActionDialog";
import { Button } from "../../ui/Button";
import { href } from "../../ui/router";
import { Table } from "../../ui/Table";
import { Time } from "../../ui/Time";

export function Quarantine({ tasks, onChange }: { tasks: readonly OpenTask[]; onChange: () => void }) {
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

export function RateLimits({ limits, onChange }: { limits: readonly Schemas["RateLimit"][]; onChange: () => void }) {
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
