/** Owns forms that are built from a JSON Schema. The server validates; the form only helps. */
import { useSignal } from "@preact/signals";
import type { Violation } from "../api/errors";
import { printJson } from "../api/json";
import { Button } from "./Button";
import { Checkbox, Input, Select, TextArea } from "./Field";
import { JsonInput, enteredJson } from "./JsonInput";
import { type Schema, type Shape, initialOf, resolve, shapeOf } from "./schema";

export interface SchemaFormProps {
  /** The schema; null gives a field for any JSON. */
  schema: Schema | null;
  value: unknown;
  /** `valid` is false while some text is not JSON. */
  onChange: (value: unknown, valid: boolean) => void;
  label?: string;
  /** What the server refused; each is shown at its field. */
  violations?: readonly Violation[];
}

export function SchemaForm({ schema, value, onChange, label = "Input", violations = [] }: SchemaFormProps) {
  const asJson = useSignal(schema === null);
  const text = useSignal<string | null>(null);
  const shown = text.value ?? (value === undefined ? "" : printJson(value, 2));
  return (
    <div class="schema-form">
      {schema !== null && (
        <div class="schema-tools">
          <Button kind="quiet" small pressed={asJson.value} onClick={() => { asJson.value = !asJson.value; text.value = null; }}>
            as JSON
          </Button>
        </div>
      )}
      {asJson.value || schema === null ? (
        <JsonInput
          label={label}
          value={shown}
          rows={8}
          error={violations.map((violation) => `${violation.path} ${violation.message}`.trim()).join("; ") || null}
          onInput={(entered) => {
            text.value = entered;
            const parsed = enteredJson(entered);
            onChange(parsed.ok ? parsed.value : undefined, parsed.ok);
          }}
        />
      ) : (
        <Control name={label} schema={schema} root={schema} value={value} required onChange={(next) => onChange(next, true)} depth={0} path="" violations={violations} />
      )}
    </div>
  );
}

/**
 * Returns what the server says about a control. A control that draws fields shows what is at itself and at fields that it does not
 * draw; any other shows all from its position on. A missing field is reported at its object, and names it.
 */
export function errorAt({ path, violations, value }: Pick<ControlProps, "path" | "violations" | "value">, shape: Shape): string | null {
  const drawn = shape.type === "object" ? shape.fields.map((field) => `${path}/${pointerKey(field.name)}`)
    : shape.type === "list" && Array.isArray(value) ? value.map((_, index) => `${path}/${index}`) : [];
  const isBelow = (at: string, of: string) => at === of || at.startsWith(`${of}/`);
  const here = violations.filter((violation) => isBelow(violation.path, path) && !drawn.some((field) => isBelow(violation.path, field)));
  return here.map((violation) => violation.message).join("; ") || null;
}

function pointerKey(name: string): string {
  return name.replaceAll("~", "~0").replaceAll("/", "~1");
}

interface ControlProps {
  name: string;
  schema: Schema;
  root: Schema;
  value: unknown;
  required: boolean;
  onChange: (value: unknown) => void;
  depth: number;
  /** The position of the value, as a JSON pointer. */
  path: string;
  violations: readonly Violation[];
}

function Control(props: ControlProps) {
  const { schema, nullable } = resolve(props.schema, props.root);
  const shape = props.depth > 6 ? { type: "json" as const } : shapeOf(schema);
  const label = typeof schema.title === "string" && props.depth > 0 ? schema.title : props.name;
  const hint = typeof schema.description === "string" ? schema.description : undefined;
  const required = props.required && !nullable;
  const { value, onChange } = props;
  const error = errorAt(props, shape);
  switch (shape.type) {
    case "text": {
      const shown = typeof value === "string" ? value : "";
      const long = shape.format === null && ((shape.maxLength ?? 0) > 200 || shown.length > 80 || shown.includes("\n"));
      const change = (next: string) => onChange(next === "" && !required ? undefined : next);
      if (long) return <TextArea label={label} hint={hint} error={error} required={required} value={shown} onInput={change} />;
      if (shape.format === "date-time") return <DateTime label={label} hint={hint} error={error} required={required} value={shown} onChange={change} />;
      const type = shape.format === "date" ? "date" : shape.format === "email" ? "email" : shape.format === "uri" ? "url" : "text";
      return <Input label={label} hint={hint} error={error} required={required} type={type} value={shown} onInput={change} maxLength={shape.maxLength} pattern={shape.pattern} />;
    }
    case "number":
      return (
        <Input
          label={label}
          hint={hint}
          error={error}
          required={required}
          type="number"
          value={value === undefined || value === null ? "" : String(value)}
          min={shape.min}
          max={shape.max}
          step={shape.integer ? 1 : "any"}
          onInput={(next) => {
            const parsed = enteredJson(next);
            onChange(parsed.ok ? parsed.value : undefined);
          }}
        />
      );
    case "boolean":
      return <Checkbox label={label} hint={hint} error={error} checked={value === true} onChange={onChange} />;
    case "choice": {
      const at = shape.options.findIndex((option) => printJson(option.value) === printJson(value));
      const options = shape.options.map((option, index) => ({ value: String(index), label: option.label }));
      return (
        <Select
          label={label}
          hint={hint}
          error={error}
          required={required}
          value={at < 0 || value === undefined ? "" : String(at)}
          options={[{ value: "", label: required ? "choose" : "none" }, ...options]}
          onChange={(next) => onChange(next === "" ? undefined : shape.options[Number(next)]?.value)}
        />
      );
    }
    case "object":
      return <Fields {...props} label={label} hint={hint} error={error} fields={shape.fields} required={required} />;
    case "list":
      return <Items {...props} label={label} hint={hint} error={error} items={shape.items} />;
    default:
      return <AnyJson label={label} hint={hint} error={error} required={required} value={value} onChange={onChange} />;
  }
}

function Fields(props: ControlProps & { label: string; hint?: string; error: string | null; fields: { name: string; schema: Schema; required: boolean }[] }) {
  const value = (typeof props.value === "object" && props.value !== null ? props.value : {}) as Record<string, unknown>;
  const set = (name: string, next: unknown) => {
    const { [name]: _, ...rest } = value;
    const changed = next === undefined ? rest : { ...value, [name]: next };
    props.onChange(Object.keys(changed).length === 0 && !props.required ? undefined : changed);
  };
  // What an optional object requires is required only once it is there.
  const isThere = props.required || props.value !== undefined;
  const controls = props.fields.map((field) => (
    <Control key={field.name} name={field.name} schema={field.schema} root={props.root} value={value[field.name]} required={field.required && isThere} depth={props.depth + 1} path={`${props.path}/${pointerKey(field.name)}`} violations={props.violations} onChange={(next) => set(field.name, next)} />
  ));
  if (props.depth === 0) return <>{controls}{props.error && <div class="field-error" role="alert">{props.error}</div>}</>;
  return (
    <fieldset class="fieldset">
      <legend>{props.label}</legend>
      {props.hint && <div class="hint">{props.hint}</div>}
      {controls}
      {props.error && <div class="field-error" role="alert">{props.error}</div>}
    </fieldset>
  );
}

function Items(props: ControlProps & { label: string; hint?: string; error: string | null; items: Schema }) {
  const list = Array.isArray(props.value) ? (props.value as unknown[]) : [];
  return (
    <fieldset class="fieldset">
      <legend>{props.label}</legend>
      {props.hint && <div class="hint">{props.hint}</div>}
      {list.map((item, index) => (
        <div class="list-item" key={index}>
          <Control name={`${props.label} ${index + 1}`} schema={props.items} root={props.root} value={item} required depth={props.depth + 1} path={`${props.path}/${index}`} violations={props.violations} onChange={(next) => props.onChange(list.with(index, next))} />
          <Button kind="quiet" small icon="minus" label={`Remove ${props.label} ${index + 1}`} onClick={() => props.onChange(list.filter((_, at) => at !== index))} />
        </div>
      ))}
      <Button small icon="plus" onClick={() => props.onChange([...list, initialOf(props.items, props.root)])}>
        Add
      </Button>
      {props.error && <div class="field-error" role="alert">{props.error}</div>}
    </fieldset>
  );
}

function AnyJson({ label, hint, error, required, value, onChange }: { label: string; hint?: string; error: string | null; required: boolean; value: unknown; onChange: (value: unknown) => void }) {
  const text = useSignal(value === undefined ? "" : printJson(value, 2));
  return (
    <JsonInput
      label={label}
      hint={hint}
      error={error}
      required={required}
      value={text.value}
      rows={3}
      onInput={(next) => {
        text.value = next;
        const parsed = enteredJson(next);
        onChange(parsed.ok ? parsed.value : undefined);
      }}
    />
  );
}

// The control has local time without a zone; the value is RFC 3339 in UTC.
function DateTime({ label, hint, error, required, value, onChange }: { label: string; hint?: string; error: string | null; required: boolean; value: string; onChange: (value: string) => void }) {
  return (
    <Input
      label={label}
      hint={hint}
      error={error}
      required={required}
      type="datetime-local"
      value={localTime(value)}
      step={1}
      onInput={(next) => onChange(next === "" ? "" : new Date(next).toISOString())}
    />
  );
}

/** Returns a time as the text of a `datetime-local` control. */
export function localTime(at: string): string {
  const date = new Date(at);
  if (at === "" || Number.isNaN(date.getTime())) return "";
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}
