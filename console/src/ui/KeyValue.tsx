/** Owns lists of names with values. Pairs without a value are left out. */
import type { ComponentChildren } from "preact";

export function KeyValue({ pairs }: { pairs: [string, ComponentChildren][] }) {
  return (
    <dl class="pairs">
      {pairs
        .filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false)
        .map(([name, value]) => (
          <div key={name} class="pair">
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}
