/** Owns the form that starts a run, built from the schema of the kind's input. */
import { useSignal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { api } from "../../api/client";
import { cliLine, curlLine } from "../../api/commands";
import { printJson } from "../../api/json";
import type { Attributes, Kind } from "../../api/model";
import { ActionDialog } from "../../ui/ActionDialog";
import { Input, Select } from "../../ui/Field";
import { JsonInput, enteredJson } from "../../ui/JsonInput";
import { SchemaForm } from "../../ui/SchemaForm";
import { toast } from "../../ui/Toasts";
import { newId } from "../../ui/id";
import { href, navigate } from "../../ui/router";
import { type Schema, initialOf } from "../../ui/schema";

export function StartDialog({ kind: first, kinds, onClose }: { kind: string; kinds: readonly Kind[]; onClose: () => void }) {
  const workflows = kinds.filter((kind) => kind.type === "workflow");
  const kind = useSignal(first || (workflows.length === 1 ? (workflows[0]?.kind ?? "") : ""));
  const version = useSignal("");
  // The id makes a second click harmless; it stays the same while the dialog is open.
  const id = useSignal("");
  const fallbackId = useSignal(newId("run"));
  const attributes = useSignal("");
  const input = useSignal<unknown>(undefined);
  const valid = useSignal(true);

  const declared = workflows.find((item) => item.kind === kind.value);
  const versions = declared?.versions ?? [];
  const chosen = versions.find((item) => (item.version ?? "") === version.value) ?? versions[0];
  const schema = (chosen?.input_schema ?? null) as Schema | null;
  // Before the next event: what is entered stays.
  useLayoutEffect(() => {
    input.value = schema ? initialOf(schema, schema) : undefined;
  }, [kind.value, version.value, schema === null]);

  const entered = enteredJson(attributes.value);
  const body = {
    kind: kind.value,
    id: id.value || fallbackId.value,
    ...(version.value && { version: version.value }),
    ...(input.value !== undefined && { input: input.value }),
    ...(entered.ok && entered.value !== undefined && { attributes: entered.value as Attributes }),
  };
  const attrWords = Object.entries((entered.ok && (entered.value as object)) || {}).flatMap(([name, value]) => ["--attr", `${name}=${printJson(value)}`]);
  return (
    <ActionDialog
      title="Start a run"
      verb="Start"
      wide
      disabled={kind.value === "" || !valid.value || !entered.ok}
      lines={{
        cli: cliLine("run", "start", kind.value || "KIND", "--id", body.id, ...(version.value ? ["--version", version.value] : []), ...(input.value === undefined ? [] : ["--input", printJson(input.value)]), ...attrWords),
        curl: curlLine("POST", "/v1/runs", {}, body),
      }}
      action={async () => {
        const started = await api.post("/v1/runs", body);
        toast(started.created ? `Started ${started.id}.` : `The run ${started.id} existed already.`);
        navigate(href(["runs", started.id]));
      }}
      onClose={onClose}
    >
      <Input label="Kind" required autoFocus={kind.value === ""} value={kind.value} list={workflows.map((item) => item.kind)} onInput={(text) => (kind.value = text)} />
      {declared && versions.every((item) => item.workers === 0) && <p class="note note-warning">No worker has code for {kind.value} now: the run waits until one connects.</p>}
      {kind.value !== "" && !declared && kinds.length > 0 && <p class="note note-warning">No worker has declared this kind: the run waits until one connects.</p>}
      {versions.length > 1 && <Select label="Version" value={version.value} options={versions.map((item) => ({ value: item.version ?? "", label: item.version ?? "none" }))} onChange={(value) => (version.value = value)} />}
      <SchemaForm
        key={`${kind.value} ${version.value}`}
        schema={schema}
        value={input.value}
        onChange={(value, isValid) => {
          input.value = value;
          valid.value = isValid;
        }}
      />
      <details class="more">
        <summary>Id and attributes</summary>
        <div class="stack">
          <Input label="Id" value={id.value} placeholder={fallbackId.value} maxLength={255} hint="A second start with the same id, kind and input is the same run." onInput={(text) => (id.value = text)} />
          <JsonInput label="Attributes" rows={3} value={attributes.value} hint='By which runs are found, for example {"customer": "42", "express": true}' onInput={(text) => (attributes.value = text)} />
        </div>
      </details>
    </ActionDialog>
  );
}
