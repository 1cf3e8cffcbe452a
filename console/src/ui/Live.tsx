/** Owns the sign of a live view: whether its stream is connected. */
import type { StreamState } from "../api/sse";

const WORDS: Record<StreamState, [string, string]> = {
  connecting: ["wait", "connecting"],
  open: ["good", "live"],
  waiting: ["warn", "reconnecting"],
  ended: ["off", "ended"],
  failed: ["bad", "not live"],
};

export function LiveState({ state, paused }: { state: StreamState; paused?: boolean }) {
  const [tone, word] = paused ? ["warn", "live updates paused"] : WORDS[state];
  return (
    <span class={`status status-${tone}`} role="status">
      <span class="dot" aria-hidden="true" />
      {word}
    </span>
  );
}
