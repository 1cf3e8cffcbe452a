/** Owns the page of one queue: its limits and what is used of them, its keys, and its tasks. */
import { useSignal } from "@preact/signals";
import { api } from "../../api/client";
import type { Queue, QueueSettings, QueueView } from "../../api/model";
import { can } from "../../api/session";
import { Button } from "../../ui/Button";
import { EmptyState } from "../../ui/EmptyState";
import { numberText } from "../../ui/format";
import { KeyValue } from "../../ui/KeyValue";
import { useKeys } from "../../ui/keys";
import { Badge } from "../../ui/Status";
import { Table } from "../../ui/Table";
import { Figure, Meter, OperationsPage } from "../operations/Page";
import { usePolled } from "../operations/usePolled";
import type { PageProps } from "../registry";
import { QueueAction, type QueueVerb } from "./Actions";
import { KeyTable } from "./KeyTable";
import { HeldBack, Oldest, RateShare, RunningShare, Workers, nameOf } from "./parts";
import { SettingsDialog } from "./SettingsDialog";
import { TaskTables } from "./TaskTables";
import { isDrained, rateText, settingsText } from "./words";

interface Data {
  view: QueueView;
  kinds: Queue[];
}

async function load(name: string, signal: AbortSignal): Promise<Data> {
  const [view, { queues }] = await Promise.all([
    // The table of keys loads its page itself.
    api.get("/v1/queues/{id}", { path: { id: name }, signal, query: { limit: 1 } }),
    api.get("/v1/queues", { signal }),
  ]);
  return { view, kinds: queues.filter(({ queue }) => nameOf(queue) === name) };
}

export function QueuePage({ params, route }: PageProps) {
  const name = params.name ?? "";
  const dialog = useSignal<QueueVerb | "edit" | null>(null);
  const loaded = usePolled((signal) => load(name, signal), [name]);
  const view = loaded.data.value?.view ?? null;
  const props = { name, onClose: () => (dialog.value = null), onDone: loaded.reload };
  useKeys("Queue", can("operate") ? [{ keys: "e", what: "change the limits", run: () => (dialog.value = "edit") }] : []);
  return (
    <>
      <OperationsPage title={name} loaded={loaded} actions={view && <Buttons settings={view.settings ?? null} choose={(chosen) => (dialog.value = chosen)} />}>
        {({ view: shown, kinds }) => (
          <>
            <State settings={shown.settings ?? {}} />
            <Figures view={shown} kinds={kinds} />
            <Limits view={shown} />
            <KeyTable name={name} settings={shown.settings ?? {}} />
            <TaskTables name={name} taskKey={route.query.get("key")} />
            {kinds.length > 0 && <Kinds kinds={kinds} />}
          </>
        )}
      </OperationsPage>
      {view && dialog.value === "edit" && <SettingsDialog view={view} {...props} />}
      {view && dialog.value !== null && dialog.value !== "edit" && <QueueAction verb={dialog.value} view={view} {...props} />}
    </>
  );
}

function Buttons({ settings, choose }: { settings: QueueSettings | null; choose: (chosen: QueueVerb | "edit") => void }) {
  if (!can("operate")) return null;
  const isDry = settings !== null && isDrained(settings);
  return (
    <>
      <Button icon={settings?.paused ? "play" : "pause"} onClick={() => choose(settings?.paused ? "resume" : "pause")}>{settings?.paused ? "Resume" : "Pause"}</Button>
      <Button onClick={() => choose(isDry ? "accept" : "drain")}>{isDry ? "Accept tasks" : "Drain"}</Button>
      <Button kind="primary" onClick={() => choose("edit")}>Change limits</Button>
      {settings !== null && <Button onClick={() => choose("reset")}>Reset</Button>}
    </>
  );
}

function State({ settings }: { settings: QueueSettings }) {
  return (
    <>
      {settings.paused && <div class="note note-warning" role="note">Paused: no task begins until the queue is resumed. Running tasks continue.</div>}
      {isDrained(settings) && <div class="note note-warning" role="note">Drained: standalone tasks are refused. Tasks that wait are handed out, and what runs schedule is queued.</div>}
    </>
  );
}

function Figures({ view, kinds }: Data) {
  return (
    <dl class="figures">
      <Figure name="Queued" value={numberText(view.queued)} />
      <Figure name="Running" value={numberText(view.running)} />
      <Figure name="Held back by limits" value={numberText(view.held_back)} />
      <Figure name="Keys held back" value={numberText(view.throttled_keys)} />
      <Figure name="Oldest" value={<Oldest at={view.oldest_at} waits={view.queued > 0} />} />
      <Figure name="In quarantine" value={numberText(view.quarantined)} />
      <Figure name="Workers" value={<Workers kinds={kinds} />} />
    </dl>
  );
}

function Limits({ view }: { view: QueueView }) {
  const settings = view.settings ?? {};
  if (settingsText(settings).length === 0) {
    return (
      <section class="section" aria-label="Limits">
        <h2>Limits</h2>
        <EmptyState title="The queue has no limits">It hands out whatever workers have room for. Limits can be changed while tasks run.</EmptyState>
      </section>
    );
  }
  const { concurrency_max, key_concurrency_max, rate, key_rate, depth_max } = settings;
  const weights = settingsText(settings).find(({ label }) => label === "Weights")?.text;
  return (
    <section class="section queue-limits" aria-label="Limits">
      <h2>Limits</h2>
      <KeyValue
        pairs={[
          ["Running", concurrency_max ? <RunningShare running={view.running} settings={settings} /> : null],
          ["Starts", rate ? <RateShare view={view} settings={settings} /> : null],
          ["Waiting", depth_max ? <Meter value={view.queued} max={depth_max} label="Waiting tasks" /> : null],
          ["Each key", [key_concurrency_max && `${numberText(key_concurrency_max)} running`, key_rate && rateText(key_rate)].filter(Boolean).join(", ")],
          ["Weights", weights],
          ["Held back", view.held_back_by ? <HeldBack by={view.held_back_by} until={view.opens_at} /> : null],
        ]}
      />
    </section>
  );
}

function Kinds({ kinds }: { kinds: readonly Queue[] }) {
  return (
    <section class="section" aria-label="Kinds">
      <h2>Kinds of tasks</h2>
      <Table
        label="Kinds of tasks"
        rows={kinds}
        rowKey={({ kind }) => kind}
        columns={[
          { id: "kind", label: "Task", grow: true, cell: ({ kind }) => <span class="mono">{kind}</span> },
          { id: "queued", label: "Queued", number: true, cell: ({ queued }) => numberText(queued) },
          { id: "running", label: "Running", number: true, cell: ({ running }) => numberText(running) },
          { id: "oldest", label: "Oldest", number: true, cell: ({ oldest_at, queued }) => <Oldest at={oldest_at} waits={queued > 0} /> },
          { id: "quarantined", label: "Quarantined", number: true, cell: ({ quarantined }) => (quarantined > 0 ? <Badge tone="bad" text={numberText(quarantined)} /> : "0") },
          { id: "workers", label: "Workers", number: true, cell: (queue) => <Workers kinds={[queue]} /> },
        ]}
      />
    </section>
  );
}
