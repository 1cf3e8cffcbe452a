/** Owns the frame around the pages: navigation, keys, theme, session, and the banner without a server. */
import { useSignal, useSignalEffect } from "@preact/signals";
import { Component, type ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { nextProbeAt, online, probeNow } from "./api/connection";
import { asApiError } from "./api/errors";
import { namespace } from "./api/identity";
import { needsLogin, session, sessionError } from "./api/session";
import { Sidebar } from "./frame/Sidebar";
import { KeyHelp } from "./frame/KeyHelp";
import { findPage, navPages } from "./pages/registry";
import { Button } from "./ui/Button";
import { EmptyState, Loading } from "./ui/EmptyState";
import { ErrorPage } from "./ui/ErrorPage";
import { Toasts } from "./ui/Toasts";
import { durationText } from "./ui/format";
import { now } from "./ui/hooks";
import { useKeys } from "./ui/keys";
import { href, navigate, route } from "./ui/router";

export function App() {
  const help = useSignal(false);
  useKeys("Everywhere", [
    { keys: "?", what: "show the keys", run: () => (help.value = true) },
    ...navPages().flatMap((page) => {
      const { keys, label } = page.nav ?? { keys: undefined, label: "" };
      return keys ? [{ keys, what: `go to ${label}`, run: () => navigate(`#/${page.pattern}`) }] : [];
    }),
  ]);
  useSignalEffect(() => {
    const { path } = route.value;
    // The page is remembered, so that signing in leads back to it.
    if (needsLogin.value && path[0] !== "login") navigate(href(["login"], { to: location.hash }), true);
    else if (path.length === 0) navigate("#/runs", true);
  });
  return (
    <>
      <a class="skip-link" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>
        Skip to the content
      </a>
      <OfflineBanner />
      <Body onHelp={() => (help.value = true)} />
      <Toasts />
      {help.value && <KeyHelp onClose={() => (help.value = false)} />}
    </>
  );
}

function Body({ onHelp }: { onHelp: () => void }) {
  if (session.value === null) {
    return (
      <main class="center" id="main" tabIndex={-1}>
        {sessionError.value ? <ErrorPage error={sessionError.value} /> : <Loading />}
      </main>
    );
  }
  const found = findPage(route.value.path);
  if (needsLogin.value || found?.page.isPublic) return <Content />;
  return (
    <div class="layout">
      <Sidebar current={found?.page.under ?? found?.page.pattern ?? ""} onHelp={onHelp} />
      <Content />
    </div>
  );
}

function Content() {
  const main = useRef<HTMLElement>(null);
  const found = findPage(route.value.path);
  const name = found?.page.pattern ?? "";
  const shown = useRef(name);
  useEffect(() => {
    // A new page is read from its beginning.
    if (shown.current !== name) main.current?.focus({ preventScroll: true });
    shown.current = name;
  }, [name]);
  return (
    <main id="main" tabIndex={-1} ref={main}>
      <Boundary key={`${name} ${namespace.value ?? ""}`}>
        {found && (!needsLogin.value || found.page.isPublic) ? (
          <found.page.component route={route.value} params={found.params} />
        ) : (
          <EmptyState title="There is no such page" actions={<Button href="#/runs">Go to the runs</Button>}>
            {location.hash}
          </EmptyState>
        )}
      </Boundary>
    </main>
  );
}

/** Shows what failed instead of an empty window. */
class Boundary extends Component<{ children: ComponentChildren }, { error: unknown }> {
  override state = { error: null as unknown };
  override componentDidCatch(error: unknown) {
    console.error(error);
    this.setState({ error });
  }
  override render() {
    if (this.state.error === null) return this.props.children;
    return <ErrorPage error={asApiError(this.state.error)} retry={() => this.setState({ error: null })} />;
  }
}

function OfflineBanner() {
  if (online.value) return null;
  const wait = nextProbeAt.value === null ? 0 : nextProbeAt.value - now.value;
  return (
    <div class="banner" role="alert">
      <span>The server does not answer. What is shown may be old.</span>
      <span class="muted">{wait > 900 ? `Next attempt in ${durationText(wait, true)}.` : "Connecting…"}</span>
      <Button small onClick={probeNow}>
        Try now
      </Button>
    </div>
  );
}
