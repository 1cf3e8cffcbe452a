/** Owns the details of one event: all its fields, links to what it belongs to, and forks from it. */
import { useSignal } from "@preact/signals";
import { can } from "../../api/session";
import { Button } from "../../ui/Button";
import { CopyButton } from "../../ui/CopyButton";
import { Loading } from "../../ui/EmptyState";
import { Json, PayloadView } from "../../ui/Json";
import { KeyValue } from "../../ui/KeyValue";
import { href } from "../../ui/router";
import { Time } from "../../ui/Time";
import { ActionForm } from "./ActionForm";
import { type Action, ACTIONS } from "./actions";
import { DivergenceNote } from "./Divergence";
import { FailureView } from "./FailureView";
import { eventRef, type Failure, type LoggedEvent, type Payload } from "./model";
import type { RunSession } from "./session";
import { lineOf } from "./summary";

export interface EventDetailsProps {
  session: RunSession;
  event: LoggedEvent | null;
  generation: number;
  index: number;
  onClose: () => void;
}

function isPayload(value: unknown): boolean {
  if (value === null || typeof value !== "object") return false;
  const names = Object.keys(value);
  return (names.length === 1 && names[0] === "json") || (names.length === 2 && "base64" in value && "type" in value);
}

export function EventDetails({ session, event, generation, index, onClose }: EventDetailsProps) {
  const form = useSignal<Action | null>(null);
  const ref = eventRef(generation, index);
  const link = `${location.origin}${location.pathname}${href(["runs", session.id, "log"], { event: ref })}`;
  if (!event) {
    return <aside class="details" aria-label={`Event ${ref}`}>
      <header class="row spread"><h2>Event {ref}</h2><Button kind="quiet" small icon="close" label="Close the details" onClick={onClose} /></header>
      {index < session.log(generation).store.length ? <Loading /> : <p class="muted">The log has no such event yet.</p>}
    </aside>;
  }
  const line = lineOf(event.event);
  const { type, ...fields } = event.event;
  // A payload by itself is copied in the form that commands take.
  const payloads = Object.entries(fields).filter((field): field is [string, Payload] => isPayload(field[1]));
  const rest = Object.fromEntries(Object.entries(fields).filter(([name, value]) => !isPayload(value) && name !== "divergence" && name !== "failure"));
  const divergence = "divergence" in event.event ? event.event.divergence : null;
  const failure = "failure" in event.event ? (event.event.failure as Failure) : null;
  const call = line.callId !== null && !line.callId.startsWith("update:") ? line.callId : null;
  const choose = (verb: string) => () => (form.value = ACTIONS.find((action) => action.verb === verb) ?? null);
  return (
    <aside class="details" aria-label={`Event ${ref}`}>
      <header class="row spread">
        <h2>{line.title}</h2>
        <Button kind="quiet" small icon="close" label="Close the details" onClick={onClose} />
      </header>
      <KeyValue pairs={[
        ["Event", <span class="row"><code>{ref}</code><CopyButton text={link} label="Copy a link to this event" /></span>],
        ["Type", <code>{type}</code>],
        ["Time", <Time at={event.at} mode="both" />],
        ["Written by", event.commit === null ? "outside: an input" : `the code, in commit ${event.commit}`],
        ["Call", call && <a href={href(["runs", session.id, "timeline"], { call, generation })}>{call}</a>],
        ["Run", line.run && line.run !== session.id && <a href={href(["runs", line.run])}>{line.run}</a>],
        ["Conversation", event.event.type === "entry_appended" && !event.event.is_aside && <a href={href(["runs", session.id, "conversation"], { entry: event.event.id })}>this entry</a>],
      ]} />
      {divergence && <DivergenceNote run={session.id} generation={generation} divergence={divergence} />}
      {failure && <FailureView failure={failure} />}
      {payloads.map(([name, payload]) => (
        <section key={name}>
          <h3>{name.replaceAll("_", " ")}</h3>
          <PayloadView payload={payload} open={2} label={name} />
        </section>
      ))}
      {Object.keys(rest).length > 0 && <section><h3>Fields</h3><Json value={rest} open={1} label="Fields of the event" /></section>}
      <div class="row details-actions">
        <Button icon="refresh" href={href(["runs", session.id, "travel"], { index, generation })}>The run as of here</Button>
        {can("operate") && <Button icon="branch" onClick={choose("fork")}>Fork from here</Button>}
        {can("operate") && <Button onClick={choose("reset")}>Reset to here</Button>}
      </div>
      {form.value && (
        <ActionForm action={form.value} run={session.id} initial={{ [form.value.verb === "fork" ? "from" : "to"]: String(index), generation: String(generation) }} onClose={() => (form.value = null)} onDone={() => void session.load()} />
      )}
    </aside>
  );
}
