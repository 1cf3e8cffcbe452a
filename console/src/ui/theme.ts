/** Owns light and dark: that of the system, or the one that was chosen. */
import { signal } from "@preact/signals";
import { recall, remember } from "./storage";

export type Theme = "auto" | "light" | "dark";

const recalled = recall("theme");
export const theme = signal<Theme>(recalled === "light" || recalled === "dark" ? recalled : "auto");

export function chooseTheme(chosen: Theme): void {
  theme.value = chosen;
  remember("theme", chosen === "auto" ? null : chosen);
  apply();
}

export function apply(): void {
  if (theme.value === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
}
