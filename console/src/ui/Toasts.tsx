/** Owns short messages at the edge of the window. Errors stay until they are closed. */
import { signal } from "@preact/signals";
import { type ApiError, Offline, asApiError, isAborted } from "../api/errors";
import { Button } from "./Button";
import { Prose } from "./Prose";

interface Toast {
  id: number;
  text: string;
  hint: string | null;
  kind: "info" | "error";
  link?: { text: string; href: string };
}

const toasts = signal<Toast[]>([]);
let nextId = 1;

export function toast(text: string, kind: "info" | "error" = "info", more: { hint?: string | null; link?: Toast["link"] } = {}): void {
  const id = nextId++;
  toasts.value = [...toasts.value.slice(-3), { id, text, kind, hint: more.hint ?? null, link: more.link }];
  if (kind === "info") setTimeout(() => dismiss(id), 5000);
}

/** Shows what failed. A server that is away has a banner, so it gets no toast. */
export function toastError(reason: unknown): void {
  if (isAborted(reason)) return;
  const error: ApiError = asApiError(reason);
  if (error instanceof Offline) return;
  toast(error.message, "error", { hint: error.hint });
}

function dismiss(id: number): void {
  toasts.value = toasts.value.filter((item) => item.id !== id);
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((item) => (
        <div key={item.id} class={`toast toast-${item.kind}`}>
          <div class="toast-text">
            <Prose text={item.text} />
            {item.hint && <div class="muted"><Prose text={item.hint} /></div>}
            {item.link && <a href={item.link.href}>{item.link.text}</a>}
          </div>
          <Button kind="quiet" small icon="close" label="Dismiss" onClick={() => dismiss(item.id)} />
        </div>
      ))}
    </div>
  );
}
