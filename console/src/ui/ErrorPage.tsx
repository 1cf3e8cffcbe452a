/** Owns the one place that turns an error into words: as a page, or as a note inside one. */
import type { ComponentChildren } from "preact";
import { type ApiError, Offline, Problem } from "../api/errors";
import { Button } from "./Button";
import { Prose } from "./Prose";

const TITLES: Record<string, string> = {
  run_not_found: "There is no such run",
  kind_not_found: "There is no such kind",
  flow_not_found: "There is no such flow",
  schedule_not_found: "There is no such schedule",
  route_not_found: "The server does not have this view",
  unauthenticated: "The session has ended",
  not_allowed: "This key may not do that",
  csrf: "The request was refused",
  console_failed: "The console failed",
};

export interface ErrorPageProps {
  error: ApiError;
  /** Loads again. A server that is away is waited for anyway. */
  retry?: () => void;
  children?: ComponentChildren;
}

/** Returns a heading for an error. */
export function titleOf(error: ApiError): string {
  if (error instanceof Offline) return "The server does not answer";
  return TITLES[error.code] ?? (error.status >= 500 ? "The server failed" : "The request was refused");
}

export function ErrorPage({ error, retry, children }: ErrorPageProps) {
  const offline = error instanceof Offline;
  return (
    <section class="error-page" role="alert">
      <h2>{titleOf(error)}</h2>
      {/* The heading says it already, unless more is known. */}
      {error.message !== `${titleOf(error)}.` && <p><Prose text={error.message} /></p>}
      {error instanceof Problem && error.hint && <p class="muted"><Prose text={error.hint} /></p>}
      {offline && <p class="muted">This page continues by itself as soon as the server is back.</p>}
      {children}
      <div class="error-foot">
        {retry && (
          <Button icon="refresh" onClick={retry}>
            Try again
          </Button>
        )}
        {error instanceof Problem && <code class="muted">{error.code}</code>}
      </div>
    </section>
  );
}

/** The same inside a form or beside a value. */
export function ErrorNote({ error }: { error: ApiError }) {
  const violations = error instanceof Problem ? error.violations.filter((violation) => !error.message.includes(violation.message)) : [];
  return (
    <div class="note note-bad" role="alert">
      <div><Prose text={error.message} /></div>
      {violations.length > 0 && (
        <ul>
          {violations.map((violation) => (
            <li key={violation.path + violation.message}>
              {violation.path && <code>{violation.path}</code>} {violation.message}
            </li>
          ))}
        </ul>
      )}
      {error instanceof Problem && error.hint && <div class="muted"><Prose text={error.hint} /></div>}
      {error instanceof Problem && <code class="muted">{error.code}</code>}
    </div>
  );
}
