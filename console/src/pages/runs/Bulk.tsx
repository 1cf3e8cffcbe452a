/** Owns actions on many runs: on selected ones, or on all that match the filter. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api } from "../../api/client";
import { cliLine, curlLine } from "../../api/commands";
import { type ApiError, asApiError } from "../../api/errors";
import { type Run, isClosed } from "../../api/model";
import { ActionDialog } from "../../ui/ActionDialog";
import { ErrorNote } from "../../ui/ErrorPage";
import { Checkbox, Input } from "../../ui/Field";
import { toast } from "../../ui/Toasts";
import { countText } from "../../ui/format";
import { newId } from "../../ui/id";
import { type Filter, bulkFilter, isEmpty } from "./filter";

export type BulkVerb = "cancel" | "retry" | "pause" | "resume" | "terminate";

export const BULK: Record<BulkVerb, { label: string; applies: (run: Run) => boolean; warning?: string }> = {
  cancel: { label: "Cancel", applies: (run) => !isClosed(run.status), warning: "A canceled run cannot be continued." },
  retry: { label: "Retry", applies: (run) => run.status === "failed" },
  pause: { label: "Pause", applies: (run) => !isClosed(run.status) && run.status !== "paused" },
  resume: { label: "Resume", applies: (run) => run.status === "paused" },
  terminate: { label: "Terminate", applies: (run) => !isClosed(run.status), warning: "Terminated runs end at once: their code does not clean up. This cannot be undone." },
};

const AT_ONCE = 6;

interface Props {
  verb: BulkVerb;
  onClose: () => void;
  onDone: () => void;
}

/** Applies a verb to selected runs, one request each. */
export function SelectedDialog({ verb, runs, onClose, onDone }: Props & { runs: Run[] }) {
  const reason = useSignal("");
  const fitting = runs.filter(BULK[verb].applies);
  const body = verb === "resume" ? {} : { reason: reason.value || undefined };
  const requestId = useSignal(newId("retry"));
  const example = fitting[0]?.id ?? runs[0]?.id ?? "ID";
  const send = (id: string) => {
    const options = { path: { id } };
    if (verb === "retry") return api.post("/v1/runs/{id}/retry", { request_id: `${requestId.value}`, reason: reason.value || undefined }, options);
    if (verb === "resume") return api.post("/v1/runs/{id}/resume", {}, options);
    return api.post(`/v1/runs/{id}/${verb}` as "/v1/runs/{id}/cancel", { reason: reason.value }, options);
  };
  const action = async () => {
    const queue = [...fitting];
    const failed: string[] = [];
    const work = async () => {
      for (let run = queue.shift(); run; run = queue.shift()) {
        try {
          await send(run.id);
        } catch (error) {
          failed.push(`${run.id}: ${asApiError(error).message}`);
        }
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    report(verb, fitting.length - failed.length, failed);
    onDone();
  };
  return (
    <ActionDialog
      title={`${BULK[verb].label} ${countText(fitting.length, "run")}?`}
      verb={`${BULK[verb].label} ${countText(fitting.length, "run")}`}
      danger={BULK[verb].warning !== undefined}
      warning={BULK[verb].warning}
      disabled={fitting.length === 0}
      lines={{ cli: cliLine("run", verb, example, reason.value && verb !== "resume" && `--reason=${reason.value}`), curl: curlLine("POST", `/v1/runs/{id}/${verb}`, { path: { id: example } }, body) }}
      action={action}
      onClose={onClose}
    >
      {fitting.length < runs.length && <p class="muted">{`${countText(runs.length - fitting.length, "selected run")} cannot be ${pastOf(verb)} in the current status and is left out.`}</p>}
      <Sample ids={fitting.map((run) => run.id)} total={fitting.length} />
      {verb !== "resume" && <Input label="Reason" value={reason.value} hint="Recorded in the logs." onInput={(text) => (reason.value = text)} />}
    </ActionDialog>
  );
}

/** Applies a verb to all runs that match the filter, in batches of the server. */
export function FilteredDialog({ verb, filter, runs, onClose, onDone }: Props & { filter: Filter; runs: readonly Run[] }) {
  const reason = useSignal("");
  const unknown = useSignal(false);
  const preview = useSignal<{ matched: number; sample: string[] } | null>(null);
  const refusal = useSignal<ApiError | null>(null);
  const done = useSignal(0);
  const bulkId = useSignal(newId("bulk"));
  const body = {
    verb,
    filter: bulkFilter(filter, runs, Date.now()),
    ...(isEmpty(filter) && { all: true }),
    ...(reason.value && { reason: reason.value }),
    ...(unknown.value && { include_outcome_unknown: true }),
  };
  useEffect(() => {
    api.post("/v1/bulk", { ...body, dry_run: true }).then((answer) => (preview.value = answer), (error: unknown) => (refusal.value = asApiError(error)));
  }, []);
  const action = async () => {
    const failed: string[] = [];
    let cursor: string | undefined;
    do {
      const batch = await api.post("/v1/bulk", { ...body, bulk_id: bulkId.value, limit: 200, cursor });
      done.value += batch.done;
      failed.push(...batch.refused.map((refused) => `${refused.run}: ${refused.code}`));
      cursor = batch.next ?? undefined;
    } while (cursor !== undefined);
    report(verb, done.value, failed);
    onDone();
  };
  const times = filter.since !== "" || filter.from !== "" || filter.until !== "";
  const matched = preview.value?.matched;
  const count = matched === undefined ? "the matching runs" : countText(matched, "run");
  const words = filter.attributes.flatMap((attribute) => ["--attr", `${attribute.name}=${attribute.value}`]);
  return (
    <ActionDialog
      title={`${BULK[verb].label} ${count}?`}
      verb={done.value > 0 ? `${done.value} of ${matched}…` : `${BULK[verb].label} ${count}`}
      danger={BULK[verb].warning !== undefined}
      warning={BULK[verb].warning}
      disabled={matched === undefined || matched === 0}
      lines={{
        // The command has no filter by time.
        cli: times ? null : cliLine("run", "bulk", verb, ...(filter.kind ? ["--kind", filter.kind] : []), ...filter.statuses.flatMap((status) => ["--status", status]), ...words, isEmpty(filter) && "--all", reason.value && `--reason=${reason.value}`),
        curl: curlLine("POST", "/v1/bulk", {}, body),
      }}
      action={action}
      onClose={onClose}
    >
      <p>All runs that match the filter and can be {pastOf(verb)}, not only the listed ones.</p>
      {refusal.value && <ErrorNote error={refusal.value} />}
      {preview.value && <Sample ids={preview.value.sample} total={preview.value.matched} />}
      <Input label="Reason" value={reason.value} hint="Recorded in the logs." onInput={(text) => (reason.value = text)} />
      {verb === "retry" && (
        <Checkbox label="Also runs whose task may already have had its effect" checked={unknown.value} onChange={(checked) => (unknown.value = checked)} hint="Their calls failed with outcome_unknown and would be executed again." />
      )}
    </ActionDialog>
  );
}

function Sample({ ids, total }: { ids: string[]; total: number }) {
  const shown = ids.slice(0, 8);
  return (
    <ul class="sample mono">
      {shown.map((id) => (
        <li key={id} class="ellipsis">{id}</li>
      ))}
      {total > shown.length && <li class="muted">and {total - shown.length} more</li>}
    </ul>
  );
}

function pastOf(verb: BulkVerb): string {
  return { cancel: "canceled", retry: "retried", pause: "paused", resume: "resumed", terminate: "terminated" }[verb];
}

function report(verb: BulkVerb, done: number, failed: string[]): void {
  if (failed.length === 0) toast(`${countText(done, "run")} ${pastOf(verb)}.`);
  else toast(`${countText(done, "run")} ${pastOf(verb)}, ${failed.length} refused.`, "error", { hint: failed.slice(0, 3).join("; ") });
}
