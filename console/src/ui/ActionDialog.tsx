/** Owns dialogs that send one request: a form, the equal command lines, the error if it is refused. */
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import type { Lines } from "../api/commands";
import { type ApiError, asApiError } from "../api/errors";
import { Button } from "./Button";
import { CommandLines } from "./CommandLines";
import { Dialog } from "./Dialog";
import { ErrorNote } from "./ErrorPage";

export interface ActionDialogProps {
  title: string;
  /** The button that sends, for example "Cancel the run". */
  verb: string;
  danger?: boolean;
  /** What cannot be undone, shown above the form. */
  warning?: ComponentChildren;
  /** The equal commands, with the values of the form. */
  lines?: Lines;
  disabled?: boolean;
  wide?: boolean;
  children?: ComponentChildren;
  /** Sends the request; the dialog closes if it succeeds and shows the error otherwise. */
  action: () => Promise<unknown>;
  onClose: () => void;
}

export function ActionDialog(props: ActionDialogProps) {
  const error = useSignal<ApiError | null>(null);
  const busy = useSignal(false);
  const run = async () => {
    if (busy.value || props.disabled) return;
    busy.value = true;
    error.value = null;
    try {
      await props.action();
      props.onClose();
    } catch (reason) {
      error.value = asApiError(reason);
    } finally {
      busy.value = false;
    }
  };
  return (
    <Dialog
      title={props.title}
      wide={props.wide}
      onClose={props.onClose}
      onSubmit={() => void run()}
      actions={
        <>
          <Button onClick={props.onClose}>Back</Button>
          <Button type="submit" kind={props.danger ? "danger" : "primary"} busy={busy.value} disabled={props.disabled}>
            {props.verb}
          </Button>
        </>
      }
    >
      {props.warning && <p class="note note-warning">{props.warning}</p>}
      {/* What was refused is old as soon as the form changes. */}
      <div class="dialog-fields" onInput={() => (error.value = null)}>
        {props.children}
      </div>
      {error.value && <ErrorNote error={error.value} />}
      {props.lines && <CommandLines lines={props.lines} />}
    </Dialog>
  );
}
