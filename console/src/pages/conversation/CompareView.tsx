/** Owns the comparison of two branches side by side. */
import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { Button } from "../../ui/Button";
import { Time } from "../../ui/Time";
import { Marked } from "../run/Divergence";
import type { Piece } from "../run/wordDiff";
import { Blocks } from "./Blocks";
import { compareBranches } from "./compare";
import { blocksOf } from "./content";
import { EntryPreview, roleTone } from "./EntryPreview";
import type { EntryNode } from "./fold";

export interface CompareViewProps {
  left: EntryNode[];
  right: EntryNode[];
  leftName: string;
  rightName: string;
  onClose: () => void;
}

const SHARED_SHOWN = 2;

export function CompareView({ left, right, leftName, rightName, onClose }: CompareViewProps) {
  const all = useSignal(false);
  const { shared, pairs } = useMemo(() => compareBranches(left, right), [left.at(-1)?.id, right.at(-1)?.id, left.length, right.length]);
  const shown = all.value ? shared : shared.slice(-SHARED_SHOWN);
  return (
    <div class="tab-scroll compare">
      <div class="tab-tools">
        <strong>{shared.length} entries are the same</strong>
        <span class="muted">{left.length - shared.length} and {right.length - shared.length} differ</span>
        <div class="tab-tools-end"><Button small icon="close" onClick={onClose}>Close the comparison</Button></div>
      </div>
      {shared.length > shown.length && <p class="log-more muted"><Button small onClick={() => (all.value = true)}>{`Show the first ${shared.length - shown.length} entries`}</Button></p>}
      {shown.map((entry) => <EntryPreview key={entry.id} role={entry.role} content={entry.content} at={entry.at} />)}
      <div class="compare-grid" role="table" aria-label="Branches side by side">
        <div class="compare-row compare-head" role="row">
          <strong role="columnheader">{leftName}</strong><strong role="columnheader">{rightName}</strong>
        </div>
        {pairs.map((pair, at) => (
          <div key={at} class="compare-row" role="row">
            <Cell entry={pair.left} pieces={pair.text?.left ?? null} />
            <Cell entry={pair.right} pieces={pair.text?.right ?? null} />
          </div>
        ))}
        {pairs.length === 0 && <p class="muted">Both end in the same entry.</p>}
      </div>
    </div>
  );
}

function Cell({ entry, pieces }: { entry: EntryNode | null; pieces: Piece[] | null }) {
  if (!entry) return <div class="compare-cell compare-none" role="cell"><span class="visually-hidden">no entry</span></div>;
  const rest = blocksOf(entry.content).filter((block) => block.type !== "text");
  return (
    <div class={`compare-cell said-${roleTone(entry.role)}`} role="cell">
      <header class="row spread"><strong class="entry-role">{entry.role}</strong><span class="muted"><Time at={entry.at} mode="clock" /></span></header>
      {pieces ? <div class="talk-text"><Marked pieces={pieces} mark="mark" /></div> : <Blocks blocks={blocksOf(entry.content)} />}
      {pieces && rest.some((block) => block.type !== "tool_result") && <Blocks blocks={rest} />}
    </div>
  );
}
