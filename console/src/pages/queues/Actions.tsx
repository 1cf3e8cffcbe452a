/** Owns what a person can do to a queue as a whole. Each change replaces only the settings that the page shows. */
import { useSignal } from "@preact/signals";
import { api } from "../../api/client";
import { cliLine, curlLine } from "../../api/commands";
import { hasCode } from "../../api/errors";
import type { QueueSettings, QueueView } from "../../api/model";
import { ActionDialog } from "../../ui/ActionDialog";
import { Input } from "../../ui/Field";
import { countText } from "../../ui/format";
import { toast } from "../../ui/Toasts";
import { replacement, settingsText } from "./words";

export type QueueVerb = "pause" | "resume" | "drain" | "accept" | "reset";

export interface QueueActionProps {
  name: string;
  view: QueueView;
  onClose: () => void;
  /** Called when the settings are others than before. */
  onDone: () => void;
}

interface Change {
  title: string;
  verb: string;
  what: string;
  done: string;
  cli: string;
  change: (settings: QueueSettings) => QueueSettings;
}

/** Returns settings without a limit of the waiting tasks. */
function withoutDepth({ depth_max: _, ...settings }: QueueSettings): QueueSettings {
  return settings;
}

function changeOf(verb: Exclude<QueueVerb, "reset">, name: string, { running, queued }: QueueView): Change {
  switch (verb) {
    case "pause":
      return {
        title: `Pause ${name}`, verb: "Pause", done: `Paused ${name}.`, cli: cliLine("queue", "pause", name), change: (settings) => ({ ...settings, paused: true }),
        what: `No task begins until the queue is resumed; ${countText(queued, "task waits", "tasks wait")} now. ${countText(running, "running task continues", "running tasks continue")}.`,
      };
    case "resume":
      return {
        title: `Resume ${name}`, verb: "Resume", done: `Resumed ${name}.`, cli: cliLine("queue", "resume", name), change: ({ paused: _, ...settings }) => settings,
        what: `The tasks that wait are handed out again, as far as the limits permit: ${countText(queued, "task")}.`,
      };
    case "drain":
      return {
        title: `Drain ${name}`, verb: "Refuse new tasks", done: `${name} takes no new tasks.`, cli: cliLine("queue", "set", name, "--depth", 0), change: (settings) => ({ ...settings, depth_max: 0 }),
        what: `Callers that queue a standalone task are refused with the code queue_full. ${countText(queued, "task that waits is", "tasks that wait are")} handed out, and what runs schedule is queued.`,
      };
    default:
      return {
        title: `Accept tasks in ${name}`, verb: "Accept tasks", done: `${name} takes new tasks.`, cli: cliLine("queue", "set", name, "--depth", "none"), change: withoutDepth,
        what: "Standalone tasks are queued again, however many wait.",
      };
  }
}

export function QueueAction({ verb, ...props }: QueueActionProps & { verb: QueueVerb }) {
  return verb === "reset" ? <Reset {...props} /> : <SettingAction verb={verb} {...props} />;
}

function SettingAction({ verb, name, view, onClose, onDone }: QueueActionProps & { verb: Exclude<QueueVerb, "reset"> }) {
  const { title, verb: word, what, done, cli, change } = changeOf(verb, name, view);
  const before = view.settings ?? {};
  const path = { path: { id: name } };
  const body = replacement(before, change(before));
  return (
    <ActionDialog
      title={title}
      verb={word}
      danger={verb === "drain" || verb === "pause"}
      lines={{ cli, curl: curlLine("PUT", "/v1/queues/{id}", path, body) }}
      action={async () => {
        await api.put("/v1/queues/{id}", body, path).catch((error: unknown) => {
          // The page then shows the newer settings, and the dialog replaces these.
          if (hasCode(error, "queue_changed")) onDone();
          throw error;
        });
        toast(done);
        onDone();
      }}
      onClose={onClose}
    >
      <p>{what}</p>
    </ActionDialog>
  );
}

function Reset({ name, view, onClose, onDone }: QueueActionProps) {
  const typed = useSignal("");
  const path = { path: { id: name } };
  return (
    <ActionDialog
      title={`Reset ${name}`}
      verb="Remove all limits"
      danger
      disabled={typed.value !== name}
      warning="All tasks that wait are handed out as fast as workers take them."
      lines={{ cli: cliLine("queue", "reset", name), curl: curlLine("DELETE", "/v1/queues/{id}", path) }}
      action={async () => {
        await api.delete("/v1/queues/{id}", path);
        toast(`${name} has no limits.`);
        onDone();
      }}
      onClose={onClose}
    >
      <p>These settings are removed:</p>
      <ul class="queue-changes">
        {settingsText(view.settings ?? {}).map(({ label, text }) => <li key={label}>{label}: {text}</li>)}
      </ul>
      <Input label="Name of the queue" value={typed.value} autoFocus required hint="Enter it to confirm." onInput={(text) => (typed.value = text)} />
    </ActionDialog>
  );
}
