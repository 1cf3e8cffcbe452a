/** Owns the decision of one approval from the page of its run: the exact payload, feedback, approve or deny. */
import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { api } from "../../api/client";
import { cliLine, curlLine } from "../../api/commands";
import { type ApiError, asApiError, hasCode } from "../../api/errors";
import { AnswerForm, answerBody, answerFlags, noteRefusal, useAnswer } from "../../ui/AnswerForm";
import { Button } from "../../ui/Button";
import { CommandLines } from "../../ui/CommandLines";
import { Dialog } from "../../ui/Dialog";
import { Loading } from "../../ui/EmptyState";
import { ErrorNote } from "../../ui/ErrorPage";
import { Input, TextArea } from "../../ui/Field";
import { useLoad } from "../../ui/hooks";
import { PayloadView } from "../../ui/Json";
import { KeyValue } from "../../ui/KeyValue";
import { Time } from "../../ui/Time";
import { toast } from "../../ui/Toasts";
import { session } from "../../api/session";
import { onceId } from "./actions";

export interface DecideFormProps {
  id: string;
  run: string;
  onClose: () => void;
  onDone?: () => void;
}

export function DecideForm({ id, run, onClose, onDone }: DecideFormProps) {
  const loaded = useLoad((signal) => api.get("/v1/approvals", { query: { run, limit: 1000 }, signal }), [run]);
  const feedback = useSignal("");
  const by = useSignal("");
  const error = useSignal<ApiError | null>(null);
  const busy = useSignal(false);
  const once = useMemo(onceId, []);
  const approval = loaded.data.value?.approvals.find((one) => one.id === id);
  const answer = useAnswer(approval);
  const body = (approved: boolean) => ({
    approved, ...(approved && answerBody(approval, answer)), decision_id: once, ...(feedback.value.trim() ? { feedback: feedback.value } : {}), ...(by.value.trim() ? { decided_by: by.value.trim() } : {}),
  });
  const decide = async (approved: boolean) => {
    busy.value = true;
    error.value = null;
    try {
      await api.post("/v1/approvals/{id}", body(approved), { path: { id } });
      toast(approved ? "Approved." : "Denied.");
      onDone?.();
      onClose();
    } catch (reason) {
      error.value = asApiError(reason);
      noteRefusal(answer, reason);
      // Another decision came first: the run goes on with it.
      if (hasCode(reason, "signal_lost", "wait_not_found")) onDone?.();
    } finally {
      busy.value = false;
    }
  };
  const flags = [...(feedback.value.trim() ? ["--feedback", feedback.value] : []), ...(by.value.trim() ? ["--by", by.value.trim()] : [])];
  const lines = { cli: cliLine("approval", "decide", id, "--approve", ...answerFlags(approval, answer), ...flags, "--decision-id", once), curl: curlLine("POST", "/v1/approvals/{id}", { path: { id } }, body(true)) };
  return (
    <Dialog
      title={approval?.title ?? "Approval"}
      wide
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Back</Button>
          <Button kind="danger" disabled={!approval} busy={busy.value} onClick={() => void decide(false)}>Deny</Button>
          <Button kind="primary" disabled={!approval || !answer.isValid.value} busy={busy.value} onClick={() => void decide(true)}>Approve</Button>
        </>
      }
    >
      {loaded.loading.value && !approval && <Loading what="Loading the question" />}
      {loaded.error.value && <ErrorNote error={loaded.error.value} />}
      {!loaded.loading.value && loaded.data.value && !approval && <p class="note">This approval is not open any more.</p>}
      {approval && (
        <>
          {approval.description && <p class="talk-text">{approval.description}</p>}
          {approval.show && (
            <div>
              <h3>What will run</h3>
              <PayloadView payload={approval.show} open={4} label="What will run" />
            </div>
          )}
          <KeyValue pairs={[
            ["Requested", <Time at={approval.requested_at} mode="both" />], ["Expires", approval.deadline && <Time at={approval.deadline} mode="both" />],
            ["Deciders", approval.deciders.join(", ")], ["Excluded", approval.not_by_requester && "the requester of the run"],
          ]} />
          <AnswerForm approval={approval} answer={answer} />
          <TextArea label="Feedback for the run" value={feedback.value} onInput={(value) => (feedback.value = value)} rows={2} />
          {!session.value?.key_name && <Input label="Your name" value={by.value} onInput={(value) => (by.value = value)} hint={approval.deciders.length > 0 ? "Must be one of the deciders." : undefined} />}
        </>
      )}
      {error.value && <ErrorNote error={error.value} />}
      <CommandLines lines={lines} />
    </Dialog>
  );
}
