/** Owns what a run waits for and is blocked on, each with the form that answers it. */
import { useSignal } from "@preact/signals";
import type { Blocker } from "../../api/model";
import { can } from "../../api/session";
import { Button } from "../../ui/Button";
import { Icon } from "../../ui/icons";
import { Prose } from "../../ui/Prose";
import { href } from "../../ui/router";
import { Time } from "../../ui/Time";
import { QueueLink, nameOf } from "../queues/parts";
import { holdText } from "../queues/words";
import { ActionForm } from "./ActionForm";
import { ACTIONS } from "./actions";
import { DecideForm } from "./DecideForm";
import { type Awaited, isClosed, payloadLine, type RunView } from "./model";
import { PromiseForm } from "./PromiseForm";

const SHOWN = 5;
const WHY: Record<string, string> = {
  no_worker: "has no worker", rate_limited: "the provider's key is rate-limited", quarantined: "in quarantine: it lost its worker too often",
  retries: "waits for its next attempt", queued: "is in the queue",
};

interface WaitsProps {
  view: RunView;
  hasMessageBox: boolean;
  onDone: () => void;
}

/** Tasks have rows in the timeline, and a message has its box. */
function listed({ view, hasMessageBox }: WaitsProps): Awaited[] {
  return view.awaiting.filter((one) => one.kind !== "task" && !(hasMessageBox && one.kind === "signal" && one.name === "message"));
}

/** The button for the only wait, which the sentence in the head names. */
export function OnlyAnswer(props: WaitsProps) {
  const isChosen = useSignal(false);
  const [one, second] = listed(props);
  if (!one || second || isClosed(props.view.status)) return null;
  return (
    <>
      <Answer awaited={one} onClick={() => (isChosen.value = true)} />
      {isChosen.value && <Form awaited={one} run={props.view.id} onClose={() => (isChosen.value = false)} onDone={props.onDone} />}
    </>
  );
}

export function Waits(props: WaitsProps) {
  const { view, onDone } = props;
  const all = useSignal(false);
  const chosen = useSignal<Awaited | null>(null);
  if (isClosed(view.status)) return <Undelivered view={view} />;
  const answerable = listed(props);
  const shown = answerable.length === 1 ? [] : all.value ? answerable : answerable.slice(0, SHOWN);
  const blockers = view.blocked_on.filter((one) => one.why !== "queued" || one.hint);
  if (shown.length === 0 && blockers.length === 0 && !view.pause) return null;
  return (
    <div class="waits">
      {view.pause && !view.pause.divergence && (
        <p class="note note-warning"><strong>Paused</strong> ({view.pause.reason.replaceAll("_", " ")}){view.pause.message && `: ${view.pause.message}`}</p>
      )}
      {blockers.map((blocker) => (
        <p key={`${blocker.task} ${blocker.kind}`} class="note note-warning">
          <Icon name="warning" /> <code>{blocker.kind}</code> {blocker.held_back ? <HeldBack of={blocker.held_back} /> : (WHY[blocker.why] ?? blocker.why)}
          {blocker.failure_code && <> (<code>{blocker.failure_code}</code>)</>}
          {blocker.until && <>, until <Time at={blocker.until} mode="both" /></>}
          {blocker.hint && <span class="muted"> · <Prose text={blocker.hint} /></span>}
        </p>
      ))}
      {shown.length > 0 && (
        <ul class="wait-list" aria-label="What the run waits for">
          {shown.map((one) => (
            <li key={one.id}>
              <span class="wait-kind">{one.kind}</span>
              <What awaited={one} />
              <span class="muted">since <Time at={one.since} /></span>
              {one.deadline && <span class="muted">until <Time at={one.deadline} mode="both" /></span>}
              <Answer awaited={one} onClick={() => (chosen.value = one)} />
            </li>
          ))}
          {answerable.length > SHOWN && (
            <li><Button kind="quiet" small onClick={() => (all.value = !all.value)}>{all.value ? "Show fewer" : `${answerable.length - SHOWN} more`}</Button></li>
          )}
        </ul>
      )}
      {chosen.value && <Form awaited={chosen.value} run={view.id} onClose={() => (chosen.value = null)} onDone={onDone} />}
    </div>
  );
}

/** The limit of a queue that holds a task back. */
function HeldBack({ of: { by, queue, key } }: { of: NonNullable<Blocker["held_back"]> }) {
  return (
    <>
      waits, because {holdText(by)}: <QueueLink queue={queue} />
      {key && <>, key <a class="mono" href={href(["queues", nameOf(queue)], { key })}>{key}</a></>}
    </>
  );
}

function What({ awaited }: { awaited: Awaited }) {
  if (awaited.child) return <a href={href(["runs", awaited.child])}>{awaited.child}</a>;
  return <strong class="ellipsis">{awaited.name ?? (awaited.call_id ? `call ${awaited.call_id}` : "")}</strong>;
}

function Answer({ awaited, onClick }: { awaited: Awaited; onClick: () => void }) {
  switch (awaited.kind) {
    case "signal": return can("signal") ? <Button small onClick={onClick}>Send it</Button> : null;
    case "approval": return can("approve") ? <Button small kind="primary" onClick={onClick}>Decide</Button> : null;
    case "promise": return can("signal") ? <Button small onClick={onClick}>Resolve</Button> : null;
    default: return null;
  }
}

function Form({ awaited, run, onClose, onDone }: { awaited: Awaited; run: string; onClose: () => void; onDone: () => void }) {
  if (awaited.kind === "approval") return <DecideForm id={awaited.id} run={run} onClose={onClose} onDone={onDone} />;
  if (awaited.kind === "promise") return <PromiseForm id={awaited.id} name={awaited.name ?? awaited.id} onClose={onClose} onDone={onDone} />;
  const isMessage = awaited.name === "message";
  const action = ACTIONS.find((one) => one.verb === (isMessage ? "message" : "signal"));
  if (!action) return null;
  return <ActionForm action={action} run={run} initial={isMessage ? {} : { name: awaited.name ?? "" }} onClose={onClose} onDone={onDone} />;
}

/** Signals that a closed run never read: their sender may expect an effect. */
function Undelivered({ view }: { view: RunView }) {
  if (view.undelivered.length === 0) return null;
  return (
    <details class="note note-warning">
      <summary>{view.undelivered.length === 1 ? "One signal was" : `${view.undelivered.length} signals were`} never read</summary>
      <ul>
        {view.undelivered.slice(0, 50).map((signal) => (
          <li key={signal.index}><a href={href(["runs", view.id, "log"], { event: `${view.generation}:${signal.index}` })}>{signal.name}</a> <code>{payloadLine(signal.payload)}</code></li>
        ))}
      </ul>
    </details>
  );
}
