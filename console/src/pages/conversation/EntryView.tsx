/** Owns one entry of a conversation: who said it, what it cost, what follows from it, and its alternatives on other branches. */
import { memo } from "./memo";
import { Button } from "../../ui/Button";
import { CopyButton } from "../../ui/CopyButton";
import { countText, moneyText, numberText } from "../../ui/format";
import { PayloadView } from "../../ui/Json";
import { href } from "../../ui/router";
import { Badge } from "../../ui/Status";
import { Time } from "../../ui/Time";
import { eventRef } from "../run/model";
import { shortSpan } from "../run/waterfall";
import { Blocks } from "./Blocks";
import { blocksOf, gist, replyInfo, stopText, textOf, type Usage } from "./content";
import { roleTone } from "./EntryPreview";
import { type CheckpointMark, type Conversation, costOf, type EntryNode } from "./fold";
import { toolRunsOf } from "./toolRuns";

export interface EntryViewProps {
  run: string;
  conversation: Conversation;
  /** Counts changes: an entry itself never changes, what its calls did does. */
  version: number;
  entry: EntryNode;
  number: number;
  siblings: readonly EntryNode[];
  checkpoint: CheckpointMark | null;
  isSelected: boolean;
  canBranch: boolean;
  onSibling: (entry: EntryNode) => void;
  onBranch: (entry: EntryNode, replaces: boolean) => void;
  onSaw: (entry: EntryNode) => void;
}

export const EntryView = memo(function EntryView(props: EntryViewProps) {
  const { run, conversation, entry, siblings, checkpoint } = props;
  const blocks = blocksOf(entry.content);
  const at = siblings.findIndex((one) => one.id === entry.id);
  return (
    <>
      <article id={`entry-${entry.id}`} class={`entry entry-${roleTone(entry.role)}${props.isSelected ? " entry-selected" : ""}${entry.isAbandoned ? " entry-abandoned" : ""}`} aria-label={`Entry ${props.number} of ${entry.role}`}>
        <header class="entry-head">
          <strong class="entry-role">{entry.role}</strong>
          {entry.isAbandoned && <Badge text="abandoned" />}
          <span class="muted"><Time at={entry.at} mode="clock" /></span>
          {siblings.length > 1 && (
            <span class="switcher" role="group" aria-label="Alternatives on other branches">
              <Button kind="quiet" small icon="left" label="Earlier alternative" disabled={at <= 0} onClick={() => siblings[at - 1] && props.onSibling(siblings[at - 1]!)} />
              <span class="tabular">{at + 1} / {siblings.length}</span>
              <Button kind="quiet" small icon="right" label="Later alternative" disabled={at >= siblings.length - 1} onClick={() => siblings[at + 1] && props.onSibling(siblings[at + 1]!)} />
            </span>
          )}
          <span class="entry-tools">
            {entry.call && <Button kind="quiet" small onClick={() => props.onSaw(entry)}>What it saw</Button>}
            {props.canBranch && entry.role === "user" && <Button kind="quiet" small onClick={() => props.onBranch(entry, true)}>Edit</Button>}
            {props.canBranch && <Button kind="quiet" small icon="branch" onClick={() => props.onBranch(entry, false)}>Branch</Button>}
            <CopyButton text={() => textOf(blocks) || gist(blocks)} label="Copy the text" />
            <a class="entry-link muted" href={href(["runs", run, "log"], { event: eventRef(entry.generation, entry.index) })} title="The event in the log">{eventRef(entry.generation, entry.index)}</a>
          </span>
        </header>
        <div class="entry-body">
          {entry.content === null ? <p class="muted">The content is not in the loaded part of the log.</p> : (
            <Blocks blocks={blocks} run={run} runsOf={(call, nth) => toolRunsOf(conversation, entry, call.name, call.arguments, nth)} />
          )}
          {blocks.length === 0 && entry.content !== null && <p class="muted">empty</p>}
        </div>
        <Cost entry={entry} />
      </article>
      {checkpoint && <Checkpoint mark={checkpoint} run={run} />}
    </>
  );
});

function Cost({ entry }: { entry: EntryNode }) {
  const info = replyInfo(entry.content);
  if (!info && !entry.call) return null;
  const spent = entry.call ? costOf(entry.call) : null;
  const tokens = spent && spent.attempts > 0 ? spent.tokens : info?.usage;
  const took = entry.call?.endedAt ? Date.parse(entry.call.endedAt) - Date.parse(entry.call.at) : null;
  return (
    <footer class="entry-cost muted tabular">
      <span>{info?.model || entry.call?.model}</span>
      {tokens && <span title={tokenTitle(tokens)}>{`${numberText(tokens.input + tokens.cached_read + tokens.cached_write)} in, ${numberText(tokens.output)} out`}</span>}
      {spent?.cost && <span>{moneyText(spent.cost)}</span>}
      {spent && spent.unknown > 0 && <span>cost unknown</span>}
      {spent && spent.attempts > 1 && <span>{spent.attempts} attempts</span>}
      {took !== null && <span>{shortSpan(took)}</span>}
      {info?.stop && (info.stop === "end" || info.stop === "tool_calls" ? <span>{stopText(info.stop)}</span> : <Badge text={stopText(info.stop)} tone="warn" />)}
    </footer>
  );
}

export function tokenTitle(tokens: Usage): string {
  const parts = [`input ${tokens.input}`, tokens.cached_read && `read from the cache ${tokens.cached_read}`, tokens.cached_write && `written to the cache ${tokens.cached_write}`, `output ${tokens.output}`, tokens.reasoning && `of it reasoning ${tokens.reasoning}`];
  return parts.filter(Boolean).join(", ");
}

function Checkpoint({ mark, run }: { mark: CheckpointMark; run: string }) {
  return (
    <details class="checkpoint">
      <summary>
        checkpoint · {countText(mark.depth, "entry", "entries")}
        {mark.awaits && ` · waits for ${mark.awaits}`}
        {mark.handoff && ` · handed over to ${mark.handoff}`}
      </summary>
      <div class="checkpoint-body">
        <a href={href(["runs", run, "log"], { event: eventRef(mark.generation, mark.index) })}>event {eventRef(mark.generation, mark.index)}</a>
        <PayloadView payload={mark.state} label="State of the agent" />
      </div>
    </details>
  );
}
