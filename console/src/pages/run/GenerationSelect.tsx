/** Owns the choice of a generation: a run that continued, was retried or had turns has several logs. */
import { Button } from "../../ui/Button";
import { setQuery } from "../../ui/router";

export function GenerationSelect({ generation, latest }: { generation: number; latest: number }) {
  if (latest === 0) return null;
  const go = (to: number) => setQuery({ generation: to === latest ? null : to, event: null, call: null, index: null });
  return (
    <div class="generations" role="group" aria-label="Generation">
      <Button small kind="quiet" icon="left" label="Earlier generation" disabled={generation <= 0} onClick={() => go(generation - 1)} />
      <label class="row">
        <span class="muted">Generation</span>
        <input
          class="input generation-input tabular" type="number" min={0} max={latest} value={generation}
          onChange={(event) => {
            const to = Number(event.currentTarget.value);
            if (Number.isInteger(to)) go(Math.min(latest, Math.max(0, to)));
          }}
        />
        <span class="muted">of {latest}</span>
      </label>
      <Button small kind="quiet" icon="right" label="Later generation" disabled={generation >= latest} onClick={() => go(generation + 1)} />
    </div>
  );
}

/** Returns the generation of the address; the latest unless it names one. */
export function generationOf(query: URLSearchParams, latest: number): number {
  const event = /^(\d+):/.exec(query.get("event") ?? "")?.[1];
  const text = query.get("generation") ?? event;
  const given = text === null || text === undefined || text === "" ? NaN : Number(text);
  return Number.isInteger(given) && given >= 0 && given <= latest ? given : latest;
}
