/** Owns the page of kinds: versions, schemas, workers, and the runs that wait for a worker. */
import { useSignal } from "@preact/signals";
import { api } from "../../api/client";
import type { Kind, Run } from "../../api/model";
import { can } from "../../api/session";
import { Button } from "../../ui/Button";
import { EmptyState } from "../../ui/EmptyState";
import { Json } from "../../ui/Json";
import { Badge } from "../../ui/Status";
import { Table } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { countText, numberText } from "../../ui/format";
import { href } from "../../ui/router";
import { OperationsPage } from "./Page";
import { usePolled } from "./usePolled";

const PENDING_MAX = 1000;

interface Stranded {
  kind: string;
  runs: Run[];
  /** There may be more than the listed ones. */
  more: boolean;
}

async function load(signal: AbortSignal) {
  const [{ kinds }, page, { versions }] = await Promise.all([
    api.get("/v1/kinds", { signal }),
    api.get("/v1/runs", { signal, query: { status: ["pending"], limit: PENDING_MAX } }),
    api.get("/v1/versions", { signal }),
  ]);
  return { kinds, stranded: strandedOf(kinds, page.runs, page.next !== null), versions };
}

/** Returns the kinds without workers for which runs wait. */
function strandedOf(kinds: readonly Kind[], pending: readonly Run[], more: boolean): Stranded[] {
  const served = new Set(kinds.filter((kind) => kind.type === "workflow" && workersOf(kind) > 0).map((kind) => kind.kind));
  const waiting = new Map<string, Run[]>();
  for (const run of pending) {
    if (!served.has(run.kind)) waiting.set(run.kind, [...(waiting.get(run.kind) ?? []), run]);
  }
  return [...waiting].map(([kind, runs]) => ({ kind, runs, more })).sort((a, b) => b.runs.length - a.runs.length);
}

function workersOf(kind: Kind): number {
  return Math.max(0, ...kind.versions.map((version) => version.workers));
}

export function KindsPage() {
  const loaded = usePolled(load);
  const shown = useSignal<string | null>(null);
  return (
    <OperationsPage title="Kinds" loaded={loaded}>
      {({ kinds, stranded, versions }) => (
        <>
          {stranded.length > 0 && <StrandedRuns stranded={stranded} />}
          <Table
            label="Kinds"
            rows={kinds}
            rowKey={(kind) => `${kind.type} ${kind.kind}`}
            empty={<EmptyState title="No kind is known">Workers declare their kinds when they connect.</EmptyState>}
            columns={[
              { id: "kind", label: "Kind", grow: true, cell: (kind) => (kind.type === "workflow" ? <a class="mono" href={href(["runs"], { kind: kind.kind })}>{kind.kind}</a> : <span class="mono">{kind.kind}</span>) },
              { id: "type", label: "Type", cell: (kind) => kind.type },
              { id: "versions", label: "Versions", cell: (kind) => kind.versions.flatMap((version) => (version.version ? [version.version] : [])).join(", ") || "–" },
              { id: "open", label: "Open runs", number: true, cell: (kind) => (kind.type === "workflow" ? numberText(versions.filter((item) => item.kind === kind.kind).reduce((sum, item) => sum + item.open, 0)) : "") },
              { id: "workers", label: "Workers", number: true, cell: (kind) => (workersOf(kind) === 0 ? <Badge tone="warn" text="none" /> : workersOf(kind)) },
              {
                id: "actions",
                label: "",
                cell: (kind) => {
                  const id = `${kind.type} ${kind.kind}`;
                  return (
                    <span class="row">
                      {kind.type === "workflow" && can("start") && (
                        <Button small href={href(["runs"], { kind: kind.kind, start: kind.kind })}>
                          Start
                        </Button>
                      )}
                      {kind.versions.some(hasSchemas) && (
                        <Button small expanded={shown.value === id} onClick={() => (shown.value = shown.value === id ? null : id)}>
                          Schemas
                        </Button>
                      )}
                    </span>
                  );
                },
              },
            ]}
            below={(kind) => shown.value === `${kind.type} ${kind.kind}` && <SchemasOf kind={kind} />}
          />
        </>
      )}
    </OperationsPage>
  );
}

type Version = Kind["versions"][number];

function hasSchemas(version: Version): boolean {
  const named = [version.signals, version.updates, version.update_answers];
  return Boolean(version.input_schema || version.output_schema) || named.some((schemas) => Object.keys(schemas).length > 0);
}

/** Returns the schemas of a version with their titles. */
function schemasOf(version: Version): [string, unknown][] {
  const named = (what: string, schemas: Version["signals"]) =>
    Object.entries(schemas).map(([name, schema]): [string, unknown] => [`${what} ${name}`, schema]);
  return [
    ["Input", version.input_schema ?? null],
    ["Output", version.output_schema ?? null],
    ...named("Signal", version.signals),
    ...named("Update", version.updates),
    ...named("Answer of update", version.update_answers),
  ];
}

function SchemasOf({ kind }: { kind: Kind }) {
  return (
    <div class="stack">
      {kind.versions.map((version) => (
        <section class="section" key={version.version ?? ""}>
          <h3>
            {version.version ? `Version ${version.version}` : "Without version"}
            {version.registered_at && <span class="muted"> · declared <Time at={version.registered_at} /></span>}
          </h3>
          <div class="schemas">
            {schemasOf(version).map(([title, schema]) => (
              <div class="section" key={title}>
                <span class="muted">{title}</span>
                <Json value={schema} open={3} label={`${title} schema`} />
              </div>
            ))}
          </div>
        </section>
      ))}
    </div>
  );
}

function StrandedRuns({ stranded }: { stranded: Stranded[] }) {
  return (
    <section class="note note-warning section" aria-label="Kinds without workers">
      <h2>Runs wait for a worker</h2>
      {stranded.map(({ kind, runs, more }) => (
        <div key={kind} class="row">
          <span class="mono">{kind}</span>
          <a href={href(["runs"], { kind, status: "pending" })}>{`${countText(runs.length, "pending run")}${more ? " or more" : ""}`}</a>
          <span>oldest <Time at={runs.at(-1)?.created_at} /></span>
        </div>
      ))}
      <p>Connect a worker that has code for these kinds to this server.</p>
    </section>
  );
}
