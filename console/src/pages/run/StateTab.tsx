/** Owns the tab with the values of a run: input, outcome, state, attributes, budget, and where to find its trace. */
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { api } from "../../api/client";
import { can } from "../../api/session";
import { Button } from "../../ui/Button";
import { CopyButton } from "../../ui/CopyButton";
import { ErrorNote } from "../../ui/ErrorPage";
import { useLoad } from "../../ui/hooks";
import { PayloadView } from "../../ui/Json";
import { KeyValue } from "../../ui/KeyValue";
import { href } from "../../ui/router";
import { Duration, Time } from "../../ui/Time";
import { moneyText, numberText } from "../../ui/format";
import type { LoggedEvent, RunView } from "./model";
import type { RunSession } from "./session";
import { attributeText, budgetLine } from "./summary";
import { FailureView } from "./FailureView";

export function StateTab({ session, view }: { session: RunSession; view: RunView }) {
  const state = Object.entries(view.state);
  const attributes = Object.entries(view.attributes);
  return (
    <div class="tab-scroll">
      <div class="blocks">
      <Block title="Input"><PayloadView payload={view.input} open={2} label="Input" /></Block>
      {view.outcome && (
        <Block title={"output" in view.outcome ? "Output" : "Failure"}>
          {"output" in view.outcome ? <PayloadView payload={view.outcome.output} open={2} label="Output" /> : <><FailureView failure={view.outcome.failure} /><Diagnoses run={view.id} generation={view.generation} /></>}
        </Block>
      )}
      <Block title="State">
        {state.length === 0 ? <p class="muted">The code has set no state.</p> : (
          <KeyValue pairs={state.map(([name, value]) => [name, <PayloadView payload={value} open={1} label={name} />])} />
        )}
      </Block>
      <Block title="Attributes">
        {attributes.length === 0 ? <p class="muted">None. Attributes are what runs are listed by.</p> : (
          <KeyValue pairs={attributes.map(([name, value]) => [name, <a href={href(["runs"], { [`attr.${name}`]: attributeText(value) })}>{attributeText(value)}</a>])} />
        )}
      </Block>
      <Block title="Facts">
        <KeyValue pairs={[
          ["Kind", view.kind], ["Version", view.version], ["Namespace", view.namespace], ["Started", <Time at={view.created_at} mode="both" />],
          ["Started by", view.requester], ["Copied by", view.copied_by.join(", ")], ["Last change", <Time at={view.updated_at} mode="both" />],
          ["Ended", view.ended_at && <Time at={view.ended_at} mode="both" />], ["Took", <Duration from={view.created_at} to={view.ended_at} />],
          ["Steps", numberText(view.counts.steps_completed)], ["Failed attempts of steps", view.counts.step_attempts_failed || null],
          ["Tasks", view.counts.tasks_scheduled || null], ["Children", view.counts.children_started || null],
          ["Signals", view.counts.signals_received ? `${view.counts.signals_consumed} read of ${view.counts.signals_received}` : null],
          ["Budget", view.budget && budgetLine(view.budget)],
          ["Spent", view.spend && `${moneyText(view.spend.cost)}, ${numberText(view.spend.attempts)} attempts${view.spend.unknown ? `, ${view.spend.unknown} of unknown cost` : ""}`],
        ]} />
      </Block>
      <Trace session={session} />
      </div>
    </div>
  );
}

/** What callees reported about failures may quote confidential data: it is loaded only on request, for operators. */
function Diagnoses({ run, generation }: { run: string; generation: number }) {
  const asked = useSignal(false);
  if (!can("operate")) return null;
  if (!asked.value) return <Button small onClick={() => (asked.value = true)}>Show what the other side reported</Button>;
  return <DiagnosisList run={run} generation={generation} />;
}

function DiagnosisList({ run, generation }: { run: string; generation: number }) {
  const loaded = useLoad((signal) => api.get("/v1/runs/{id}/failures", { path: { id: run }, query: { generation }, signal }), [run, generation]);
  if (loaded.error.value) return <ErrorNote error={loaded.error.value} />;
  const failures = loaded.data.value?.failures ?? [];
  if (failures.length === 0) return <p class="muted">{loaded.loading.value ? "Loading…" : "No failure is recorded."}</p>;
  return (
    <ul class="attempts">
      {failures.map((failure) => (
        <li key={failure.index} class="attempt attempt-bad">
          <a href={href(["runs", run, "log"], { event: `${generation}:${failure.index}` })}>event {failure.index}</a> <code>{failure.code}</code> {failure.message}
          {failure.diagnosis && <pre class="diagnosis" tabIndex={0}>{failure.diagnosis}</pre>}
        </li>
      ))}
    </ul>
  );
}

function Block({ title, children }: { title: string; children: ComponentChildren }) {
  return <section class="block"><h2>{title}</h2>{children}</section>;
}

/** The trace of the start request: the spans of the run have the same trace id. */
function Trace({ session }: { session: RunSession }) {
  const first = useLoad((signal) => api.get("/v1/runs/{id}/events", { path: { id: session.id }, query: { generation: 0, from: 0, limit: 1 }, signal }), [session.id]);
  const event = (first.data.value?.events as LoggedEvent[] | undefined)?.[0]?.event;
  const trace = event?.type === "run_started" ? event.trace : null;
  if (!trace) return null;
  const id = /^[0-9a-f]{2}-([0-9a-f]{32})-/.exec(trace)?.[1] ?? trace;
  return (
    <Block title="Trace">
      <p class="muted">Spans of this run have this trace id at your tracing backend.</p>
      <p class="row"><code>{id}</code><CopyButton text={id} label="Copy the trace id" /></p>
    </Block>
  );
}
