/** Owns the box below a conversation: it sends a message, which steers the agent, or begins a branch. */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { api } from "../../api/client";
import { cliLine, curlLine } from "../../api/commands";
import { type ApiError, asApiError } from "../../api/errors";
import { can } from "../../api/session";
import { Button } from "../../ui/Button";
import { CommandLines } from "../../ui/CommandLines";
import { ErrorNote } from "../../ui/ErrorPage";
import { setQuery } from "../../ui/router";
import { toast } from "../../ui/Toasts";
import { onceId } from "../run/actions";
import { cut, isClosed, type RunView } from "../run/model";
import type { RunSession } from "../run/session";
import { blocksOf, gist, textOf } from "./content";
import type { EntryNode } from "./fold";

export interface BranchPoint {
  /** The conversation continues after this entry; `null` is its beginning. */
  from: string | null;
  replaces: EntryNode | null;
  after: EntryNode | null;
}

const MESSAGE = "message";

/** The signal that the agent reads: `message`, unless it waits for exactly one other. */
export function signalOf(view: Pick<RunView, "awaiting">): string {
  const names = view.awaiting.filter((one) => one.kind === "signal").map((one) => one.name);
  return names.length === 1 && names[0] ? names[0] : MESSAGE;
}

export interface ComposerProps {
  session: RunSession;
  view: RunView;
  branching: BranchPoint | null;
  onBranchEnd: () => void;
}

export function Composer({ session, view, branching, onBranchEnd }: ComposerProps) {
  const text = useSignal("");
  const once = useSignal(onceId());
  const error = useSignal<ApiError | null>(null);
  const busy = useSignal(false);
  const area = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    if (!branching) return;
    if (branching.replaces) {
      const blocks = blocksOf(branching.replaces.content);
      text.value = textOf(blocks) || gist(blocks);
    }
    area.current?.focus();
  }, [branching]);
  if (isClosed(view.status)) return <p class="composer-off muted">The run has ended: it reads no more messages.{view.status === "failed" && " Retry it to continue the conversation."}</p>;
  if (!can("signal")) return <p class="composer-off muted">This key may not send messages (scope signal).</p>;
  const signal = signalOf(view);
  const isBlank = text.value.trim() === "";
  const path = { id: view.id };
  const message = { text: text.value, message_id: once.value, ...(signal === MESSAGE ? {} : { signal }) };
  const branch = branching && { ...(branching.from === null ? {} : { from: branching.from }), ...(isBlank ? {} : { entry: { role: "user", content: text.value } }), idempotency_key: once.value };
  const lines = branch
    ? { cli: cliLine("run", "branch", view.id, branching.from ?? "start", !isBlank && text.value, "--idempotency-key", once.value), curl: curlLine("POST", "/v1/runs/{id}/branch", { path }, branch) }
    : { cli: cliLine("run", "message", view.id, text.value, "--message-id", once.value, ...(signal === MESSAGE ? [] : ["--signal", signal])), curl: curlLine("POST", "/v1/runs/{id}/messages", { path }, message) };
  const send = async () => {
    if (busy.value || (isBlank && !branch)) return;
    busy.value = true;
    error.value = null;
    try {
      if (branch) await api.post("/v1/runs/{id}/branch", branch, { path });
      else await api.post("/v1/runs/{id}/messages", message, { path });
      if (branch) toast("The agent continues on a new branch.");
      text.value = "";
      once.value = onceId();
      setQuery({ leaf: null, entry: null });
      onBranchEnd();
      void session.load();
    } catch (reason) {
      error.value = asApiError(reason);
    } finally {
      busy.value = false;
      area.current?.focus();
    }
  };
  const end = () => {
    if (branching?.replaces) text.value = "";
    onBranchEnd();
  };
  return (
    <form class="composer" onSubmit={(event) => { event.preventDefault(); void send(); }}>
      {branching && (
        <div class="composer-branch row">
          <span class="ellipsis">{branching.replaces ? "Another text in place of: " : branching.after ? "A branch after: " : "A branch from the beginning"}<em>{cut(gist(blocksOf((branching.replaces ?? branching.after)?.content ?? null)), 80)}</em></span>
          <Button small kind="quiet" icon="close" label="Do not branch" onClick={end} />
        </div>
      )}
      <div class="composer-row">
        <textarea
          ref={area} class="input" rows={2} aria-label={branching ? "First message of the branch" : "Message to the agent"} value={text.value}
          placeholder={branching ? "First message of the branch; empty: the next message is answered there" : signal === MESSAGE ? "Message to the agent, also while it works" : `Signal ${signal} to the agent`}
          onInput={(event) => (text.value = event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
              event.preventDefault();
              void send();
            } else if (event.key === "Escape" && branching) {
              event.stopPropagation();
              end();
            }
          }}
        />
        <Button type="submit" kind="primary" busy={busy.value} disabled={isBlank && !branching} title="Ctrl+Enter">{branching ? "Branch" : "Send"}</Button>
      </div>
      {error.value && <ErrorNote error={error.value} />}
      {(!isBlank || branching) && <CommandLines lines={lines} />}
    </form>
  );
}
