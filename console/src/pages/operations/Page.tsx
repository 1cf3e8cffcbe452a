/** Owns the frame of an operations page: title, loading, refusal. */
import type { ComponentChildren } from "preact";
import { Problem } from "../../api/errors";
import { Loading } from "../../ui/EmptyState";
import { ErrorPage } from "../../ui/ErrorPage";
import { numberText } from "../../ui/format";
import type { Loaded } from "../../ui/hooks";
import { useTitle } from "../../ui/hooks";

export interface OperationsPageProps<T> {
  title: string;
  loaded: Loaded<T>;
  actions?: ComponentChildren;
  children: (data: T) => ComponentChildren;
}

export function OperationsPage<T>({ title, loaded, actions, children }: OperationsPageProps<T>) {
  useTitle(() => title);
  const data = loaded.data.value;
  const error = loaded.error.value;
  return (
    <div class="page">
      <div class="page-head">
        <h1>{title}</h1>
        {actions && <div class="page-actions">{actions}</div>}
      </div>
      {/* An old answer is better than none while the server is away; a refusal replaces it. */}
      {data !== null && !(error instanceof Problem) ? children(data) : error ? <ErrorPage error={error} retry={loaded.reload} /> : <Loading />}
    </div>
  );
}

/** A number with its name, in a list of the class `figures`. */
export function Figure({ name, value }: { name: string; value: ComponentChildren }) {
  return (
    <div class="figure">
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

/** A share of a whole as a bar, with the numbers as text. */
export function Meter({ value, max, label }: { value: number; max: number; label: string }) {
  return (
    <span class="meter-row">
      <meter class="meter" value={value} max={Math.max(1, max)} aria-label={label} />
      <span class="tabular">
        {numberText(value)} of {numberText(max)}
      </span>
    </span>
  );
}
