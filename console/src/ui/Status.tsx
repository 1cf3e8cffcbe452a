/** Owns the display of a status: a coloured dot and the word, never the colour alone. */

const TONES: Record<string, string> = {
  pending: "idle",
  queued: "idle",
  running: "active",
  retrying: "warn",
  waiting: "wait",
  paused: "warn",
  quarantined: "bad",
  completed: "good",
  failed: "bad",
  canceled: "off",
  terminated: "off",
  abandoned: "off",
};

/** Returns the tone of a status: `idle`, `active`, `wait`, `warn`, `good`, `bad` or `off`; `--tone-NAME` is its colour. */
export function toneOf(status: string): string {
  return TONES[status] ?? "idle";
}

export function StatusDot({ status, word = true, label }: { status: string; word?: boolean; label?: string }) {
  return (
    <span class={`status status-${toneOf(status)}`} title={word ? undefined : (label ?? status)}>
      <span class="dot" aria-hidden="true" />
      {word ? <span class="status-word">{label ?? status}</span> : <span class="visually-hidden">{label ?? status}</span>}
    </span>
  );
}

export function Badge({ text, tone = "off" }: { text: string; tone?: string }) {
  return <span class={`badge badge-${tone}`}>{text}</span>;
}
