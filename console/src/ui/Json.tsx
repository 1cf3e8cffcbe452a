/** Owns the display of JSON and payloads: a folded tree of text, never markup. */
import { useSignal } from "@preact/signals";
import { ExactNumber, printJson } from "../api/json";
import type { Payload } from "../api/model";
import { Button } from "./Button";
import { CopyButton } from "./CopyButton";
import { bytesText, countText } from "./format";

export interface JsonProps {
  value: unknown;
  /** Levels that are open at first; 1 unless given. */
  open?: number;
  /** Shows the copy button and the switch to plain text; true unless given. */
  tools?: boolean;
  label?: string;
}

const TEXT_MAX = 400;
const CHILDREN_MAX = 100;
const PREVIEW_MAX = 80;

export function Json({ value, open = 1, tools = true, label = "JSON" }: JsonProps) {
  const plain = useSignal(false);
  return (
    <div class="json" role="group" aria-label={label}>
      {tools && (
        <div class="json-tools">
          {isBranch(value) && (
            <Button kind="quiet" small pressed={plain.value} onClick={() => (plain.value = !plain.value)}>
              text
            </Button>
          )}
          <CopyButton text={() => (typeof value === "string" ? value : printJson(value, 2))} label="Copy the value" />
        </div>
      )}
      {plain.value ? <pre class="json-text" tabIndex={0}>{printJson(value, 2)}</pre> : <Node value={value} open={open} />}
    </div>
  );
}

function isBranch(value: unknown): value is object {
  return typeof value === "object" && value !== null && !(value instanceof ExactNumber);
}

function Node({ name, value, open }: { name?: string; value: unknown; open: number }) {
  const unfolded = useSignal(open > 0);
  const shown = useSignal(CHILDREN_MAX);
  const label = name !== undefined && <span class="json-key">{name}: </span>;
  if (!isBranch(value)) {
    return (
      <div class="json-line">
        {label}
        <Leaf value={value} />
      </div>
    );
  }
  const entries = Array.isArray(value) ? value.map((item, index) => [String(index), item] as const) : Object.entries(value);
  const brackets = Array.isArray(value) ? "[]" : "{}";
  if (entries.length === 0) return <div class="json-line">{label}{brackets}</div>;
  const size = countText(entries.length, Array.isArray(value) ? "item" : "field");
  return (
    <div class="json-branch">
      <button type="button" class="json-fold" aria-expanded={unfolded.value} onClick={() => (unfolded.value = !unfolded.value)}>
        <span class="json-arrow" aria-hidden="true">{unfolded.value ? "▾" : "▸"}</span>
        {label}
        <span class="json-size">{unfolded.value ? `${brackets[0]} ${size}` : preview(value)}</span>
      </button>
      {unfolded.value && (
        <div class="json-children">
          {entries.slice(0, shown.value).map(([key, item]) => (
            <Node key={key} name={key} value={item} open={open - 1} />
          ))}
          {entries.length > shown.value && (
            <Button kind="quiet" small onClick={() => (shown.value += CHILDREN_MAX * 5)}>
              {`${entries.length - shown.value} more`}
            </Button>
          )}
        </div>
      )}
    </div>
  );
}

function Leaf({ value }: { value: unknown }) {
  const all = useSignal(false);
  if (typeof value === "string") {
    const text = all.value || value.length <= TEXT_MAX ? value : value.slice(0, TEXT_MAX);
    return (
      <span class="json-string">
        "{text}
        {text !== value && (
          <Button kind="quiet" small onClick={() => (all.value = true)}>
            {`… ${bytesText(value.length - TEXT_MAX)} more`}
          </Button>
        )}
        {text === value && '"'}
      </span>
    );
  }
  return <span class={value === null || typeof value === "boolean" ? "json-word" : "json-number"}>{String(value)}</span>;
}

/** Returns the beginning of a value as one line, for folded values and rows of lists. */
export function preview(value: unknown, max = PREVIEW_MAX): string {
  const text = shorten(value, max);
  return text.length > max ? `${text.slice(0, max - 1)}…` : text;
}

// Printing a large value only to cut it would be slow.
function shorten(value: unknown, max: number): string {
  if (!isBranch(value)) return printJson(typeof value === "string" ? value.slice(0, max) : value);
  const parts: string[] = [];
  let length = 2;
  const entries = Array.isArray(value) ? value.entries() : Object.entries(value);
  for (const [key, item] of entries) {
    if (length > max) break;
    const part = (Array.isArray(value) ? "" : `${key}: `) + shorten(item, max - length);
    parts.push(part);
    length += part.length + 2;
  }
  const text = parts.join(", ");
  return Array.isArray(value) ? `[${text}]` : `{${text}}`;
}

/** A payload: its JSON, or the type and size of bytes; text is shown as text. */
export function PayloadView({ payload, open = 1, tools = true, label }: { payload: Payload | null | undefined; open?: number; tools?: boolean; label?: string }) {
  if (!payload) return <span class="muted">none</span>;
  if ("json" in payload) return <Json value={payload.json} open={open} tools={tools} label={label} />;
  return <Bytes base64={payload.base64} type={payload.type} />;
}

function Bytes({ base64, type }: { base64: string; type: string }) {
  const bytes = bytesOf(base64);
  if (bytes && /^text\/|[+/]json\b/.test(type)) return <Json value={new TextDecoder().decode(bytes)} label={type} />;
  return (
    <div class="json">
      <span class="muted">
        {type}, {bytesText(bytes?.length ?? 0)}
      </span>
      <CopyButton text={base64} label="Copy as base64" />
    </div>
  );
}

/** Returns the bytes of base64, or null if it is not valid. */
export function bytesOf(base64: string): Uint8Array | null {
  try {
    return Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
  } catch {
    return null;
  }
}

/** Returns the beginning of a payload as one line. */
export function payloadPreview(payload: Payload | null | undefined, max = PREVIEW_MAX): string {
  if (!payload) return "";
  return "json" in payload ? preview(payload.json, max) : `${payload.type}, ${bytesText(Math.floor((payload.base64.length * 3) / 4))}`;
}
