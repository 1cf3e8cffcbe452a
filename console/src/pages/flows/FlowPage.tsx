/** Owns the page of one flow: its picture, its document, and its versions with what changed between them. */
import { useMemo } from "preact/hooks";
import { api } from "../../api/client";
import { namespace } from "../../api/identity";
import { can } from "../../api/session";
import { Button } from "../../ui/Button";
import { CopyButton } from "../../ui/CopyButton";
import { EmptyState } from "../../ui/EmptyState";
import { numberText } from "../../ui/format";
import { href } from "../../ui/router";
import { Badge } from "../../ui/Status";
import { Table } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { OperationsPage } from "../operations/Page";
import { usePolled } from "../operations/usePolled";
import type { PageProps } from "../registry";
import { FlowVersions } from "./flowVersions";
import { diffLines } from "./lineDiff";
import { Picture } from "./Picture";

export function FlowPage({ params, route }: PageProps) {
  const name = params.name ?? "";
  const versions = useMemo(() => new FlowVersions(name), [name, namespace.value]);
  const loaded = usePolled(
    (signal) =>
      versions.load({
        flows: () => api.get("/v1/flows", { signal }),
        versions: () => api.get("/v1/versions", { signal }),
        documents: () => api.get("/v1/flows/{id}", { path: { id: name }, signal }),
      }),
    [name],
  );
  const actions = (
    <>
      <Button href={href(["runs"], { kind: name })}>Runs</Button>
      {can("start") && <Button kind="primary" icon="plus" href={href(["runs"], { kind: name, start: name })}>Start a run</Button>}
    </>
  );
  return (
    <OperationsPage title={name} loaded={loaded} actions={loaded.data.value && actions}>
      {({ flows }) => {
        // The newest is the current one.
        const wanted = route.query.get("version") ?? flows[0]?.version;
        const at = flows.findIndex((flow) => flow.version === wanted);
        const [shown, before] = at < 0 ? [] : flows.slice(at);
        return (
          <>
            <div class="flow-versions">
              <Table
                label="Versions"
                rows={flows}
                rowKey={(flow) => flow.version}
                columns={[
                  {
                    id: "version", label: "Version", grow: true, cell: (flow) => (
                      <span class="row">
                        <a class="mono" aria-current={flow === shown ? "true" : undefined} href={href(["flows", name], flow.is_current ? {} : { version: flow.version })}>{flow.version}</a>
                        {flow.is_current && <Badge tone="good" text="current" />}
                        {flow.is_imported && <Badge text="imported" />}
                      </span>
                    ),
                  },
                  { id: "applied", label: "Applied", cell: (flow) => <Time at={flow.applied_at} mode="both" /> },
                  { id: "open", label: "Open runs", number: true, cell: (flow) => numberText(flow.open_runs) },
                ]}
              />
            </div>
            {shown ? <Version name={name} version={shown.version} document={shown.document ?? ""} before={before} /> : (
              <EmptyState title="This version is not stored">Choose one of the versions above.</EmptyState>
            )}
          </>
        );
      }}
    </OperationsPage>
  );
}

function Version({ name, version, document, before }: { name: string; version: string; document: string; before: { version: string; document?: string | null } | undefined }) {
  return (
    <>
      <section class="section" aria-label="Picture">
        <h2>Graph</h2>
        <Picture path="/v1/flows/{id}/graph" options={{ path: { id: name }, query: { version } }} label={`Graph of ${name}`} />
      </section>
      {before && (
        <section class="section" aria-label="Changes">
          <h2>Changes since <a class="mono" href={href(["flows", name], { version: before.version })}>{before.version}</a></h2>
          <Changes left={before.document ?? ""} right={document} />
        </section>
      )}
      <section class="section" aria-label="Document">
        <h2 class="flow-title">Document <CopyButton text={document} label="Copy the document" /></h2>
        <pre class="flow-document" tabIndex={0}>{document}</pre>
      </section>
    </>
  );
}

const SIGNS = { same: " ", removed: "-", added: "+" } as const;
const CONTEXT = 3;

/** The changed lines with three lines around them. */
function Changes({ left, right }: { left: string; right: string }) {
  const lines = useMemo(() => diffLines(left, right), [left, right]);
  // The line in the newer document before which a change is.
  const numbers: number[] = [];
  const isShown = new Set<number>();
  let number = 1;
  for (const [at, { change }] of lines.entries()) {
    numbers.push(number);
    if (change !== "removed") number++;
    if (change === "same") continue;
    for (let near = at - CONTEXT; near <= at + CONTEXT; near++) isShown.add(near);
  }
  // Documents end with a line break: the empty text after it is no line.
  const last = lines.length - 1;
  if (lines[last]?.change === "same" && lines[last].text === "") isShown.delete(last);
  if (isShown.size === 0) return <p class="muted">The documents are equal.</p>;
  return (
    <pre class="flow-document flow-changes" tabIndex={0}>
      {lines.map(({ change, text }, at) => isShown.has(at) && (
        <span key={at} class={`diff-${change}`}>
          {!isShown.has(at - 1) && <span class="diff-place">line {numbers[at]}</span>}
          {`${SIGNS[change]} ${text}`}
        </span>
      ))}
    </pre>
  );
}
