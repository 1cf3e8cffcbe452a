/** Owns the display of a failure: code, message, causes and details. */
import { PayloadView } from "../../ui/Json";
import type { Failure } from "./model";

export function FailureView({ failure }: { failure: Failure }) {
  return (
    <div class="failure">
      <p><code class="bad">{failure.code}</code> {failure.message}</p>
      {failure.causes.length > 0 && <ol class="causes">{failure.causes.map((cause, at) => <li key={at}>{cause}</li>)}</ol>}
      {failure.details && <PayloadView payload={failure.details} label="Details" />}
      {!failure.retryable && <p class="muted">Not retried: the failure is final.</p>}
    </div>
  );
}
