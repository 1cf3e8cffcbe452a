/** Owns the navigation: a column on wide screens, a bar with a menu on a phone. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { chooseNamespace, namespace } from "../api/identity";
import { session, signOut } from "../api/session";
import { openApprovals } from "../pages/approvals/count";
import { navPages } from "../pages/registry";
import { ActionDialog } from "../ui/ActionDialog";
import { Button } from "../ui/Button";
import { Icon } from "../ui/icons";
import { Input, Select } from "../ui/Field";
import { route } from "../ui/router";
import { type Theme, chooseTheme, theme } from "../ui/theme";
import { toastError } from "../ui/Toasts";

const NEXT_THEME: Record<Theme, Theme> = { auto: "light", light: "dark", dark: "auto" };
const THEME_ICON = { auto: "auto", light: "sun", dark: "moon" } as const;

export function Sidebar({ current, onHelp }: { current: string; onHelp: () => void }) {
  const open = useSignal(false);
  const hash = route.value;
  useEffect(() => {
    open.value = false;
  }, [hash]);
  return (
    <header class="side" data-open={open.value}>
      <div class="side-top">
        <a class="brand" href="#/runs">
          <img src="/console/icon.svg" width="22" height="22" alt="" />
          Onward
        </a>
        <Button class="side-menu" kind="quiet" icon="menu" label="Menu" expanded={open.value} onClick={() => (open.value = !open.value)} />
      </div>
      <div class="side-body">
        <nav aria-label="Pages">
          <NavGroup group="work" current={current} />
          <h2 class="side-title">Operations</h2>
          <NavGroup group="operations" current={current} />
        </nav>
        <div class="side-foot">
          <Namespaces />
          <div class="side-tools">
            <Button kind="quiet" icon={THEME_ICON[theme.value]} label={`Theme: ${theme.value}`} onClick={() => chooseTheme(NEXT_THEME[theme.value])} />
            <Button kind="quiet" icon="keyboard" label="Keys" onClick={onHelp} />
            {session.value?.needs_key && (
              <Button kind="quiet" icon="out" label="Sign out" onClick={() => void signOut().catch(toastError)} />
            )}
          </div>
          <Identity />
        </div>
      </div>
    </header>
  );
}

function NavGroup({ group, current }: { group: "work" | "operations"; current: string }) {
  return (
    <ul class="nav">
      {navPages().map(
        (page) =>
          page.nav?.group === group && (
            <li key={page.pattern}>
              <a href={`#/${page.pattern}`} aria-current={page.pattern === current ? "page" : undefined}>
                <Icon name={page.nav.icon} />
                {page.nav.label}
                {page.pattern === "approvals" && openApprovals.value > 0 && <span class="nav-count">{openApprovals.value > 99 ? "99+" : openApprovals.value}</span>}
              </a>
            </li>
          ),
      )}
    </ul>
  );
}

function Namespaces() {
  const current = session.value;
  if (!current) return null;
  const chosen = namespace.value ?? current.namespace;
  if (current.namespaces === null) return <AnyNamespace chosen={chosen} />;
  if (current.namespaces.length < 2) return <div class="side-note" title="Namespace">{chosen}</div>;
  return <Select label="Namespace" quiet value={chosen} options={current.namespaces} onChange={chooseNamespace} />;
}

/** Every namespace is permitted: its name is entered. */
function AnyNamespace({ chosen }: { chosen: string }) {
  const open = useSignal(false);
  const name = useSignal("");
  return (
    <>
      <Button class="side-namespace" kind="quiet" small title="Namespace: change" onClick={() => { name.value = chosen; open.value = true; }}>
        {chosen}
      </Button>
      {open.value && (
        <ActionDialog title="Namespace" verb="Show" disabled={name.value.trim() === ""} action={async () => chooseNamespace(name.value.trim() === "default" ? null : name.value.trim())} onClose={() => (open.value = false)}>
          <Input label="Name" required autoFocus value={name.value} hint="Runs, workers and spend of other namespaces are not shown." onInput={(text) => (name.value = text)} />
        </ActionDialog>
      )}
    </>
  );
}

function Identity() {
  const current = session.value;
  if (!current) return null;
  return (
    <div class="side-note muted">
      {current.key_name && <div title="Name of the key">{current.key_name}</div>}
      <div title={`Server ${current.server}`}>Onward {current.version}</div>
    </div>
  );
}
