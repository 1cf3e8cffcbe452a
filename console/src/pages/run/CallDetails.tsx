/** Owns the details of the selected call: times, attempts with their failures, input, and links to its events. */
import { can } from "../../api/session";
import { Button } from "../../ui/Button";
import { CopyButton } from "../../ui/CopyButton";
import { PayloadView } from "../../ui/Json";
import { KeyValue } from "../../ui/KeyValue";
import { href } from "../../ui/router";
import { StatusDot } from "../../ui/Status";
import { Time } from "../../ui/Time";
import { useSignal } from "@preact/signals";
import { ActionForm } from "./ActionForm";
import { ACTIONS } from "./actions";
import { FailureView } from "./FailureView";
import { eventRef, type Payload, type TimelineCall } from "./model";
import { shownName } from "./timeline";
import { shortSpan, timesOf } from "./waterfall";

export interface CallDetailsProps {
  run: string;
  generation: number;
  call: TimelineCall;
  progress: Payload | null;
  now: number;
  onClose: () => void;
}

/** Returns the name that the worker gave itself: the server puts the namespace before it and its own mark behind. */
export function workerName(id: string): string {
  const [, length = "", rest = ""] = /^(\d+):(.*)$/s.exec(id) ?? [];
  const name = /^:(.+):[0-9a-f]+$/s.exec(rest.slice(Number(length)))?.[1];
  return name ?? id;
}

export function CallDetails({ run, generation, call, progress, now, onClose }: CallDetailsProps) {
  const forks = useSignal(false);
  const { queued, ran, waited } = timesOf(call, now);
  const event = (index: number) => <a href={href(["runs", run, "log"], { event: eventRef(generation, index) })}>event {index}</a>;
  const fork = ACTIONS.find((action) => action.verb === "fork");
  const isModel = call.type === "model";
  return (
    <aside class="details" aria-label={`Call ${call.call_id}`}>
      <header class="row spread">
        <h2 class="ellipsis">{shownName(call)}</h2>
        <Button kind="quiet" small icon="close" label="Close the details" onClick={onClose} />
      </header>
      <KeyValue pairs={[
        ["Status", <StatusDot status={call.abandoned ? "abandoned" : call.status} />],
        ["Type", call.type],
        ["Call id", <span class="row"><code>{call.call_id}</code><CopyButton text={call.call_id} label="Copy the call id" /></span>],
        ["Result from", call.memo_from && <a href={href(["runs", call.memo_from])}>{call.memo_from}</a>],
        ["Run", call.child && <a href={href(["runs", call.child])}>{call.child}</a>],
        ["In the queue", queued > 0 && shortSpan(queued)], ["Ran", ran > 0 && shortSpan(ran)], ["Waited", waited > 0 && shortSpan(waited)],
        ["Started", call.started_at && <Time at={call.started_at} mode="both" />], ["Ended", call.ended_at && <Time at={call.ended_at} mode="both" />],
        ["Until", call.deadline && <Time at={call.deadline} mode="both" />],
        ["Log", call.first_index !== null && <span class="row">{event(call.first_index)}{call.last_index !== null && call.last_index !== call.first_index && <>to {event(call.last_index)}</>}</span>],
        ["Conversation", isModel && <a href={href(["runs", run, "conversation"], { saw: `${generation}~${call.call_id}` })}>what the model saw</a>],
      ]} />
      {progress && <section><h3>Progress</h3><PayloadView payload={progress} label="Progress" /></section>}
      {call.input && <section><h3>Input</h3><PayloadView payload={call.input} open={2} label="Input" /></section>}
      {call.attempts.length > 0 && (
        <section>
          <h3>Attempts</h3>
          <ol class="attempts">
            {call.attempts.map((attempt) => (
              <li key={attempt.attempt} class={attempt.failure ? "attempt attempt-bad" : "attempt"}>
                <strong>{attempt.attempt > 0 ? `Attempt ${attempt.attempt}` : "Never started"}</strong>
                <div class="muted">
                  {attempt.started_at && <Time at={attempt.started_at} mode="clock" />}
                  {attempt.started_at && attempt.ended_at && ` · ${shortSpan(Date.parse(attempt.ended_at) - Date.parse(attempt.started_at))}`}
                  {attempt.started_at && !attempt.ended_at && " · runs"}
                </div>
                {attempt.worker && <div class="muted ellipsis" title={attempt.worker}>worker <code>{workerName(attempt.worker)}</code></div>}
                {attempt.failure && <FailureView failure={attempt.failure} />}
              </li>
            ))}
          </ol>
        </section>
      )}
      {call.first_index !== null && call.first_index > 0 && can("operate") && fork && (
        <Button icon="branch" onClick={() => (forks.value = true)}>Fork before this call</Button>
      )}
      {forks.value && fork && <ActionForm action={fork} run={run} initial={{ from: String((call.first_index ?? 1) - 1), generation: String(generation) }} onClose={() => (forks.value = false)} />}
    </aside>
  );
}
