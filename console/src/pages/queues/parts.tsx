/** Owns small parts that the list and the page of a queue share. */
import type { ComponentChildren } from "preact";
import type { Queue, QueueSettings, QueueView } from "../../api/model";
import { numberText } from "../../ui/format";
import { now } from "../../ui/hooks";
import { href } from "../../ui/router";
import { Badge } from "../../ui/Status";
import { Time } from "../../ui/Time";
import { Meter } from "../operations/Page";
import { spanText } from "../schedules/words";
import { DEFAULT_QUEUE, isDrained, type QueueLimit, holdText } from "./words";

/** The name of a queue in addresses: the default one has none. */
export function nameOf(queue: string | null | undefined): string {
  return queue ?? DEFAULT_QUEUE;
}

export function QueueLink({ queue }: { queue: string | null | undefined }) {
  return <a class={queue ? "mono" : undefined} href={href(["queues", nameOf(queue)])}>{nameOf(queue)}</a>;
}

export function States({ settings }: { settings: QueueSettings | null | undefined }) {
  if (!settings || (!settings.paused && !isDrained(settings))) return null;
  return (
    <span class="row">
      {settings.paused && <Badge tone="warn" text="paused" />}
      {isDrained(settings) && <Badge tone="warn" text="drained" />}
    </span>
  );
}

/** The running tasks, as a share of the limit if there is one. */
export function RunningShare({ running, settings }: { running: number; settings: QueueSettings | null | undefined }) {
  const limit = settings?.concurrency_max;
  return limit ? <Meter value={running} max={limit} label="Running tasks" /> : <span class="tabular">{numberText(running)}</span>;
}

/** The starts that count for the rate of the queue. */
export function RateShare({ view, settings }: { view: QueueView | null | undefined; settings: QueueSettings | null | undefined }) {
  const rate = settings?.rate;
  if (!rate) return <span class="muted">–</span>;
  const period = <span class="muted"> in {spanText(rate.period_ms)}</span>;
  if (view?.rate_used === null || view?.rate_used === undefined) return <span>{numberText(rate.starts_max)}{period}</span>;
  return <span class="queue-rate"><Meter value={view.rate_used} max={rate.starts_max} label="Starts in the period" />{period}</span>;
}

/** The workers of the best served kind, and a warning if tasks of another one have none. */
export function Workers({ kinds }: { kinds: readonly Queue[] }) {
  const stranded = kinds.filter(({ workers, queued }) => workers === 0 && queued > 0);
  const most = Math.max(0, ...kinds.map(({ workers }) => workers));
  if (stranded.length === 0) return <>{numberText(most)}</>;
  return <Badge tone="warn" text={most === 0 ? "none" : `none for ${stranded.map(({ kind }) => kind).join(", ")}`} />;
}

/** A task that waits for its next attempt is visible in the future. */
export function Oldest({ at, waits }: { at: string | null | undefined; waits: boolean }) {
  if (!at || !waits) return <span class="muted">–</span>;
  return Date.parse(at) > now.value + 1500 ? <span class="muted">next <Time at={at} /></span> : <Time at={at} />;
}

/** Why a task waits, and until when. */
export function HeldBack({ by, until, otherwise }: { by: QueueLimit | null | undefined; until: string | null | undefined; otherwise?: ComponentChildren }) {
  if (!by) return <>{otherwise ?? <span class="muted">–</span>}</>;
  return <span>{holdText(by)}{until && <>, opens <Time at={until} /></>}</span>;
}
