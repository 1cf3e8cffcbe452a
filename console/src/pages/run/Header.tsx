/** Owns the head of a run's page: what it is, what it does now and since when, and what can be done to it. */
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { can } from "../../api/session";
import { Button } from "../../ui/Button";
import { CopyButton } from "../../ui/CopyButton";
import { countText, moneyText, numberText } from "../../ui/format";
import { now } from "../../ui/hooks";
import { Icon } from "../../ui/icons";
import { LiveState } from "../../ui/Live";
import { href } from "../../ui/router";
import { Badge, StatusDot } from "../../ui/Status";
import { Duration, Time } from "../../ui/Time";
import { ActionForm } from "./ActionForm";
import { ActionMenu } from "./ActionMenu";
import { type Action, actionsFor } from "./actions";
import { isClosed, type RunView } from "./model";
import type { RunSession } from "./session";
import { failureLine } from "./summary";
import { OnlyAnswer } from "./Waits";

const FIRST = ["message", "signal", "resume", "retry", "cancel"];

export function Header({ session, view, hasMessageBox }: { session: RunSession; view: RunView; hasMessageBox: boolean }) {
  const chosen = useSignal<Action | null>(null);
  const actions = actionsFor(view, session.isAgent.value).filter((action) => can(action.scope));
  const first = actions.filter((action) => FIRST.includes(action.verb));
  const rest = actions.filter((action) => !FIRST.includes(action.verb));
  return (
    <header class="one-head">
      <div class="run-title">
        <nav class="crumbs" aria-label="Where this run is">
          <a href="#/runs">Runs</a>
          {view.parent && (
            <>
              <Icon name="right" size={10} />
              <a href={href(["runs", view.parent.run.id], { call: view.parent.call_id })} title="The run that started this one">{view.parent.run.id}</a>
            </>
          )}
          <Icon name="right" size={10} />
          <a href={href(["runs"], { kind: view.kind })}>{view.kind}</a>
          {view.version && <Badge text={view.version} />}
        </nav>
        <h1 class="one-id">
          <span>{view.id}</span>
          <CopyButton text={view.id} label="Copy the run id" />
        </h1>
      </div>
      <div class="run-actions">
        <span class="run-live">
          <LiveState state={session.streamState.value} paused={session.paused.value} />
          {!isClosed(view.status) && (
            <Button small kind="quiet" icon={session.paused.value ? "play" : "pause"} pressed={session.paused.value} onClick={() => session.setPaused(!session.paused.value)}>
              {session.paused.value ? `Continue${session.held.value > 0 ? ` (${session.held.value})` : ""}` : "Hold updates"}
            </Button>
          )}
        </span>
        {first.map((action) => (
          <Button key={action.verb} onClick={() => (chosen.value = action)}>{action.label}</Button>
        ))}
        {rest.length > 0 && <ActionMenu actions={rest} onChoose={(action) => (chosen.value = action)} />}
      </div>
      <Sentence view={view}><OnlyAnswer view={view} hasMessageBox={hasMessageBox} onDone={() => void session.load()} /></Sentence>
      <Facts view={view} />
      {chosen.value && <ActionForm action={chosen.value} run={view.id} onClose={() => (chosen.value = null)} onDone={() => void session.load()} />}
    </header>
  );
}

/** One sentence: what the run does or waits for, or how it ended. */
function Sentence({ view, children }: { view: RunView; children: ComponentChildren }) {
  const failure = view.outcome && "failure" in view.outcome ? view.outcome.failure : null;
  return (
    <div class="run-sentence" aria-live="polite">
      <StatusDot status={view.status} />
      {isClosed(view.status) ? (
        <span>
          {failure ? <span class={view.status === "failed" ? "bad" : ""}>{failureLine(failure)}</span> : `Took `}
          {!failure && <Duration from={view.created_at} to={view.ended_at} />}
          {view.ended_at && <span class="muted"> · ended <Time at={view.ended_at} /></span>}
        </span>
      ) : (
        <span>
          <WithTimes text={view.doing || fallback(view)} />
          {view.doing_since && now.value - Date.parse(view.doing_since) >= 1000 && <span class="muted"> · for <Duration from={view.doing_since} /></span>}
        </span>
      )}
      {children}
    </div>
  );
}

/** The sentence has times as the API writes them; people get them by their own clock. */
function WithTimes({ text }: { text: string }) {
  const parts = text.split(/(\d{4}-\d\d-\d\dT[\d:.]+Z)/);
  return <>{parts.map((part, at) => (at % 2 === 1 ? <Time key={at} at={part} mode="clock" /> : <span key={at}>{part}</span>))}</>;
}

/** Older servers send no sentence. */
function fallback(view: RunView): string {
  const first = view.awaiting[0];
  if (view.pause) return `Paused: ${view.pause.message || view.pause.reason}`;
  if (first) return `Waits for the ${first.kind} ${first.name ?? first.child ?? ""}`.trim();
  return view.status === "pending" ? "Waits for a worker" : "Runs";
}

function Facts({ view }: { view: RunView }) {
  return (
    <ul class="run-facts">
      <li>started <Time at={view.created_at} />{view.requester && ` by ${view.requester}`}</li>
      {view.starts_at && <li>begins <Time at={view.starts_at} mode="both" /></li>}
      <li class="tabular">{countText(view.event_count, "event")}{view.generation > 0 && ` in generation ${view.generation}`}</li>
      {view.spend && <li class="tabular">{moneyText(view.spend.cost)} · {numberText(view.spend.tokens.input + view.spend.tokens.cached_read + view.spend.tokens.cached_write + view.spend.tokens.output)} tokens</li>}
      {view.cancel_reason !== null && view.cancel_reason !== undefined && <li class="warn">cancel requested{view.cancel_reason && `: ${view.cancel_reason}`}</li>}
      {view.forked_from && (
        <li>
          {view.forked_from.is_reset ? "reset" : "forked"} from{" "}
          <a href={href(["runs", view.forked_from.run, "log"], { event: `${view.forked_from.generation}:${view.forked_from.index}` })}>{view.forked_from.run}</a>
        </li>
      )}
      {view.reset_to && <li>continued as <a href={href(["runs", view.reset_to])}>{view.reset_to}</a></li>}
      {view.external && <li><Badge text="external engine" /></li>}
    </ul>
  );
}
