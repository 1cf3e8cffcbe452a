/** Owns tabs whose views have addresses: they are links, so they open in new windows, too. */
import { useLayoutEffect, useRef } from "preact/hooks";
import { navigate } from "./router";

export interface Tab {
  id: string;
  label: string;
  href: string;
  /** A number after the label. */
  count?: number | null;
}

export function Tabs({ tabs, active, label }: { tabs: Tab[]; active: string; label: string }) {
  const list = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const [box, tab] = [list.current, list.current?.querySelector<HTMLElement>("[aria-selected=true]")];
    // Only sideways: the page itself stays where it is.
    if (box && tab) box.scrollLeft = tab.offsetLeft + tab.offsetWidth / 2 - box.clientWidth / 2;
  }, [active]);
  const onKeyDown = (event: KeyboardEvent) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (step === 0) return;
    event.preventDefault();
    event.stopPropagation();
    const at = tabs.findIndex((tab) => tab.id === active);
    const next = tabs[(at + step + tabs.length) % tabs.length];
    if (!next) return;
    navigate(next.href, true);
    list.current?.querySelector<HTMLElement>(`[data-tab="${CSS.escape(next.id)}"]`)?.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} ref={list} onKeyDown={onKeyDown}>
      {tabs.map((tab) => (
        <a
          key={tab.id}
          class="tab"
          role="tab"
          data-tab={tab.id}
          href={tab.href}
          aria-selected={tab.id === active}
          tabIndex={tab.id === active ? 0 : -1}
        >
          {tab.label}
          {tab.count !== null && tab.count !== undefined && <span class="tab-count">{tab.count}</span>}
        </a>
      ))}
    </div>
  );
}
