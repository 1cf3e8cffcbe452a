/** Owns the menu of further actions: a button with a list, closed by Escape, a click outside or a choice. */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { Button } from "../../ui/Button";
import type { Action } from "./actions";

export function ActionMenu({ actions, onChoose }: { actions: readonly Action[]; onChoose: (action: Action) => void }) {
  const open = useSignal(false);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open.value) return;
    box.current?.querySelector<HTMLElement>("[role=menuitem]")?.focus();
    const close = (event: Event) => {
      if (!box.current?.contains(event.target as Node)) open.value = false;
    };
    document.addEventListener("pointerdown", close);
    return () => document.removeEventListener("pointerdown", close);
  }, [open.value]);
  const onKeyDown = (event: KeyboardEvent) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (event.key === "Escape" && open.value) {
      event.stopPropagation();
      open.value = false;
      box.current?.querySelector("button")?.focus();
    }
    if (step === 0 || !open.value) return;
    event.preventDefault();
    const items = [...(box.current?.querySelectorAll<HTMLElement>("[role=menuitem]") ?? [])];
    const at = items.indexOf(document.activeElement as HTMLElement);
    items[(at + step + items.length) % items.length]?.focus();
  };
  return (
    <div class="menu-box" ref={box} onKeyDown={onKeyDown}>
      <Button icon="down" expanded={open.value} onClick={() => (open.value = !open.value)}>More</Button>
      {open.value && (
        <div class="menu" role="menu" aria-label="Further actions">
          {actions.map((action) => (
            <button
              key={action.verb}
              type="button"
              role="menuitem"
              class={action.isFinal ? "menu-item menu-final" : "menu-item"}
              onClick={() => {
                open.value = false;
                onChoose(action);
              }}
            >
              <span>{action.label}</span>
              <span class="muted">{action.says}</span>
            </button>
          ))}
        </div>
      )}
    </div>
  );
}
