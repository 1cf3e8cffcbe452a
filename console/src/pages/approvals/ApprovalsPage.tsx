/** Owns the inbox of approvals: all open questions, oldest first. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { feedState } from "../../api/feed";
import type { Approval } from "../../api/model";
import { EmptyState, Loading } from "../../ui/EmptyState";
import { ErrorPage } from "../../ui/ErrorPage";
import { LiveState } from "../../ui/Live";
import { Select } from "../../ui/Field";
import { countText } from "../../ui/format";
import { useTitle } from "../../ui/hooks";
import { useKeys } from "../../ui/keys";
import { setQuery } from "../../ui/router";
import { toast } from "../../ui/Toasts";
import type { PageProps } from "../registry";
import { ApprovalCard } from "./ApprovalCard";
import { DecideDialog } from "./DecideDialog";
import { approvals, approvalsError, missingDatabases, openApprovals, refreshApprovals } from "./count";

// More cards than a person reads at once only slow the page down.
const SHOWN = 50;

export function ApprovalsPage({ route }: PageProps) {
  useTitle(() => (openApprovals.value > 0 ? `(${openApprovals.value}) Approvals` : "Approvals"));
  const deciding = useSignal<{ approval: Approval; approved: boolean } | null>(null);
  const name = route.query.get("name") ?? "";
  const wanted = route.query.get("id");
  const all = approvals.value;
  const names = [...new Set(all?.map((approval) => approval.name) ?? [])].sort();
  const shown = (all ?? []).filter((approval) => name === "" || approval.name === name);
  const active = useSignal(-1);
  useEffect(() => refreshApprovals(0), []);
  useEffect(() => {
    const index = shown.findIndex((approval) => approval.id === wanted);
    if (index >= 0) focus(index);
    else if (wanted !== null && all !== null) {
      toast("This approval is not open any more.");
      setQuery({ id: null });
    }
  }, [wanted, all === null]);
  const focus = (to: number) => {
    const index = Math.max(0, Math.min(shown.length - 1, to));
    active.value = index;
    const card = document.querySelector<HTMLElement>(`[data-approval="${CSS.escape(shown[index]?.id ?? "")}"]`);
    card?.focus({ preventScroll: true });
    card?.scrollIntoView({ block: "nearest" });
  };
  const decide = (approved: boolean) => {
    const approval = shown[active.value];
    if (approval) deciding.value = { approval, approved };
  };
  useKeys("Approvals", [
    { keys: "j", what: "next approval", run: () => focus(active.value + 1) },
    { keys: "k", what: "previous approval", run: () => focus(active.value - 1) },
    { keys: "a", what: "approve", run: () => decide(true) },
    { keys: "d", what: "deny", run: () => decide(false) },
  ]);
  return (
    <div class="page approvals-page">
      <div class="page-head">
        <h1>Approvals</h1>
        <LiveState state={feedState.value} />
        {names.length > 1 && (
          <div class="page-actions">
            <Select label="Approval" quiet value={name} options={[{ value: "", label: "all approvals" }, ...names]} onChange={(chosen) => setQuery({ name: chosen || null })} />
          </div>
        )}
      </div>
      {missingDatabases.value.length > 0 && <p class="note note-warning">Approvals of these databases are missing, because they are down: {missingDatabases.value.join(", ")}</p>}
      {all === null ? (
        approvalsError.value ? <ErrorPage error={approvalsError.value} retry={() => refreshApprovals(0)} /> : <Loading what="Loading approvals" />
      ) : shown.length === 0 ? (
        <EmptyState title="Nothing waits for a decision">A question appears here as soon as a run asks it.</EmptyState>
      ) : (
        <>
          <p class="muted">{countText(shown.length, "open approval")}, oldest first</p>
          {shown.slice(0, SHOWN).map((approval, index) => (
            <ApprovalCard key={approval.id} approval={approval} active={index === active.value} onDecide={(item, approved) => (deciding.value = { approval: item, approved })} />
          ))}
          {shown.length > SHOWN && <p class="muted">{shown.length - SHOWN} more appear when these are decided.</p>}
        </>
      )}
      {deciding.value && <DecideDialog {...deciding.value} onClose={() => (deciding.value = null)} />}
    </div>
  );
}
