/** Owns who the requests are sent as: the chosen namespace, and the loss of the session. */
import { signal } from "@preact/signals";
import { recall, remember } from "../ui/storage";

/** The chosen namespace; null is the default of the key. */
export const namespace = signal<string | null>(recall("namespace"));
/** Counts the refusals of the session, for example because its key was revoked. */
export const signedOut = signal(0);

export function chooseNamespace(name: string | null): void {
  namespace.value = name;
  remember("namespace", name);
}

export function reportSignedOut(): void {
  signedOut.value++;
}
