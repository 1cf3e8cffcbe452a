/** Owns form controls with labels, hints and errors. */
import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

interface FieldProps {
  label: string;
  hint?: ComponentChildren;
  error?: string | null;
  required?: boolean;
  /** Hides the label, for example in a toolbar; screen readers get it. */
  quiet?: boolean;
  autoFocus?: boolean;
}

/** A label around a control; `control` gets the attributes that connect them. */
export function Field(props: FieldProps & { control: (attributes: Record<string, unknown>) => ComponentChildren }) {
  const id = useId();
  const described = [props.hint && `${id}-hint`, props.error && `${id}-error`].filter(Boolean).join(" ");
  const attributes = {
    id,
    "aria-describedby": described || undefined,
    "aria-invalid": props.error ? true : undefined,
    required: props.required,
    autoFocus: props.autoFocus,
  };
  return (
    <div class="field">
      <label for={id} class={props.quiet ? "visually-hidden" : undefined}>
        {props.label}
        {props.required && <span class="muted" aria-hidden="true"> *</span>}
      </label>
      {props.control(attributes)}
      {props.hint && <div id={`${id}-hint`} class="hint">{props.hint}</div>}
      {props.error && <div id={`${id}-error`} class="field-error">{props.error}</div>}
    </div>
  );
}

export interface InputProps extends FieldProps {
  value: string;
  onInput: (value: string) => void;
  type?: "text" | "number" | "datetime-local" | "date" | "search" | "password" | "email" | "url";
  placeholder?: string;
  min?: number;
  max?: number;
  step?: number | "any";
  maxLength?: number;
  pattern?: string;
  list?: readonly string[];
  disabled?: boolean;
  autoComplete?: string;
}

export function Input(props: InputProps) {
  const list = useId();
  // The types of inputs exclude each other's attributes; one component has them all.
  const typed: Record<string, unknown> = { type: props.type ?? "text", list: props.list ? list : undefined };
  return (
    <Field
      {...props}
      control={(attributes) => (
        <>
          <input
            {...attributes}
            {...typed}
            class="input"
            value={props.value}
            placeholder={props.placeholder}
            min={props.min}
            max={props.max}
            step={props.step}
            maxLength={props.maxLength}
            pattern={props.pattern}
            disabled={props.disabled}
            autoComplete={props.autoComplete ?? "off"}
            spellcheck={false}
            onInput={(event) => props.onInput(event.currentTarget.value)}
          />
          {props.list && (
            <datalist id={list}>
              {props.list.map((item) => (
                <option key={item} value={item} />
              ))}
            </datalist>
          )}
        </>
      )}
    />
  );
}

export function TextArea(props: FieldProps & { value: string; onInput: (value: string) => void; rows?: number; mono?: boolean; placeholder?: string; maxLength?: number }) {
  return (
    <Field
      {...props}
      control={(attributes) => (
        <textarea
          {...attributes}
          class={props.mono ? "input mono" : "input"}
          rows={props.rows ?? 4}
          value={props.value}
          placeholder={props.placeholder}
          maxLength={props.maxLength}
          spellcheck={!props.mono}
          onInput={(event) => props.onInput(event.currentTarget.value)}
        />
      )}
    />
  );
}

export interface Option {
  value: string;
  label: string;
}

export function Select(props: FieldProps & { value: string; onChange: (value: string) => void; options: readonly (Option | string)[]; disabled?: boolean }) {
  return (
    <Field
      {...props}
      control={(attributes) => (
        <select {...attributes} class="input" value={props.value} disabled={props.disabled} onChange={(event) => props.onChange(event.currentTarget.value)}>
          {props.options.map((option) => {
            const { value, label } = typeof option === "string" ? { value: option, label: option } : option;
            return (
              <option key={value} value={value} selected={value === props.value}>
                {label}
              </option>
            );
          })}
        </select>
      )}
    />
  );
}

export function Checkbox({ label, checked, onChange, hint, error, disabled }: { label: ComponentChildren; checked: boolean; onChange: (checked: boolean) => void; hint?: string; error?: string | null; disabled?: boolean }) {
  return (
    <label class="checkbox">
      <input type="checkbox" checked={checked} disabled={disabled} aria-invalid={error ? true : undefined} onChange={(event) => onChange(event.currentTarget.checked)} />
      <span>
        {label}
        {hint && <span class="hint">{hint}</span>}
        {error && <span class="field-error">{error}</span>}
      </span>
    </label>
  );
}
