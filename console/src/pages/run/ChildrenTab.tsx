/** Owns the tree of runs below a run; each level is loaded when it is opened. */
import { useSignal } from "@preact/signals";
import { api } from "../../api/client";
import type { Run } from "../../api/model";
import { Button } from "../../ui/Button";
import { EmptyState, Loading } from "../../ui/EmptyState";
import { ErrorNote } from "../../ui/ErrorPage";
import { useLoad } from "../../ui/hooks";
import { href } from "../../ui/router";
import { StatusDot } from "../../ui/Status";
import { Duration, Time } from "../../ui/Time";

const LIMIT = 100;

export function ChildrenTab({ run }: { run: string }) {
  return (
    <div class="tab-scroll">
      <Level run={run} depth={0} />
    </div>
  );
}

function Level({ run, depth }: { run: string; depth: number }) {
  const more = useSignal<Run[]>([]);
  const cursor = useSignal<string | null | undefined>(undefined);
  const loaded = useLoad((signal) => api.get("/v1/runs/{id}/children", { path: { id: run }, query: { limit: LIMIT }, signal }), [run]);
  const page = loaded.data.value;
  if (loaded.error.value) return <ErrorNote error={loaded.error.value} />;
  if (!page) return <Loading />;
  const next = cursor.value === undefined ? page.next : cursor.value;
  const runs = [...page.runs, ...more.value];
  if (runs.length === 0) return depth === 0 ? <EmptyState title="This run has started no other runs" /> : <p class="muted tree-none">no runs below</p>;
  const loadMore = async () => {
    const following = await api.get("/v1/runs/{id}/children", { path: { id: run }, query: { limit: LIMIT, cursor: next } });
    more.value = [...more.value, ...following.runs];
    cursor.value = following.next;
  };
  return (
    <>
      <div class="tree" role={depth === 0 ? "tree" : "group"} aria-label={`Runs below ${run}`}>
        {runs.map((child) => <Child key={child.id} run={child} depth={depth} />)}
      </div>
      {next && <Button small onClick={() => void loadMore()}>Show more</Button>}
    </>
  );
}

function Child({ run, depth }: { run: Run; depth: number }) {
  const open = useSignal(false);
  return (
    <div role="treeitem" aria-expanded={open.value} aria-level={depth + 1} class="tree-item">
      <div class="tree-row">
        <Button kind="quiet" small icon={open.value ? "down" : "right"} label={`Runs below ${run.id}`} expanded={open.value} onClick={() => (open.value = !open.value)} />
        <StatusDot status={run.status} />
        <a class="ellipsis" href={href(["runs", run.id])}>{run.id}</a>
        <span class="muted ellipsis">{run.kind}</span>
        <span class="muted tree-when"><Time at={run.created_at} /> · <Duration from={run.created_at} to={run.ended_at} /></span>
      </div>
      {open.value && <div class="tree-group"><Level run={run.id} depth={depth + 1} /></div>}
    </div>
  );
}
