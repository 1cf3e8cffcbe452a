/** Owns saved views: names for filters, kept in this browser. */
import { signal } from "@preact/signals";
import { recall, remember } from "../../ui/storage";

export interface View {
  name: string;
  /** The query of the address. */
  query: string;
}

export const BUILT_IN: readonly View[] = [
  { name: "All runs", query: "" },
  { name: "Open", query: "status=pending&status=running&status=waiting&status=paused" },
  { name: "Failed", query: "status=failed" },
  { name: "Needs attention", query: "status=failed&status=paused" },
  { name: "Last hour", query: "since=1h" },
];

export const savedViews = signal<readonly View[]>(read());

function read(): View[] {
  try {
    const stored: unknown = JSON.parse(recall("views") ?? "[]");
    if (!Array.isArray(stored)) return [];
    return stored.filter((view: View) => typeof view?.name === "string" && typeof view.query === "string");
  } catch {
    return [];
  }
}

export function saveView(name: string, query: string): void {
  write([...savedViews.value.filter((view) => view.name !== name), { name, query }]);
}

export function deleteView(name: string): void {
  write(savedViews.value.filter((view) => view.name !== name));
}

function write(views: View[]): void {
  savedViews.value = views;
  remember("views", JSON.stringify(views));
}
