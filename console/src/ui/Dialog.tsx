/** Owns modal dialogs: the native element keeps the focus inside and returns it afterwards. */
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { Button } from "./Button";

export interface DialogProps {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  /** Buttons at the bottom. */
  actions?: ComponentChildren;
  wide?: boolean;
  /** Makes the dialog a form: Enter and the submit button call it. */
  onSubmit?: () => void;
}

export function Dialog({ title, onClose, children, actions, wide, onSubmit }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const element = dialog.current;
    const before = document.activeElement;
    if (element && !element.open) element.showModal();
    return () => {
      element?.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  const body = (
    <>
      <header class="dialog-head">
        <h2 id={id}>{title}</h2>
        <Button kind="quiet" icon="close" label="Close" onClick={onClose} />
      </header>
      <div class="dialog-body">{children}</div>
      {actions && <footer class="dialog-foot">{actions}</footer>}
    </>
  );
  return (
    <dialog
      ref={dialog}
      class={wide ? "dialog dialog-wide" : "dialog"}
      aria-labelledby={id}
      onCancel={(event) => {
        // The owner removes the dialog; the browser alone would leave it in the tree.
        event.preventDefault();
        onClose();
      }}
      onMouseDown={(event) => {
        if (event.target === dialog.current) onClose();
      }}
    >
      {onSubmit ? (
        <form
          class="dialog-box"
          onSubmit={(event) => {
            event.preventDefault();
            onSubmit();
          }}
        >
          {body}
        </form>
      ) : (
        <div class="dialog-box">{body}</div>
      )}
    </dialog>
  );
}
