/** Owns the delays between attempts to reach the server. */

/** Returns the delay before attempt `n` (0, 1, …): 250 ms doubled up to 10 s, with jitter against herds. */
export function backoffMs(n: number): number {
  const full = Math.min(10_000, 250 * 2 ** Math.min(n, 10));
  return full * (0.75 + Math.random() / 4);
}
