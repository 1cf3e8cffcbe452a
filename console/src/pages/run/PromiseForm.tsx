/** Owns the form that resolves or rejects a promise. */
import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { api } from "../../api/client";
import { cliLine, curlLine } from "../../api/commands";
import { Problem } from "../../api/errors";
import { ActionDialog } from "../../ui/ActionDialog";
import { Input, Select } from "../../ui/Field";
import { enteredJson, JsonInput } from "../../ui/JsonInput";
import { toast } from "../../ui/Toasts";
import { onceId } from "./actions";

export function PromiseForm({ id, name, onClose, onDone }: { id: string; name: string; onClose: () => void; onDone?: () => void }) {
  const how = useSignal("resolve");
  const value = useSignal("");
  const message = useSignal("");
  const code = useSignal("rejected");
  const once = useMemo(onceId, []);
  const entered = enteredJson(value.value);
  const resolves = how.value === "resolve";
  const body = resolves
    ? { result: entered.ok ? (entered.value ?? null) : null, resolution_id: once }
    : { failure: { code: code.value, message: message.value, retryable: false }, resolution_id: once };
  const cli = resolves
    ? cliLine("promise", "resolve", id, value.value.trim() || undefined, "--resolution-id", once)
    : cliLine("promise", "reject", id, "--message", message.value, "--code", code.value, "--resolution-id", once);
  const perform = async () => {
    if (resolves && !entered.ok) throw new Problem(0, "form_incomplete", `The result is not JSON: ${entered.error}`, null);
    await api.post("/v1/promises/{id}", body as never, { path: { id } });
    toast(resolves ? "The promise was resolved." : "The promise was rejected.");
    onDone?.();
  };
  return (
    <ActionDialog title={`Promise ${name}`} verb={resolves ? "Resolve" : "Reject"} warning="Only the first result counts. It cannot be changed." lines={{ cli, curl: curlLine("POST", "/v1/promises/{id}", { path: { id } }, body) }} action={perform} onClose={onClose}>
      <Select label="How" value={how.value} onChange={(next) => (how.value = next)} options={[{ value: "resolve", label: "with a result" }, { value: "reject", label: "with a failure" }]} />
      {resolves ? (
        <JsonInput label="Result (JSON)" value={value.value} onInput={(next) => (value.value = next)} hint="Empty: null." rows={4} />
      ) : (
        <>
          <Input label="Code" value={code.value} onInput={(next) => (code.value = next)} />
          <Input label="Message" value={message.value} onInput={(next) => (message.value = next)} required />
        </>
      )}
    </ActionDialog>
  );
}
