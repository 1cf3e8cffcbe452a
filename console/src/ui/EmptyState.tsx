/** Owns what a list shows without rows, and while it loads. */
import type { ComponentChildren } from "preact";

export function EmptyState({ title, children, actions }: { title: string; children?: ComponentChildren; actions?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children && <div class="empty-text">{children}</div>}
      {actions && <div class="empty-actions">{actions}</div>}
    </div>
  );
}

export function Loading({ what = "Loading" }: { what?: string }) {
  return (
    <div class="loading" role="status">
      <span class="spinner" aria-hidden="true" />
      {what}…
    </div>
  );
}
