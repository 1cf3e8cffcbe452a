/** Owns the page of servers and databases. */
import { api, send } from "../../api/client";
import { Problem, asApiError } from "../../api/errors";
import type { Server } from "../../api/model";
import { session } from "../../api/session";
import { EmptyState } from "../../ui/EmptyState";
import { Badge, StatusDot } from "../../ui/Status";
import { Table } from "../../ui/Table";
import { Duration, Time } from "../../ui/Time";
import { Figure, OperationsPage } from "./Page";
import { type Figures, figuresOf } from "./metrics";
import { usePolled } from "./usePolled";

interface Loaded {
  servers: Server[];
  refusal: string | null;
  /** Lines of the readiness check: databases that are down. */
  degraded: string[];
  figures: Figures | null;
}

async function load(signal: AbortSignal): Promise<Loaded> {
  const [servers, ready, figures] = await Promise.all([
    api.get("/v1/servers", { signal }).catch((error: unknown) => {
      const failed = asApiError(error);
      // Listing servers needs a key for all namespaces; the rest of the page does not.
      if (failed instanceof Problem && failed.status === 403) return failed.message;
      throw error;
    }),
    send("GET", "/readyz", undefined, signal).then((response) => response.text()),
    send("GET", "/metrics", undefined, signal).then((response) => response.text()).then(figuresOf, () => null),
  ]);
  return {
    servers: typeof servers === "string" ? [] : servers.servers,
    refusal: typeof servers === "string" ? servers : null,
    degraded: ready.split("\n").flatMap((line) => (line.startsWith("degraded: ") ? [line.slice(10)] : [])),
    figures,
  };
}

export function ServersPage() {
  const loaded = usePolled(load);
  return (
    <OperationsPage title="Servers" loaded={loaded}>
      {(data) => (
        <>
          {data.figures && <FigureList figures={data.figures} />}
          {data.refusal ? (
            <p class="note">{data.refusal}</p>
          ) : (
            <Table
              label="Servers"
              rows={data.servers}
              rowKey={(server) => server.id}
              empty={<EmptyState title="No server is listed" />}
              columns={[
                { id: "id", label: "Server", grow: true, cell: (server) => <><span class="mono">{server.id}</span> {server.is_this && <Badge text="this one" />}</> },
                { id: "url", label: "Address", cell: (server) => <span class="mono">{server.url}</span> },
                { id: "version", label: "Version", cell: (server) => server.version },
                { id: "up", label: "Up", number: true, cell: (server) => <Duration from={server.started_at} /> },
                { id: "seen", label: "Last seen", number: true, cell: (server) => <Time at={server.last_seen_at} /> },
              ]}
            />
          )}
          <section class="section">
            <h2>Databases</h2>
            {data.degraded.length === 0 ? (
              <StatusDot status="completed" label="All databases answer and accept writes." />
            ) : (
              <ul class="note note-bad">
                {data.degraded.map((line) => (
                  <li key={line}>{line}</li>
                ))}
              </ul>
            )}
          </section>
          {data.servers.length === 0 && session.value && <p class="muted">This page is served by {session.value.server}, version {session.value.version}.</p>}
        </>
      )}
    </OperationsPage>
  );
}

function FigureList({ figures }: { figures: Figures }) {
  return (
    <dl class="figures">
      {figures.map(({ name, value }) => (
        <Figure key={name} name={name} value={value} />
      ))}
    </dl>
  );
}
