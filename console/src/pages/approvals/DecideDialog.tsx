/** Owns the decision of one approval. Its id is chosen once, so a second click is the same decision. */
import { useSignal } from "@preact/signals";
import { api } from "../../api/client";
import { cliLine, curlLine } from "../../api/commands";
import { hasCode } from "../../api/errors";
import type { Approval } from "../../api/model";
import { session } from "../../api/session";
import { ActionDialog } from "../../ui/ActionDialog";
import { AnswerForm, answerBody, answerFlags, noteRefusal, useAnswer } from "../../ui/AnswerForm";
import { Input, TextArea } from "../../ui/Field";
import { PayloadView } from "../../ui/Json";
import { toast } from "../../ui/Toasts";
import { newId } from "../../ui/id";
import { recall, remember } from "../../ui/storage";
import { refreshApprovals, removeApproval } from "./count";

export interface DecideDialogProps {
  approval: Approval;
  approved: boolean;
  onClose: () => void;
  /** Called after any decision of this approval, also that of another person. */
  onDecided?: () => void;
}

export function DecideDialog({ approval, approved, onClose, onDecided }: DecideDialogProps) {
  const feedback = useSignal("");
  const hasKey = session.value?.needs_key ?? false;
  const name = useSignal(recall("name") ?? "");
  const decisionId = useSignal(newId("decision"));
  const answer = useAnswer(approval);
  const body = {
    approved,
    ...(approved && answerBody(approval, answer)),
    decision_id: decisionId.value,
    ...(feedback.value && { feedback: feedback.value }),
    // With keys, the server records the name of the key.
    ...(!hasKey && name.value.trim() && { decided_by: name.value.trim() }),
  };
  const verb = approved ? "Approve" : "Deny";
  const action = async () => {
    if (!hasKey) remember("name", name.value.trim() || null);
    try {
      await api.post("/v1/approvals/{id}", body, { path: { id: approval.id } });
      toast(`${approved ? "Approved" : "Denied"}: ${approval.title}`);
    } catch (error) {
      noteRefusal(answer, error);
      // Another person was faster, or the run no longer waits: nothing is left to decide.
      if (!hasCode(error, "signal_lost", "wait_abandoned", "wait_not_found", "run_closed", "run_not_found")) throw error;
      const why = error instanceof Error ? error.message : "";
      toast(`Not open any more: ${approval.title}`, "error", { hint: `${why}. Your decision has no effect.` });
    }
    removeApproval(approval.id);
    refreshApprovals();
    onDecided?.();
  };
  return (
    <ActionDialog
      title={`${verb}: ${approval.title}`}
      verb={verb}
      danger={!approved}
      wide={approved && Boolean(approval.answer_schema)}
      disabled={approved && !answer.isValid.value}
      lines={{
        cli: cliLine("approval", "decide", approval.id, approved ? "--approve" : "--reject", ...(approved ? answerFlags(approval, answer) : []), feedback.value !== "" && `--feedback=${feedback.value}`, !hasKey && name.value.trim() !== "" && `--by=${name.value.trim()}`, "--decision-id", decisionId.value),
        curl: curlLine("POST", "/v1/approvals/{id}", { path: { id: approval.id } }, body),
      }}
      action={action}
      onClose={onClose}
    >
      <p>{approved ? "The run continues with exactly this:" : "The run does not get this, and continues with your answer:"}</p>
      <PayloadView payload={approval.show} open={3} label="What is decided" />
      {approved && <AnswerForm approval={approval} answer={answer} />}
      <TextArea label="Feedback for the run" rows={2} value={feedback.value} autoFocus={!approved} maxLength={10_000} onInput={(text) => (feedback.value = text)} />
      {!hasKey && <Input label="Your name" value={name.value} hint="Recorded as the decider." onInput={(text) => (name.value = text)} />}
      <p class="muted">A decision cannot be changed.</p>
    </ActionDialog>
  );
}
