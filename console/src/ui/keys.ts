/** Owns key bindings: pages add them while they are mounted, `?` lists them. */
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

export interface Binding {
  /** `j`, `g r` (one after the other), `Escape`, `Enter`, `ArrowDown`, `Mod+Enter`. */
  keys: string;
  what: string;
  run: (event: KeyboardEvent) => void;
  /** Also while a field has the focus. */
  inFields?: boolean;
  /** Left out of the list of keys. */
  hidden?: boolean;
}

const groups = signal<{ name: string; bindings: () => Binding[] }[]>([]);
let prefix = "";
let prefixTimer: ReturnType<typeof setTimeout> | undefined;

/** Adds bindings while the component is mounted. The latest group wins. */
export function useKeys(name: string, bindings: Binding[]): void {
  const latest = useRef(bindings);
  latest.current = bindings;
  useEffect(() => {
    const group = { name, bindings: () => latest.current };
    groups.value = [...groups.value, group];
    return () => void (groups.value = groups.value.filter((item) => item !== group));
  }, [name]);
}

/** Returns the active bindings by group, for the list of keys. */
export function activeBindings(): { name: string; bindings: Binding[] }[] {
  return groups.value.map((group) => ({ name: group.name, bindings: group.bindings().filter((binding) => !binding.hidden) })).filter((group) => group.bindings.length > 0);
}

function isField(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

function nameOf(event: KeyboardEvent): string {
  return event.ctrlKey || event.metaKey ? `Mod+${event.key}` : event.key;
}

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.altKey || event.isComposing) return;
  const inField = isField(event.target);
  const inDialog = document.querySelector("dialog[open]") !== null;
  // Enter and Space belong to the focused control.
  if ((event.key === "Enter" || event.key === " ") && event.target instanceof HTMLElement && event.target.closest("a, button, summary, [role=tab]") && !event.ctrlKey) return;
  const name = nameOf(event);
  const full = prefix === "" ? name : `${prefix} ${name}`;
  const all = groups.peek().flatMap((group) => group.bindings()).reverse();
  const usable = all.filter((binding) => (!inField && !inDialog) || binding.inFields);
  const found = usable.find((binding) => binding.keys === full) ?? usable.find((binding) => binding.keys === name);
  clearTimeout(prefixTimer);
  prefix = "";
  if (found) {
    event.preventDefault();
    found.run(event);
  } else if (usable.some((binding) => binding.keys.startsWith(`${name} `))) {
    prefix = name;
    prefixTimer = setTimeout(() => (prefix = ""), 1000);
  }
});
