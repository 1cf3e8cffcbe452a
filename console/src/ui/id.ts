/** Owns new ids: idempotency keys of requests. */

/** Returns a random id. `crypto.randomUUID` is missing without HTTPS. */
export function newId(prefix: string): string {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return `${prefix}-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
