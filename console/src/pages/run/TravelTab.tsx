/** Owns time travel: a slider over the log, and the run as of the chosen event. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api } from "../../api/client";
import { can } from "../../api/session";
import { Button } from "../../ui/Button";
import { Loading } from "../../ui/EmptyState";
import { ErrorNote } from "../../ui/ErrorPage";
import { useEvery, useLoad } from "../../ui/hooks";
import { PayloadView } from "../../ui/Json";
import { KeyValue } from "../../ui/KeyValue";
import { useKeys } from "../../ui/keys";
import { href, setQuery } from "../../ui/router";
import { StatusDot } from "../../ui/Status";
import { Time } from "../../ui/Time";
import { EntryPreview } from "../conversation/EntryPreview";
import { ActionForm } from "./ActionForm";
import { type Action, ACTIONS } from "./actions";
import { FailureView } from "./FailureView";
import { generationOf, GenerationSelect } from "./GenerationSelect";
import { eventRef, type LoggedEvent, type Payload, type RunAt } from "./model";
import type { RunSession } from "./session";
import { attributeText, lineOf } from "./summary";

const SETTLE_MS = 60;

export function TravelTab({ session, query }: { session: RunSession; query: URLSearchParams }) {
  const latest = session.generation.value;
  const generation = generationOf(query, latest);
  const feed = session.log(generation);
  void feed.version.value;
  // The length of an earlier generation is found page by page.
  if (generation !== latest) feed.want(feed.store.length - 1, feed.store.length);
  const last = Math.max(0, feed.store.length - 1);
  const given = query.get("index") ?? /^\d+:(\d+)$/.exec(query.get("event") ?? "")?.[1] ?? null;
  const index = given === null ? last : Math.min(last, Math.max(0, Math.floor(Number(given)) || 0));
  const asked = useSignal(index);
  const playing = useSignal(false);
  const form = useSignal<Action | null>(null);
  const go = (to: number) => setQuery({ index: Math.min(last, Math.max(0, to)), event: null });
  useEffect(() => {
    // Dragging asks for where it rests, not for each event on the way.
    const timer = setTimeout(() => (asked.value = index), SETTLE_MS);
    return () => clearTimeout(timer);
  }, [index]);
  useEvery(350, () => {
    if (!playing.value) return;
    if (index >= last) playing.value = false;
    else go(index + 1);
  });
  useKeys("Time travel", [
    { keys: "ArrowLeft", what: "one event back", run: () => go(index - 1) }, { keys: "ArrowRight", what: "one event on", run: () => go(index + 1) },
    { keys: " ", what: "play or stop", run: () => (playing.value = !playing.value) },
  ]);
  const shown = useSignal<RunAt | null>(null);
  const loaded = useLoad((signal) => api.get("/v1/runs/{id}/at/{index}", { path: { id: session.id, index: asked.value }, query: { generation }, signal }), [session.id, generation, asked.value]);
  useEffect(() => {
    // The last answer stays while the next one is on its way, so nothing flickers.
    if (loaded.data.value) shown.value = loaded.data.value;
  }, [loaded.data.value]);
  const at = shown.value;
  return (
    <div class="travel">
      <div class="travel-bar">
        <GenerationSelect generation={generation} latest={latest} />
        <Button small icon={playing.value ? "pause" : "play"} label={playing.value ? "Stop" : "Play the events"} onClick={() => { if (!playing.value && index >= last) go(0); playing.value = !playing.value; }} />
        <Button small icon="left" label="One event back" disabled={index <= 0} onClick={() => go(index - 1)} />
        <input class="slider" type="range" min={0} max={last} step={1} value={index} aria-label="Event" aria-valuetext={`event ${index} of ${last}`} onInput={(event) => { playing.value = false; go(Number(event.currentTarget.value)); }} />
        <Button small icon="right" label="One event on" disabled={index >= last} onClick={() => go(index + 1)} />
        <output class="tabular travel-at">{index} / {last}</output>
      </div>
      {loaded.error.value && <ErrorNote error={loaded.error.value} />}
      {!at && !loaded.error.value && <Loading what="Loading the run as of then" />}
      {at && <AsOf session={session} at={at} isOld={at.index !== index || at.generation !== generation} onForm={(verb) => (form.value = ACTIONS.find((one) => one.verb === verb) ?? null)} />}
      {form.value && <ActionForm action={form.value} run={session.id} initial={{ [form.value.verb === "fork" ? "from" : "to"]: String(index), generation: String(generation) }} onClose={() => (form.value = null)} onDone={() => void session.load()} />}
    </div>
  );
}

function AsOf({ session, at, isOld, onForm }: { session: RunSession; at: RunAt; isOld: boolean; onForm: (verb: "fork" | "reset") => void }) {
  const event = (at.event as LoggedEvent).event;
  const line = lineOf(event);
  const changed = event.type === "state_set" ? event.key : null;
  const state = Object.entries(at.state as Record<string, Payload>);
  const attributes = Object.entries(at.attributes);
  return (
    <div class={isOld ? "tab-scroll travel-old" : "tab-scroll"} aria-busy={isOld}>
      <div class="blocks">
      <section class={`block travel-event log-${line.tone}`}>
        <h2>{line.title}</h2>
        {line.detail !== "" && <p class="muted">{line.detail}</p>}
        <p class="row">
          <Time at={at.at} mode="both" />
          <a href={href(["runs", session.id, "log"], { event: eventRef(at.generation, at.index) })}>in the log</a>
          {can("operate") && <Button small icon="branch" onClick={() => onForm("fork")}>Fork from here</Button>}
          {can("operate") && <Button small onClick={() => onForm("reset")}>Reset to here</Button>}
        </p>
      </section>
      <section class="block">
        <h2>Status</h2>
        <KeyValue pairs={[
          ["Status", <StatusDot status={at.status} />], ["Paused", at.pause && `${at.pause.reason.replaceAll("_", " ")} ${at.pause.message}`],
          ["Cancel requested", at.cancel_reason !== null && (at.cancel_reason || "yes")], ["Steps", at.counts.steps_completed || null],
          ["Failed attempts", at.counts.step_attempts_failed || null], ["Tasks", at.counts.tasks_scheduled || null], ["Entries", at.entries || null],
        ]} />
        {at.outcome && ("output" in at.outcome ? <PayloadView payload={at.outcome.output} label="Output" /> : <FailureView failure={at.outcome.failure} />)}
      </section>
      <section class="block">
        <h2>Waits</h2>
        {at.awaiting.length === 0 ? <p class="muted">for nothing</p> : (
          <ul class="wait-list">
            {at.awaiting.map((one) => <li key={one.id}><span class="wait-kind">{one.kind}</span><strong class="ellipsis">{one.name ?? one.child ?? one.call_id}</strong></li>)}
          </ul>
        )}
        {at.open_calls.length > 0 && <p class="muted">Open calls: {at.open_calls.slice(0, 20).map((call) => <a key={call} class="open-call" href={href(["runs", session.id, "timeline"], { call: call.split("~").at(-1), generation: at.generation })}>{call.split("~").at(-1)}</a>)}</p>}
      </section>
      <section class="block">
        <h2>State</h2>
        {state.length === 0 ? <p class="muted">none yet</p> : (
          <KeyValue pairs={state.map(([name, value]) => [name, <div class={name === changed ? "changed" : ""}><PayloadView payload={value} label={name} /></div>])} />
        )}
        {attributes.length > 0 && <><h3>Attributes</h3><KeyValue pairs={attributes.map(([name, value]) => [name, attributeText(value)])} /></>}
      </section>
      {at.leaf !== null && <Said run={session.id} leaf={at.leaf} entries={at.entries} />}
      </div>
    </div>
  );
}

/** The last entries of the conversation as of then. */
function Said({ run, leaf, entries }: { run: string; leaf: string; entries: number }) {
  const loaded = useLoad((signal) => api.get("/v1/runs/{id}/entries", { path: { id: run }, query: { leaf, limit: 12 }, signal }), [run, leaf]);
  const page = loaded.data.value;
  return (
    <section class="block block-wide">
      <h2>Conversation</h2>
      <p class="muted">{entries === 1 ? "one entry" : `${entries} entries`}{page && entries > page.entries.length && `, the last ${page.entries.length} of them`} · <a href={href(["runs", run, "conversation"], { leaf })}>open it</a></p>
      {loaded.error.value && <ErrorNote error={loaded.error.value} />}
      {page?.entries.map((entry) => <EntryPreview key={entry.id} role={entry.role} content={entry.content as Payload} at={entry.at} />)}
    </section>
  );
}
