/** Owns the menu of views: built-in and saved filters. */
import { useSignal } from "@preact/signals";
import { ActionDialog } from "../../ui/ActionDialog";
import { Button } from "../../ui/Button";
import { Input, Select } from "../../ui/Field";
import { navigate, route } from "../../ui/router";
import { BUILT_IN, deleteView, savedViews, saveView } from "./views";

// The dialog that is open is no part of a view.
function filterOf(query: URLSearchParams): string {
  const filter = new URLSearchParams(query);
  filter.delete("start");
  return filter.toString();
}

export function ViewMenu() {
  const saving = useSignal(false);
  const name = useSignal("");
  const query = filterOf(route.value.query);
  const all = [...BUILT_IN, ...savedViews.value];
  const current = all.find((view) => filterOf(new URLSearchParams(view.query)) === query);
  const isSaved = current !== undefined && savedViews.value.includes(current);
  return (
    <div class="view-menu">
      <Select
        label="View"
        quiet
        value={current?.name ?? ""}
        options={[...(current ? [] : [{ value: "", label: "this filter" }]), ...all.map((view) => view.name)]}
        onChange={(chosen) => {
          const view = all.find((item) => item.name === chosen);
          if (view) navigate(`#/runs${view.query === "" ? "" : `?${view.query}`}`);
        }}
      />
      {isSaved && current ? (
        <Button kind="quiet" icon="star" pressed label={`Delete the view ${current.name}`} onClick={() => deleteView(current.name)} />
      ) : (
        !current && <Button kind="quiet" icon="star" label="Save this filter as a view" onClick={() => (saving.value = true)} />
      )}
      {saving.value && (
        <ActionDialog
          title="Save this filter as a view"
          verb="Save"
          disabled={name.value.trim() === ""}
          action={async () => {
            saveView(name.value.trim(), query);
            name.value = "";
          }}
          onClose={() => (saving.value = false)}
        >
          <Input label="Name" required autoFocus value={name.value} maxLength={60} onInput={(text) => (name.value = text)} hint="Kept in this browser. The address of the page is the view, too: send it to others." />
        </ActionDialog>
      )}
    </div>
  );
}
