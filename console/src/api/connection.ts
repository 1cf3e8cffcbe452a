/** Owns whether the server answers: one probe with backoff, which all pages wait for. */
import { signal } from "@preact/signals";
import { backoffMs } from "./backoff";

/** False from the first request without an answer until the server is ready again. */
export const online = signal(true);
/** Counts the returns of the server: pages load again when it changes. */
export const reconnects = signal(0);
/** Time of the next probe, for the banner. */
export const nextProbeAt = signal<number | null>(null);

// A server that is ready and fails at once again must not be asked without a pause.
const STABLE_MS = 10_000;
let onlineSince = 0;
let attempt = 0;
let timer: ReturnType<typeof setTimeout> | undefined;

/** Records that a request got no answer, and probes until the server is ready. */
export function reportOffline(): void {
  if (!online.value) return;
  online.value = false;
  if (Date.now() - onlineSince > STABLE_MS) attempt = 0;
  schedule();
}

/** Probes now instead of after the delay. */
export function probeNow(): void {
  if (online.value) return;
  clearTimeout(timer);
  void probe();
}

function schedule(): void {
  const delay = backoffMs(attempt++);
  nextProbeAt.value = Date.now() + delay;
  timer = setTimeout(() => void probe(), delay);
}

async function probe(): Promise<void> {
  nextProbeAt.value = null;
  try {
    const response = await fetch("/readyz", { cache: "no-store", signal: AbortSignal.timeout(5000) });
    if (response.ok) {
      online.value = true;
      onlineSince = Date.now();
      reconnects.value++;
      return;
    }
  } catch {
    // Still unreachable.
  }
  schedule();
}

window.addEventListener("online", probeNow);
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible") probeNow();
});
