/** Owns the entry of JSON as text. */
import { parseJson } from "../api/json";
import { TextArea } from "./Field";

export type Entered = { ok: true; value: unknown } | { ok: false; error: string };

/** Parses what was entered; empty text is `undefined`, no value. */
export function enteredJson(text: string): Entered {
  if (text.trim() === "") return { ok: true, value: undefined };
  try {
    return { ok: true, value: parseJson(text) };
  } catch (error) {
    return { ok: false, error: error instanceof Error ? error.message : "not JSON" };
  }
}

export interface JsonInputProps {
  label: string;
  value: string;
  onInput: (text: string) => void;
  hint?: string;
  /** What the server says about the value. */
  error?: string | null;
  rows?: number;
  required?: boolean;
  autoFocus?: boolean;
}

export function JsonInput(props: JsonInputProps) {
  const entered = enteredJson(props.value);
  const error = entered.ok ? (props.required && entered.value === undefined ? "a value is required" : null) : entered.error;
  return <TextArea {...props} mono rows={props.rows ?? 5} placeholder="JSON" error={(props.value === "" ? null : error) ?? props.error} />;
}

