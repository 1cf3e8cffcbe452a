/** Owns the width of the window, for rows whose height depends on it. */
import { signal } from "@preact/signals";

const query = window.matchMedia("(max-width: 760px)");
/** True at the width of a phone. The stylesheets use the same limit. */
export const isPhone = signal(query.matches);
query.addEventListener("change", () => (isPhone.value = query.matches));
