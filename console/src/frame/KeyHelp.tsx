/** Owns the list of keys. */
import { Dialog } from "../ui/Dialog";
import { activeBindings } from "../ui/keys";

export function KeyHelp({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Keys" onClose={onClose}>
      {activeBindings().map((group) => (
        <section key={group.name} class="key-group">
          <h3>{group.name}</h3>
          <dl class="keys">
            {group.bindings.map((binding) => (
              <div key={binding.keys}>
                <dt>
                  {binding.keys.split(" ").map((key) => (
                    <kbd key={key}>{key.replace("Arrow", "")}</kbd>
                  ))}
                </dt>
                <dd>{binding.what}</dd>
              </div>
            ))}
          </dl>
        </section>
      ))}
    </Dialog>
  );
}
