/** Owns the tab of a run with the graph of its flow. */
import { ExactNumber } from "../../api/json";
import { EmptyState } from "../../ui/EmptyState";
import { StatusDot } from "../../ui/Status";
import { Table } from "../../ui/Table";
import { jsonOf, type RunView } from "../run/model";
import { Picture } from "./Picture";

const PREFIX = "flow/";

interface Progress {
  step: string;
  state: string;
  times: string;
  items: string;
}

/** Returns how far the steps of a run are; empty if it is not one of a flow, or has not begun. */
function progressOf(view: RunView): Progress[] {
  return Object.entries(view.state).flatMap(([name, payload]) => {
    if (!name.startsWith(PREFIX)) return [];
    const value = jsonOf(payload);
    if (typeof value !== "object" || value === null || Array.isArray(value)) return [];
    const { step, state, times, done, of } = value as Record<string, unknown>;
    if (typeof step !== "string" || typeof state !== "string") return [];
    return [{ step, state, times: count(times), items: of === undefined ? "" : `${count(done)} of ${count(of)}` }];
  });
}

function count(value: unknown): string {
  return typeof value === "number" || value instanceof ExactNumber ? String(value) : "";
}

/** Returns whether a run is one of a flow that has begun. */
export function isFlow(view: RunView): boolean {
  return progressOf(view).length > 0;
}

/** The graph of a run's flow with what the run has done; drawn again when a step begins, counts on or ends. */
export function GraphTab({ view }: { view: RunView }) {
  const steps = progressOf(view);
  return (
    <div class="flow-tab">
      <Picture
        path="/v1/runs/{id}/graph"
        options={{ path: { id: view.id } }}
        label={`Graph of ${view.kind} with the progress of this run`}
        again={JSON.stringify([Object.entries(view.state).filter(([name]) => name.startsWith(PREFIX)), view.status])}
        missing={
          <div class="tab-scroll stack">
            <EmptyState title="No picture">The server has no definition of this run's flow in the version of the run.</EmptyState>
            {steps.length > 0 && (
              <Table
                label="Steps"
                rows={steps}
                rowKey={({ step }) => step}
                columns={[
                  { id: "step", label: "Step", grow: true, cell: ({ step }) => <span class="mono">{step}</span> },
                  { id: "state", label: "State", cell: ({ state }) => <StatusDot status={STATUS[state] ?? state} label={state} /> },
                  { id: "times", label: "Times", number: true, cell: ({ times }) => times },
                  { id: "items", label: "Items", number: true, cell: ({ items }) => items },
                ]}
              />
            )}
          </div>
        }
      />
    </div>
  );
}

/** The statuses of runs whose tones the states of steps have. */
const STATUS: Record<string, string> = { done: "completed", skipped: "canceled" };
