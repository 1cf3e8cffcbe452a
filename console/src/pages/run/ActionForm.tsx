/** Owns the form of one action: its fields, the equal commands, a question before what cannot be undone, and the answer. */
import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { send, urlOf } from "../../api/client";
import { parseJson } from "../../api/json";
import { Problem } from "../../api/errors";
import { ActionDialog } from "../../ui/ActionDialog";
import { Dialog } from "../../ui/Dialog";
import { Button } from "../../ui/Button";
import { Checkbox, Input, Select, TextArea } from "../../ui/Field";
import { Json } from "../../ui/Json";
import { JsonInput } from "../../ui/JsonInput";
import { href, navigate } from "../../ui/router";
import { toast } from "../../ui/Toasts";
import { type Action, type Field, FormError, linesOf, onceId, requestOf, type Values } from "./actions";

export interface ActionFormProps {
  action: Action;
  run: string;
  initial?: Values;
  onClose: () => void;
  onDone?: () => void;
}

const SENT: Record<string, string> = {
  message: "The message was sent.", signal: "The signal was sent.", pause: "The run is paused.", resume: "The run continues.",
  cancel: "The run is being canceled.", terminate: "The run was terminated.", retry: "The run continues from its failure.", delete: "The run was deleted.",
};

export function ActionForm({ action, run, initial = {}, onClose, onDone }: ActionFormProps) {
  const values = useSignal<Values>(initial);
  const wrong = useSignal<FormError | null>(null);
  const confirmed = useSignal(false);
  const answer = useSignal<{ value: unknown } | null>(null);
  const once = useMemo(onceId, []);
  const set = (name: string) => (value: string) => {
    wrong.value = null;
    values.value = { ...values.value, [name]: value };
  };
  const lines = linesOf(action, run, values.value, once);
  const perform = async () => {
    let request;
    try {
      request = requestOf(action, run, values.value, once);
    } catch (error) {
      if (!(error instanceof FormError)) throw error;
      wrong.value = error;
      throw new Problem(0, "form_incomplete", error.message, null);
    }
    const response = await send(request.method, urlOf(request.path, request.options), request.body);
    const text = await response.text();
    finish(text === "" ? undefined : parseJson(text));
  };
  const finish = (body: unknown) => {
    onDone?.();
    if (action.verb === "update" || action.verb === "query") {
      answer.value = { value: body };
      return;
    }
    const id = (body as { id?: unknown } | undefined)?.id;
    if ((action.verb === "fork" || action.verb === "reset") && typeof id === "string") {
      toast(action.verb === "fork" ? "The fork was started." : "The run was reset.", "info", { link: { text: id, href: href(["runs", id]) } });
      navigate(href(["runs", id]));
      return;
    }
    toast(SENT[action.verb] ?? "Done.");
    if (action.verb === "delete") navigate("#/runs");
  };
  const common = action.fields.filter((field) => !field.isRare);
  const rare = action.fields.filter((field) => field.isRare);
  const control = (field: Field) => (
    <Control key={field.name} field={field} value={values.value[field.name] ?? ""} error={wrong.value?.field === field.name ? wrong.value.message : null} onInput={set(field.name)} isFirst={field === common[0]} />
  );
  if (answer.value) {
    return (
      <Dialog title={`${action.label}: the answer`} onClose={onClose} actions={<Button kind="primary" onClick={onClose}>Close</Button>}>
        <Json value={answer.value.value} open={3} label="Answer" />
      </Dialog>
    );
  }
  return (
    <ActionDialog
      title={`${action.label} ${run}`}
      verb={action.label}
      danger={action.isFinal}
      warning={action.isFinal ? `${action.says} This cannot be undone.` : undefined}
      lines={lines}
      disabled={action.isFinal && !confirmed.value}
      action={perform}
      // An answer stays on the screen until it was read.
      onClose={() => { if (answer.value === null) onClose(); }}
    >
      {!action.isFinal && <p class="muted">{action.says}</p>}
      {common.map(control)}
      {rare.length > 0 && (
        <details class="more-fields">
          <summary>More options</summary>
          <div class="more-fields-box">{rare.map(control)}</div>
        </details>
      )}
      {action.isFinal && (
        <Checkbox label={`Yes, ${action.label.toLowerCase()} this run`} checked={confirmed.value} onChange={(checked) => (confirmed.value = checked)} />
      )}
    </ActionDialog>
  );
}

function Control({ field, value, error, onInput, isFirst }: { field: Field; value: string; error: string | null; onInput: (value: string) => void; isFirst: boolean }) {
  const common = { label: field.label, hint: field.help, error, required: field.required, autoFocus: isFirst };
  switch (field.type) {
    case "json": return <JsonInput label={field.label} value={value} onInput={onInput} rows={4} hint={field.help ?? "Empty: null. A text needs quotes."} />;
    case "long": return <TextArea {...common} value={value} onInput={onInput} rows={5} />;
    case "choice": {
      const options = (field.choices ?? []).map((choice) => ({ value: choice, label: choice === "" ? "as usual" : choice }));
      return <Select {...common} value={value || (field.choices?.[0] ?? "")} onChange={onInput} options={options} />;
    }
    case "check": return <Checkbox label={field.label} hint={field.help} checked={value === "true"} onChange={(checked) => onInput(checked ? "true" : "")} />;
    default: return <Input {...common} value={value} onInput={onInput} placeholder={field.placeholder} type={field.type === "number" ? "number" : "text"} min={field.type === "number" ? 0 : undefined} />;
  }
}
