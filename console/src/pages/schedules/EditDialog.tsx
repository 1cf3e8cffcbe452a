/** Owns the form that creates a schedule or replaces its definition, with a preview of the next slots. */
import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { api } from "../../api/client";
import { curlLine } from "../../api/commands";
import { Problem, type Violation, hasCode } from "../../api/errors";
import type { Kind, Overlap, Schedule } from "../../api/model";
import { ActionDialog } from "../../ui/ActionDialog";
import { ErrorNote } from "../../ui/ErrorPage";
import { Checkbox, Input, Select, TextArea } from "../../ui/Field";
import { useLoad } from "../../ui/hooks";
import { JsonInput } from "../../ui/JsonInput";
import { href, navigate } from "../../ui/router";
import { type Schema, initialOf } from "../../ui/schema";
import { SchemaForm } from "../../ui/SchemaForm";
import { toast } from "../../ui/Toasts";
import { OverlapSelect } from "./Actions";
import { type Entered, type FieldErrors, commandOf, enteredOf, inputOf, putOf, refusalText, refusedField } from "./form";
import { usePreview } from "./preview";
import { SlotCalendar } from "./SlotCalendar";
import { knownZones, ownZone } from "./slotDays";

const PREVIEWED = 10;

export interface EditDialogProps {
  /** The schedule to change; null creates one. */
  schedule: Schedule | null;
  onClose: () => void;
  onDone?: () => void;
}

export function EditDialog({ schedule, onClose, onDone }: EditDialogProps) {
  // The definition as it was when the dialog was opened: a later one does not change what is entered.
  const before = useSignal(schedule).value;
  const kinds = useLoad((signal) => api.get("/v1/kinds", { signal }), []).data.value?.kinds ?? null;
  const entered = useSignal<Entered>(enteredOf(before));
  const input = useSignal<{ value: unknown; isValid: boolean }>({ value: inputOf(before), isValid: true });
  const refused = useSignal<FieldErrors>({});
  const violations = useSignal<readonly Violation[]>([]);
  const set = (patch: Partial<Entered>) => {
    entered.value = { ...entered.value, ...patch };
    refused.value = {};
  };
  const { body, errors } = putOf(entered.value, input.value.value, before);
  const { id } = entered.value;
  const isSpecEntered = !errors.every && !errors.more && Object.keys(body.spec).some((part) => part !== "time_zone");
  const preview = usePreview(isSpecEntered ? body.spec : null, PREVIEWED).value;
  const previewField = preview.error instanceof Problem ? refusedField(preview.error) : null;
  const shown: FieldErrors = {
    ...errors,
    ...(previewField && preview.error instanceof Problem && { [previewField]: refusalText(preview.error) }),
    ...refused.value,
  };
  const action = async () => {
    try {
      const stored = await api.put("/v1/schedules/{id}", body, { path: { id } });
      toast(before === null && stored.revision > 0 && stored.created_at !== stored.updated_at ? `Replaced the definition of ${id}.` : `Stored ${id}.`);
      onDone?.();
      if (before === null) navigate(href(["schedules", id]));
    } catch (error) {
      const field = error instanceof Problem ? refusedField(error) : null;
      if (field && error instanceof Problem) refused.value = { [field]: refusalText(error) };
      violations.value = error instanceof Problem && hasCode(error, "input_invalid") ? error.violations : [];
      throw error;
    }
  };
  return (
    <ActionDialog
      title={before === null ? "Create a schedule" : `Edit ${before.schedule}`}
      verb={before === null ? "Create" : "Replace the definition"}
      wide
      disabled={id === "" || entered.value.kind === "" || !input.value.isValid || Object.keys(errors).length > 0}
      warning={schedule && before && schedule.revision !== before.revision ? "The definition was changed since this form was opened. It is replaced by what is here." : undefined}
      lines={{ cli: commandOf(id, body), curl: curlLine("PUT", "/v1/schedules/{id}", { path: { id: id || "ID" } }, body) }}
      action={action}
      onClose={onClose}
    >
      {before === null && <Input label="Id" required autoFocus value={id} maxLength={150} hint="Without / and @. An existing schedule of this id gets the new definition." onInput={(text) => set({ id: text })} />}
      <Target entered={entered.value} set={set} errors={shown} kinds={kinds} isNew={before === null} input={input.value.value} violations={violations.value} onInput={(value, isValid) => { input.value = { value, isValid }; violations.value = []; }} />
      <Specification entered={entered.value} set={set} errors={shown} />
      <section class="section" aria-label="Preview" aria-live="polite">
        <h3>Next slots</h3>
        {preview.slots ? <SlotCalendar slots={preview.slots} zone={entered.value.zone.trim() || "UTC"} />
          : preview.error && !previewField ? <ErrorNote error={preview.error} />
          : <p class="muted">{preview.error ? "The times are invalid." : "Enter times to see the next slots."}</p>}
      </section>
      <Options entered={entered.value} set={set} errors={shown} />
    </ActionDialog>
  );
}

interface PartProps {
  entered: Entered;
  set: (patch: Partial<Entered>) => void;
  errors: FieldErrors;
}

interface TargetProps extends PartProps {
  kinds: readonly Kind[] | null;
  isNew: boolean;
  input: unknown;
  violations: readonly Violation[];
  onInput: (value: unknown, isValid: boolean) => void;
}

function Target({ entered, set, errors, kinds, isNew, input, violations, onInput }: TargetProps) {
  const workflows = useMemo(() => (kinds ?? []).filter((kind) => kind.type === "workflow"), [kinds]);
  const declared = workflows.find(({ kind }) => kind === entered.kind);
  const versions = declared?.versions ?? [];
  const chosen = versions.find(({ version }) => (version ?? "") === entered.version) ?? versions[0];
  // The texts of a template are of another type than the schema's.
  const schema = entered.template ? null : ((chosen?.input_schema ?? null) as Schema | null);
  const choose = (kind: string) => {
    const next = workflows.find((item) => item.kind === kind)?.versions[0]?.input_schema as Schema | null | undefined;
    set({ kind, version: "", force: false });
    if (isNew && next) onInput(initialOf(next, next), true);
  };
  return (
    <>
      <Input label="Kind" required autoFocus={!isNew} value={entered.kind} list={workflows.map(({ kind }) => kind)} error={errors.kind} onInput={choose} />
      {kinds !== null && entered.kind !== "" && !declared && (
        <Checkbox label="Store it although no worker has declared this kind" hint="Its runs wait until a worker connects." checked={entered.force} onChange={(force) => set({ force })} />
      )}
      {(versions.length > 1 || entered.version !== "") && (
        <Select label="Version" value={entered.version} options={[{ value: "", label: "the current one at each start" }, ...versions.flatMap(({ version }) => (version ? [version] : []))]} onChange={(version) => set({ version })} />
      )}
      <SchemaForm key={`${schema === null ? "" : entered.kind} ${entered.version}`} schema={schema} value={input} violations={errors.input ? [...violations, { path: "", message: errors.input }] : violations} onChange={onInput} />
      <Checkbox label="The texts of the input are templates" hint="With the names slot, schedule, run and cause, for example ${{ slot.date }}." checked={entered.template} onChange={(template) => set({ template })} />
    </>
  );
}

const MORE_HINT = 'calendars, except, start_at, end_at and jitter_ms, for example {"except": [{"dates": ["2026-12-24/2027-01-01"]}]}';

function Specification({ entered, set, errors }: PartProps) {
  const zones = useMemo(knownZones, []);
  return (
    <>
      <div class="columns">
        <TextArea label="Cron" mono rows={2} value={entered.cron} error={errors.cron} placeholder="0 9 * * MON-FRI" hint="Minute, hour, day, month, weekday; one expression per line." onInput={(cron) => set({ cron })} />
        <TextArea label="Every" mono rows={2} value={entered.every} error={errors.every} placeholder="15m" hint="Intervals such as 15m, or 1h + 10m with an offset; one per line." onInput={(every) => set({ every })} />
        <Input label="Time zone" value={entered.zone} list={zones} error={errors.zone} placeholder="UTC" hint={`Of expressions and calendars. Yours is ${ownZone()}.`} onInput={(zone) => set({ zone })} />
      </div>
      <details class="more" open={Boolean(entered.at || entered.more || errors.at || errors.more)}>
        <summary>Single times, calendars, exceptions</summary>
        <div class="stack">
          <TextArea label="At" mono rows={2} value={entered.at} error={errors.at} placeholder="2026-12-31T23:00:00Z" hint="Single times with their offset; one per line." onInput={(at) => set({ at })} />
          <JsonInput label="More of the specification" rows={4} value={entered.more} error={errors.more} hint={MORE_HINT} onInput={(more) => set({ more })} />
        </div>
      </details>
    </>
  );
}

function Options({ entered, set, errors }: PartProps) {
  return (
    <>
      <OverlapSelect value={entered.overlap} onChange={(overlap) => set({ overlap: overlap as Overlap })} />
      <Checkbox label="Pause the schedule when a run fails" checked={entered.pauseOnFailure} onChange={(pauseOnFailure) => set({ pauseOnFailure })} />
      <details class="more" open={Boolean(errors.catchUp || errors.bufferMax || errors.deadline || errors.attributes) || undefined}>
        <summary>Catch-up, buffer, deadline, attributes</summary>
        <div class="stack">
          <Input label="Catch-up" value={entered.catchUp} error={errors.catchUp} placeholder="1d" hint="Slots that were not started in time are started late up to this age." onInput={(catchUp) => set({ catchUp })} />
          <Input label="Waiting slots at most" value={entered.bufferMax} error={errors.bufferMax} placeholder="100" hint="With the overlap buffer_all." onInput={(bufferMax) => set({ bufferMax })} />
          <Input label="Deadline of a run" value={entered.deadline} error={errors.deadline} placeholder="none" hint="A run is canceled after this time, such as 1h." onInput={(deadline) => set({ deadline })} />
          <JsonInput label="Attributes" rows={2} value={entered.attributes} error={errors.attributes} hint='By which runs are found, for example {"team": "data"}' onInput={(attributes) => set({ attributes })} />
        </div>
      </details>
    </>
  );
}
