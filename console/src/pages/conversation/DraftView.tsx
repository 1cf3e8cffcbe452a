/** Owns answers that are being written, and messages that the agent has not read yet. */
import { Icon } from "../../ui/icons";
import { Badge } from "../../ui/Status";
import { numberText } from "../../ui/format";
import { shortSpan } from "../run/waterfall";
import { Blocks, LongText } from "./Blocks";
import { blocksOf } from "./content";
import type { Draft } from "./draft";
import type { ConversationFeed } from "./feed";
import type { WaitingMessage } from "./fold";

export function DraftView({ feed }: { feed: ConversationFeed }) {
  void feed.draftVersion.value;
  const drafts = [...feed.drafts.values()].filter((draft) => draft.text || draft.reasoning || draft.refusal || draft.calls.length > 0 || draft.failure || draft.model);
  return <>{drafts.map((draft) => <One key={draft.task} draft={draft} />)}</>;
}

function One({ draft }: { draft: Draft }) {
  return (
    <article class="entry entry-assistant entry-draft" aria-label="Answer that is being written" aria-busy={!draft.isOver}>
      <header class="entry-head">
        <strong class="entry-role">assistant</strong>
        <Badge text={draft.failure ? "attempt failed" : draft.isOver ? "arriving" : "writing"} tone={draft.failure ? "warn" : "active"} />
        <span class="muted tabular">{draft.model}{draft.attempt > 1 && ` · attempt ${draft.attempt}`}{draft.usage && ` · ${numberText(draft.usage.output)} out`}</span>
      </header>
      <div class="entry-body">
        {draft.reasoning !== "" && (
          <details class="fold fold-reasoning" open={draft.text === "" && draft.calls.length === 0}>
            <summary><Icon name="info" size={12} /> Reasoning</summary>
            <LongText text={draft.reasoning} />
          </details>
        )}
        {draft.text !== "" && <LongText text={draft.text} />}
        {draft.refusal !== "" && <p class="note note-bad">Refused: {draft.refusal}</p>}
        {draft.calls.filter(Boolean).map((call) => (
          <div key={call.id} class="fold fold-call"><div class="fold-line"><Icon name="workers" size={12} /> <strong>{call.name}</strong> <code class="fold-args">{call.arguments}</code></div></div>
        ))}
        {draft.failure && <p class="note note-warning">{draft.failure.message || draft.failure.code}{draft.failure.nextDelayMs !== null && ` · next attempt in ${shortSpan(draft.failure.nextDelayMs)}`}</p>}
        {!draft.isOver && !draft.failure && <span class="caret" aria-hidden="true" />}
      </div>
    </article>
  );
}

export function WaitingView({ waiting }: { waiting: WaitingMessage[] }) {
  return (
    <>
      {waiting.map((message) => (
        <article key={`${message.generation}:${message.index}`} class="entry entry-user entry-waiting" aria-label="Message that waits">
          <header class="entry-head"><strong class="entry-role">{message.role ?? "user"}</strong><Badge text="read in the next turn" tone="wait" /></header>
          <div class="entry-body"><Blocks blocks={blocksOf(message.content)} /></div>
        </article>
      ))}
    </>
  );
}
