/** Owns the session of the console: sign in with a key, its scopes and bounds, sign out. */
import { computed, effect, signal } from "@preact/signals";
import { api } from "./client";
import { reconnects } from "./connection";
import { type ApiError, Offline, Problem, asApiError } from "./errors";
import { chooseNamespace, namespace, signedOut } from "./identity";
import type { Session } from "./pending";

/** `read`, `start`, `signal`, `approve`, `operate`, `work` or `admin`. */
export type Scope = string;

export const session = signal<Session | null>(null);
export const sessionError = signal<ApiError | null>(null);
/** True if requests are refused until a key is given. */
export const needsLogin = computed(() => session.value !== null && session.value.needs_key && !session.value.signed_in);

/** Loads the session; a server that does not answer is retried by the connection. */
export async function loadSession(): Promise<void> {
  try {
    const loaded = await api.get("/v1/session");
    if (loaded.signed_in && namespace.value !== null && loaded.namespaces !== null && !loaded.namespaces.includes(namespace.value)) {
      chooseNamespace(null);
    }
    session.value = loaded;
    sessionError.value = null;
  } catch (error) {
    const failed = asApiError(error);
    // The key may not be valid for the namespace that was chosen with another one.
    if (failed instanceof Problem && namespace.value !== null && (failed.status === 403 || failed.status === 400)) {
      chooseNamespace(null);
      return loadSession();
    }
    // A session that was loaded stays: the banner shows that the server is away.
    if (!(failed instanceof Offline) || session.value === null) sessionError.value = failed;
  }
}

/** Exchanges a key for a session; throws a `Problem` if the key is refused. */
export async function signIn(key: string): Promise<void> {
  await api.post("/v1/session", { key });
  await loadSession();
}

export async function signOut(): Promise<void> {
  await api.delete("/v1/session");
  await loadSession();
}

/** Returns whether the session has a scope. Without keys it has all. */
export function can(scope: Scope): boolean {
  const current = session.value;
  if (current === null) return false;
  return !current.needs_key || current.scopes.includes(scope) || current.scopes.includes("all");
}

/** Loads the session again whenever the server returns or refuses the session. */
export function watchSession(): () => void {
  let seen = -1;
  return effect(() => {
    const now = reconnects.value + signedOut.value;
    if (seen !== now) {
      seen = now;
      void loadSession();
    }
  });
}
