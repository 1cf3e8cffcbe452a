/** Owns one open question: what will run, who may decide, how long it is open. */
import type { Approval } from "../../api/model";
import { can, session } from "../../api/session";
import { Button } from "../../ui/Button";
import { PayloadView } from "../../ui/Json";
import { KeyValue } from "../../ui/KeyValue";
import { Time } from "../../ui/Time";
import { now } from "../../ui/hooks";
import { href } from "../../ui/router";

export interface ApprovalCardProps {
  approval: Approval;
  active: boolean;
  onDecide: (approval: Approval, approved: boolean) => void;
}

export function ApprovalCard({ approval, active, onDecide }: ApprovalCardProps) {
  const key = session.value?.key_name;
  const excluded = key !== null && key !== undefined && approval.deciders.length > 0 && !approval.deciders.includes(key);
  const mayDecide = can("approve");
  return (
    <article class="approval" data-active={active} data-approval={approval.id} tabIndex={-1} aria-label={approval.title}>
      <header class="approval-head">
        <h2>{approval.title}</h2>
        <Expiry deadline={approval.deadline ?? null} />
      </header>
      <div class="approval-main">
        {approval.description && <p class="approval-text">{approval.description}</p>}
        <PayloadView payload={approval.show} open={3} label="What is decided" />
      </div>
      <div class="approval-side">
      <KeyValue
        pairs={[
          ["Run", <a class="mono" href={href(["runs", approval.run])}>{approval.run}</a>],
          ["Approval", approval.name],
          ["Asked", <Time at={approval.requested_at} mode="both" />],
          ["Deciders", decidersText(approval)],
        ]}
      />
      <footer class="approval-foot">
        <Button kind="primary" icon="check" disabled={!mayDecide} onClick={() => onDecide(approval, true)}>
          Approve
        </Button>
        <Button icon="close" disabled={!mayDecide} onClick={() => onDecide(approval, false)}>
          Deny
        </Button>
        {!mayDecide && <span class="muted">This key has no scope approve.</span>}
        {mayDecide && excluded && <span class="muted">The key {key} is not among the deciders.</span>}
      </footer>
      </div>
    </article>
  );
}

function decidersText(approval: Approval): string {
  const names = approval.deciders.length === 0 ? "any" : approval.deciders.join(", ");
  return approval.not_by_requester ? `${names}; not the requester of the run` : names;
}

function Expiry({ deadline }: { deadline: string | null }) {
  if (deadline === null) return <span class="muted">no expiry</span>;
  const left = Date.parse(deadline) - now.value;
  const tone = left < 0 ? "bad" : left < 600_000 ? "warn" : "off";
  return (
    <span class={`badge badge-${tone}`}>
      {left < 0 ? "expired " : "expires "}
      <Time at={deadline} />
    </span>
  );
}
