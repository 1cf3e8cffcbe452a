/** Owns the table of the keys of a queue, a page at a time. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api } from "../../api/client";
import type { QueueSettings, QueueView } from "../../api/model";
import { Button } from "../../ui/Button";
import { Loading } from "../../ui/EmptyState";
import { ErrorNote } from "../../ui/ErrorPage";
import { Input } from "../../ui/Field";
import { numberText } from "../../ui/format";
import { href } from "../../ui/router";
import { Table } from "../../ui/Table";
import { usePolled } from "../operations/usePolled";
import { HeldBack, Oldest } from "./parts";
import { holdText } from "./words";

const PAGE = 25;

/** The time without a key press after which the server is asked. */
const PAUSE_MS = 250;

export function KeyTable({ name, settings }: { name: string; settings: QueueSettings }) {
  const typed = useSignal("");
  const search = useSignal("");
  // The cursors of the pages before this one.
  const cursors = useSignal<readonly string[]>([]);
  const cursor = cursors.value.at(-1) ?? null;
  useEffect(() => {
    const timer = setTimeout(() => {
      if (search.peek() !== typed.value) [search.value, cursors.value] = [typed.value, []];
    }, PAUSE_MS);
    return () => clearTimeout(timer);
  }, [typed.value]);
  useEffect(() => {
    [typed.value, search.value, cursors.value] = ["", "", []];
  }, [name]);
  const loaded = usePolled((signal) => api.get("/v1/queues/{id}", { path: { id: name }, signal, query: { limit: PAGE, cursor, key: search.value } }), [name, cursor, search.value]);
  const [data, error] = [loaded.data.value, loaded.error.value];
  const isSearched = search.value !== "";
  return (
    <section class="section" aria-label="Keys">
      <h2>Keys</h2>
      {(isSearched || typed.value !== "" || cursor !== null || (data?.keys ?? []).length > 1) && (
        <div class="queue-search">
          <Input label="Keys that begin with" type="search" value={typed.value} onInput={(text) => (typed.value = text)} />
        </div>
      )}
      {data === null ? (error ? <ErrorNote error={error} /> : <Loading />) : (
        <>
          <Rows view={data} settings={settings} name={name} isSearched={isSearched} />
          {(cursor !== null || data.next) && (
            <div class="row">
              <Button disabled={cursor === null} onClick={() => (cursors.value = cursors.value.slice(0, -1))}>Previous keys</Button>
              <span class="muted">Keys {numberText(cursors.value.length * PAGE + 1)} to {numberText(cursors.value.length * PAGE + data.keys.length)}</span>
              <Button disabled={!data.next} onClick={() => data.next && (cursors.value = [...cursors.value, data.next])}>Next keys</Button>
            </div>
          )}
        </>
      )}
    </section>
  );
}

function Rows({ view: { keys, held_back_by: hold }, settings, name, isSearched }: { view: QueueView; settings: QueueSettings; name: string; isSearched: boolean }) {
  const weights = new Map((settings.weights ?? []).map(({ key, weight }) => [key, weight]));
  const limit = settings.key_concurrency_max;
  return (
    <Table
      label="Keys of the queue"
      rows={keys}
      rowKey={({ key }) => key ?? ""}
      empty={<p class="muted">{isSearched ? "No such key has open tasks." : "No task waits or runs. Tasks with a key share the queue fairly, and limits of keys hold each key back by itself."}</p>}
      columns={[
        { id: "key", label: "Key", grow: true, cell: ({ key }) => (key ? <a class="mono" href={href(["queues", name], { key })}>{key}</a> : <span class="muted">without a key</span>) },
        { id: "waiting", label: "Waiting", number: true, cell: ({ waiting }) => numberText(waiting) },
        { id: "running", label: "Running", number: true, cell: ({ key, running }) => (limit && key ? `${numberText(running)} / ${numberText(limit)}` : numberText(running)) },
        { id: "oldest", label: "Oldest", number: true, cell: ({ oldest_at, waiting }) => <Oldest at={oldest_at} waits={waiting > 0} /> },
        { id: "weight", label: "Weight", number: true, cell: ({ key }) => numberText(weights.get(key ?? "") ?? 1) },
        { id: "held", label: "Held back", cell: ({ held_back_by, opens_at, waiting }) => <HeldBack by={held_back_by && `key_${held_back_by}`} until={held_back_by === "rate" ? opens_at : null} otherwise={waiting > 0 && hold ? <span class="muted">{holdText(hold)}</span> : null} /> },
      ]}
    />
  );
}
