/** Owns the form that changes the limits of a queue: what changes, and a save that replaces only settings that were seen. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api } from "../../api/client";
import { curlLine } from "../../api/commands";
import { Problem, hasCode } from "../../api/errors";
import { printJson } from "../../api/json";
import type { QueueSettings, QueueView } from "../../api/model";
import { ActionDialog } from "../../ui/ActionDialog";
import { Checkbox, Input, TextArea } from "../../ui/Field";
import { countText } from "../../ui/format";
import { toast } from "../../ui/Toasts";
import { refusalText } from "../schedules/form";
import { type Entered, type FieldErrors, commandOf, enteredOf, rebase, refusedField, settingsOf } from "./form";
import { type SettingChange, changesOf, isDrained, replacement } from "./words";

export interface SettingsDialogProps {
  name: string;
  view: QueueView;
  onClose: () => void;
  onDone: () => void;
}

export function SettingsDialog({ name, view, onClose, onDone }: SettingsDialogProps) {
  const { before, entered, errors, settings, isRebased, set, refuse } = useForm(view.settings ?? {});
  const isDrainMeant = useSignal(false);
  const changes = changesOf(before, settings);
  const isDraining = isDrained(settings) && !isDrained(before);
  const path = { path: { id: name } };
  const body = replacement(before, settings);
  return (
    <ActionDialog
      title={`Limits of ${name}`}
      verb="Save"
      wide
      danger={isDraining}
      disabled={changes.length === 0 || Object.keys(errors.entered).length > 0 || (isDraining && !isDrainMeant.value)}
      warning={isRebased ? "The settings were changed since this form was opened. What you did not enter yourself is what is stored now." : undefined}
      lines={{ cli: commandOf(name, before, settings), curl: curlLine("PUT", "/v1/queues/{id}", path, body) }}
      action={async () => {
        await api.put("/v1/queues/{id}", body, path).catch((error: unknown) => {
          // The page loads what is stored, and the form takes it over.
          if (hasCode(error, "queue_changed")) onDone();
          return refuse(error);
        });
        toast(`Stored the limits of ${name}.`);
        onDone();
      }}
      onClose={onClose}
    >
      <Fields entered={entered} errors={errors.all} set={set} />
      <Changes changes={changes} effects={effectsOf(view, settings)} />
      {isDraining && <Checkbox label="Refuse every new standalone task until the limit is removed" checked={isDrainMeant.value} onChange={(checked) => (isDrainMeant.value = checked)} />}
    </ActionDialog>
  );
}

/** Returns what is entered on top of the stored settings, and the errors of its fields: of the form itself, and of a refusal. */
function useForm(stored: QueueSettings) {
  const before = useSignal(stored);
  const entered = useSignal<Entered>(enteredOf(stored));
  const refused = useSignal<FieldErrors>({});
  const isRebased = useSignal(false);
  useEffect(() => {
    if (printJson(stored) === printJson(before.peek())) return;
    entered.value = rebase(entered.peek(), before.peek(), stored);
    before.value = stored;
    isRebased.value = true;
  }, [printJson(stored)]);
  const { settings, errors } = settingsOf(entered.value, before.value);
  return {
    before: before.value, entered: entered.value, settings, isRebased: isRebased.value,
    errors: { entered: errors, all: { ...errors, ...refused.value } },
    set: (patch: Partial<Entered>) => {
      entered.value = { ...entered.value, ...patch };
      refused.value = {};
    },
    /** Shows a refusal at its field, too. */
    refuse: (error: unknown): never => {
      const field = error instanceof Problem ? refusedField(error) : null;
      refused.value = field && error instanceof Problem ? { [field]: refusalText(error) } : {};
      throw error;
    },
  };
}

function Fields({ entered, errors, set }: { entered: Entered; errors: FieldErrors; set: (patch: Partial<Entered>) => void }) {
  return (
    <>
      <p class="muted">An empty field is no limit. Limits of keys do not concern tasks without a key.</p>
      <div class="columns">
        <Input label="Running tasks" autoFocus value={entered.concurrency} error={errors.concurrency} hint="That run at a time." onInput={(concurrency) => set({ concurrency })} />
        <Input label="Running tasks of each key" value={entered.keyConcurrency} error={errors.keyConcurrency} onInput={(keyConcurrency) => set({ keyConcurrency })} />
        <Input label="Starts" value={entered.rateStarts} error={errors.rateStarts} hint="Attempts that may begin in each period." onInput={(rateStarts) => set({ rateStarts })} />
        <Input label="Period" value={entered.ratePeriod} error={errors.ratePeriod} placeholder="1m" hint="Such as 10s, 1m or 1h; up to 31 days." onInput={(ratePeriod) => set({ ratePeriod })} />
        <Input label="Starts of each key" value={entered.keyRateStarts} error={errors.keyRateStarts} onInput={(keyRateStarts) => set({ keyRateStarts })} />
        <Input label="Period of each key" value={entered.keyRatePeriod} error={errors.keyRatePeriod} placeholder="1m" onInput={(keyRatePeriod) => set({ keyRatePeriod })} />
        <Input label="Waiting tasks" value={entered.depth} error={errors.depth} hint="At which a standalone task is refused; 0 drains the queue." onInput={(depth) => set({ depth })} />
        <TextArea label="Weights" mono rows={3} value={entered.weights} error={errors.weights} placeholder="tenant-7 = 3" hint="Keys that get more than one task in each turn; one per line." onInput={(weights) => set({ weights })} />
      </div>
    </>
  );
}

function Changes({ changes, effects }: { changes: readonly SettingChange[]; effects: readonly string[] }) {
  return (
    <section class="section" aria-label="Changes" aria-live="polite">
      <h3>Changes</h3>
      {changes.length === 0 ? <p class="muted">Nothing changes.</p> : (
        <ul class="queue-changes">
          {changes.map(({ label, from, to }) => (
            <li key={label}>{label}: <del>{from}</del> → <ins>{to}</ins></li>
          ))}
        </ul>
      )}
      {effects.map((effect) => <p key={effect} class="note note-warning">{effect}</p>)}
    </section>
  );
}

/** Returns what the settings mean for the tasks that run and wait now. */
function effectsOf({ running, queued }: QueueView, { concurrency_max, depth_max }: QueueSettings): string[] {
  const effects = [];
  if (typeof concurrency_max === "number" && running > concurrency_max) {
    effects.push(`${countText(running, "task")} run now. They continue, and nothing begins until fewer than ${concurrency_max} run.`);
  }
  if (typeof depth_max === "number" && depth_max > 0 && queued >= depth_max) {
    effects.push(`${countText(queued, "task")} wait now, so new standalone tasks are refused.`);
  }
  if (depth_max === 0) effects.push("Every new standalone task is refused. Tasks that wait are handed out, and what runs schedule is queued.");
  return effects;
}
