/** Owns that the number of open approvals stays current on every page. */
import { effect } from "@preact/signals";
import { reconnects } from "../../api/connection";
import { followFeed } from "../../api/feed";
import { namespace } from "../../api/identity";
import { needsLogin, session } from "../../api/session";
import { route } from "../../ui/router";
import { refreshApprovals } from "./count";

const POLL_MS = 20_000;

/** Follows the feed on pages of lists; other pages have streams of their own, so the number is polled there. */
export function watchApprovals(): void {
  let stop: (() => void) | null = null;
  let mode = "";
  effect(() => {
    const { path } = route.value;
    const signedIn = session.value !== null && !needsLogin.value;
    const next = !signedIn ? "" : path[0] === "approvals" || (path[0] === "runs" && path.length === 1) ? "feed" : "poll";
    const key = `${next} ${namespace.value ?? ""} ${reconnects.value}`;
    if (key === mode) return;
    mode = key;
    stop?.();
    stop = null;
    if (next === "") return;
    refreshApprovals(0);
    if (next === "feed") stop = followFeed({ run: (frame) => frame.change !== "started" && refreshApprovals(), reset: () => refreshApprovals() });
    else stop = poll();
  });
}

function poll(): () => void {
  const timer = setInterval(() => {
    if (document.visibilityState === "visible") refreshApprovals();
  }, POLL_MS);
  return () => clearInterval(timer);
}
