/** Owns the sign-in with an API key. The key is sent once and kept by the browser as a cookie that scripts cannot read. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { type ApiError, Problem, asApiError } from "../../api/errors";
import { needsLogin, session, signIn } from "../../api/session";
import { Button } from "../../ui/Button";
import { ErrorNote } from "../../ui/ErrorPage";
import { Input } from "../../ui/Field";
import { useTitle } from "../../ui/hooks";
import { navigate } from "../../ui/router";
import type { PageProps } from "../registry";

export function LoginPage({ route }: PageProps) {
  useTitle(() => "Sign in");
  const key = useSignal("");
  const busy = useSignal(false);
  const error = useSignal<ApiError | null>(null);
  const to = route.query.get("to") ?? "";
  useEffect(() => {
    // Only addresses inside the console are followed.
    if (!needsLogin.value) navigate(to.startsWith("#/") && !to.startsWith("#/login") ? to : "#/runs", true);
  }, [needsLogin.value]);
  const submit = async () => {
    busy.value = true;
    error.value = null;
    try {
      await signIn(key.value.trim());
      key.value = "";
    } catch (reason) {
      const failed = asApiError(reason);
      error.value = failed instanceof Problem && failed.status === 401 ? new Problem(401, failed.code, "The server does not accept this key.", "It may be mistyped, expired or revoked.") : failed;
    } finally {
      busy.value = false;
    }
  };
  return (
    <div class="login">
      <form
        class="login-box"
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <div class="brand">
          <img src="/console/icon.svg" width="28" height="28" alt="" />
          <h1>Onward</h1>
        </div>
        <p class="muted">This server needs an API key.</p>
        <Input label="API key" type="password" required autoFocus placeholder="onw_…" autoComplete="current-password" value={key.value} onInput={(text) => (key.value = text)} />
        {error.value && <ErrorNote error={error.value} />}
        <Button type="submit" kind="primary" busy={busy.value} disabled={key.value.trim() === ""}>
          Sign in
        </Button>
        <p class="hint">
          An operator creates keys with <code>onward key create</code>. The views need the scope <code>read</code>, actions the scopes <code>start</code>, <code>signal</code>, <code>approve</code> and <code>operate</code>.
        </p>
        {session.value && <p class="hint">Onward {session.value.version}</p>}
      </form>
    </div>
  );
}
