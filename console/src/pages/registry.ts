/** Owns the list of pages. A page registers itself; `pages/index.ts` imports it once. */
import type { ComponentType } from "preact";
import type { Route } from "../ui/router";
import type { IconName } from "../ui/icons";

export interface PageProps {
  route: Route;
  /** Values of `:name` in the pattern. */
  params: Record<string, string>;
}

export interface Page {
  /** `runs/:id/:tab?`; an optional part is at the end. */
  pattern: string;
  component: ComponentType<PageProps>;
  /** Entry of the navigation; pages without one are reached by links. */
  nav?: { label: string; icon: IconName; group: "work" | "operations"; order: number; keys?: string };
  /** Also marks this navigation entry as current, by its pattern. */
  under?: string;
  /** Shown without a session. */
  isPublic?: boolean;
}

const pages: Page[] = [];

export function registerPage(page: Page): void {
  pages.push(page);
}

export function navPages(): Page[] {
  return pages.filter((page) => page.nav).sort((a, b) => (a.nav?.order ?? 0) - (b.nav?.order ?? 0));
}

/** Returns the page of a path with the values of its pattern. */
export function findPage(path: string[]): { page: Page; params: Record<string, string> } | null {
  for (const page of pages) {
    const params = match(page.pattern.split("/"), path);
    if (params) return { page, params };
  }
  return null;
}

function match(pattern: string[], path: string[]): Record<string, string> | null {
  if (path.length > pattern.length) return null;
  const params: Record<string, string> = {};
  for (const [at, part] of pattern.entries()) {
    const given = path[at];
    if (given === undefined) {
      if (!part.endsWith("?")) return null;
    } else if (part.startsWith(":")) params[part.replace(/[:?]/g, "")] = given;
    else if (part !== given) return null;
  }
  return params;
}
