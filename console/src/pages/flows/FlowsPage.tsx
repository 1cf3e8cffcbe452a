/** Owns the list of flows. */
import { api } from "../../api/client";
import { can } from "../../api/session";
import { Button } from "../../ui/Button";
import { EmptyState } from "../../ui/EmptyState";
import { numberText } from "../../ui/format";
import { href } from "../../ui/router";
import { Table } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { OperationsPage } from "../operations/Page";
import { usePolled } from "../operations/usePolled";

export function FlowsPage() {
  const loaded = usePolled((signal) => api.get("/v1/flows", { signal }));
  return (
    <OperationsPage title="Flows" loaded={loaded}>
      {({ flows }) => (
        <Table
          label="Flows"
          rows={flows}
          rowKey={(flow) => flow.flow}
          empty={
            <EmptyState title="No flow is stored">
              A flow is a workflow as a document: <code>onward flow new greet</code> writes one, <code>onward flow apply greet.yaml</code> stores it.
            </EmptyState>
          }
          columns={[
            { id: "flow", label: "Flow", grow: true, cell: (flow) => <a class="mono" href={href(["flows", flow.flow])}>{flow.flow}</a> },
            { id: "version", label: "Version", cell: (flow) => <span class="mono">{flow.version}</span> },
            { id: "applied", label: "Applied", cell: (flow) => <Time at={flow.applied_at} /> },
            { id: "open", label: "Open runs", number: true, cell: (flow) => numberText(flow.open_runs) },
            {
              id: "actions",
              label: "",
              cell: (flow) => (
                <span class="row">
                  <Button small href={href(["runs"], { kind: flow.flow })}>Runs</Button>
                  {can("start") && <Button small href={href(["runs"], { kind: flow.flow, start: flow.flow })}>Start</Button>}
                </span>
              ),
            },
          ]}
        />
      )}
    </OperationsPage>
  );
}
