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
import { type Preview, usePreview } from "./preview";
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
  const { entered, input, set, setInput, violations, body, errors, isComplete, preview, isSpecEntered, refuse, existing, isReplaced } = useForm(before);
  const { id } = entered;
  const action = async () => {
    if (before === null && !(existing.value === id && isReplaced.value) && (await isThere(id))) {
      [existing.value, isReplaced.value] = [id, false];
      throw new Problem(409, "schedule_exists", `The schedule ${id} exists.`, "choose another id, or replace its definition");
    }
    await api.put("/v1/schedules/{id}", body, { path: { id } }).catch(refuse);
    toast(`Stored ${id}.`);
    onDone?.();
    if (before === null) navigate(href(["schedules", id]));
  };
  return (
    <ActionDialog
      title={before === null ? "Create a schedule" : `Edit ${before.schedule}`}
      verb={before === null ? "Create" : "Replace the definition"}
      wide
      disabled={!isComplete}
      warning={schedule && before && schedule.revision !== before.revision ? "The definition was changed since this form was opened. It is replaced by what is here." : undefined}
      lines={{ cli: commandOf(id, body), curl: curlLine("PUT", "/v1/schedules/{id}", { path: { id: id || "ID" } }, body) }}
      action={action}
      onClose={onClose}
    >
      {before === null && <Input label="Id" required autoFocus value={id} maxLength={150} hint="Without / and @." onInput={(text) => set({ id: text })} />}
      {existing.value !== null && existing.value === id && <Checkbox label={`Replace the definition of ${id}`} checked={isReplaced.value} onChange={(checked) => (isReplaced.value = checked)} />}
      <Target entered={entered} set={set} errors={errors} kinds={kinds} isNew={before === null} input={input} violations={violations} onInput={setInput} />
      <Specification entered={entered} set={set} errors={errors} />
      <NextSlots preview={preview} isAtField={Boolean(errors.cron || errors.every || errors.at || errors.zone || errors.more)} isEntered={isSpecEntered} zone={entered.zone.trim() || "UTC"} />
      <Options entered={entered} set={set} errors={errors} />
    </ActionDialog>
  );
}

/** Returns what is entered, the request that it is, and the errors of its fields: of the form itself, of the preview, and of a refusal. */
function useForm(before: Schedule | null) {
  const entered = useSignal<Entered>(enteredOf(before));
  const input = useSignal<{ value: unknown; isValid: boolean }>({ value: inputOf(before), isValid: true });
  const refused = useSignal<FieldErrors>({});
  const violations = useSignal<readonly Violation[]>([]);
  // The id of a schedule that exists: whether it is replaced is asked.
  const existing = useSignal<string | null>(null);
  const isReplaced = useSignal(false);
  const { body, errors } = putOf(entered.value, input.value.value, before);
  const isSpecEntered = !errors.every && !errors.more && Object.keys(body.spec).some((part) => part !== "time_zone");
  const preview = usePreview(isSpecEntered ? body.spec : null, PREVIEWED).value;
  return {
    entered: entered.value, input: input.value.value, violations: violations.value, body, preview, isSpecEntered, existing, isReplaced,
    errors: { ...errors, ...fieldOf(preview.error), ...refused.value },
    isComplete: entered.value.id !== "" && entered.value.kind !== "" && input.value.isValid && Object.keys(errors).length === 0,
    set: (patch: Partial<Entered>) => {
      entered.value = { ...entered.value, ...patch };
      refused.value = {};
    },
    setInput: (value: unknown, isValid: boolean) => {
      input.value = { value, isValid };
      violations.value = [];
      refused.value = {};
    },
    /** Shows a refusal at its field, too. */
    refuse: (error: unknown): never => {
      refused.value = fieldOf(error);
      violations.value = error instanceof Problem && hasCode(error, "input_invalid") ? error.violations : [];
      throw error;
    },
  };
}

/** Returns the error of the field that a refusal names. */
function fieldOf(error: unknown): FieldErrors {
  const field = error instanceof Problem ? refusedField(error) : null;
  return field && error instanceof Problem ? { [field]: refusalText(error) } : {};
}

function NextSlots({ preview: { slots, error }, isAtField, isEntered, zone }: { preview: Preview; isAtField: boolean; isEntered: boolean; zone: string }) {
  return (
    <section class="section" aria-label="Preview" aria-live="polite">
      <h3>Next slots</h3>
      {slots ? <SlotCalendar slots={slots} zone={zone} />
        : error && !isAtField ? <ErrorNote error={error} />
        : <p class="muted">{error ? "The times are invalid." : isEntered ? "…" : "Enter times to see the next slots."}</p>}
    </section>
  );
}

async function isThere(id: string): Promise<boolean> {
  try {
    await api.get("/v1/schedules/{id}", { path: { id } });
    return true;
  } catch (error) {
    if (hasCode(error, "schedule_not_found")) return false;
    throw error;
  }
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
      <Checkbox label="The texts of the input are templates" hint="With the names slot, schedule, run and cause, for example {{ slot.date }}." checked={entered.template} onChange={(template) => set({ template })} />
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
