/** Owns what a person can do to a schedule. Each request that starts runs has an id of its own, so a second click is the same request. */
import { useSignal } from "@preact/signals";
import { api } from "../../api/client";
import { cliLine, curlLine } from "../../api/commands";
import type { Overlap, Schedule } from "../../api/model";
import { ActionDialog } from "../../ui/ActionDialog";
import { Input, Select } from "../../ui/Field";
import { newId } from "../../ui/id";
import { href, navigate } from "../../ui/router";
import { localTime } from "../../ui/SchemaForm";
import { toast } from "../../ui/Toasts";
import { ownZone } from "./slotDays";
import { OVERLAPS } from "./words";

export type ScheduleVerb = "pause" | "resume" | "trigger" | "backfill" | "delete";

interface DialogProps {
  schedule: Schedule;
  onClose: () => void;
  /** Called when the schedule is another one than before. */
  onDone: () => void;
}

export function ScheduleAction({ verb, ...props }: DialogProps & { verb: ScheduleVerb }) {
  switch (verb) {
    case "pause":
    case "resume":
      return <Pause verb={verb} {...props} />;
    case "trigger":
      return <Trigger {...props} />;
    case "backfill":
      return <Backfill {...props} />;
    default:
      return <Delete {...props} />;
  }
}

function Pause({ verb, schedule: { schedule }, onClose, onDone }: DialogProps & { verb: "pause" | "resume" }) {
  const note = useSignal("");
  const path = { path: { id: schedule } };
  const body = note.value === "" ? {} : { note: note.value };
  const isPause = verb === "pause";
  return (
    <ActionDialog
      title={`${isPause ? "Pause" : "Resume"} ${schedule}`}
      verb={isPause ? "Pause" : "Resume"}
      lines={{
        cli: cliLine("schedule", verb, schedule, note.value !== "" && `--note=${note.value}`),
        curl: curlLine("POST", `/v1/schedules/{id}/${verb}`, path, body),
      }}
      action={async () => {
        await (isPause ? api.post("/v1/schedules/{id}/pause", body, path) : api.post("/v1/schedules/{id}/resume", body, path));
        onDone();
      }}
      onClose={onClose}
    >
      <p>{isPause ? "The clock starts nothing until the schedule is resumed: the slots of the pause are skipped. Runs that are running continue." : "The next slot starts a run again. The slots of the pause stay skipped; a backfill starts them."}</p>
      <Input label="Note" value={note.value} maxLength={500} autoFocus hint="Recorded with the change, and shown while the schedule is paused." onInput={(text) => (note.value = text)} />
    </ActionDialog>
  );
}

const OUTCOMES = {
  started: "The run starts.",
  buffered: "The run starts when the one before it has ended.",
  skipped: "Nothing starts: a run is running, and the policy starts no other one.",
  existed: "A run of this id existed before.",
} as const;

function Trigger({ schedule: { schedule, kind, options }, onClose, onDone }: DialogProps) {
  const overlap = useSignal("");
  const requestId = useSignal(newId("console"));
  const path = { path: { id: schedule } };
  const body = { request_id: requestId.value, ...(overlap.value && { overlap: overlap.value as Overlap }) };
  return (
    <ActionDialog
      title={`Trigger ${schedule}`}
      verb="Start a run"
      lines={{
        cli: cliLine("schedule", "trigger", schedule, ...(overlap.value ? ["--overlap", overlap.value] : [])),
        curl: curlLine("POST", "/v1/schedules/{id}/trigger", path, body),
      }}
      action={async () => {
        const { run, outcome } = await api.post("/v1/schedules/{id}/trigger", body, path);
        toast(OUTCOMES[outcome], outcome === "skipped" ? "error" : "info", outcome === "started" || outcome === "existed" ? { link: { text: run, href: href(["runs", run]) } } : {});
        onDone();
      }}
      onClose={onClose}
    >
      <p>A run of <code>{kind}</code> starts now, whatever the time is, also while the schedule is paused.</p>
      <OverlapSelect value={overlap.value} absent={`as defined: ${options.overlap}`} onChange={(value) => (overlap.value = value)} />
    </ActionDialog>
  );
}

const DAY_MS = 86_400_000;

function Backfill({ schedule: { schedule }, onClose, onDone }: DialogProps) {
  const from = useSignal(localTime(new Date(Date.now() - DAY_MS).toISOString()));
  const until = useSignal(localTime(new Date().toISOString()));
  const overlap = useSignal("");
  const requestId = useSignal(newId("backfill"));
  const range = { from: instantOf(from.value), until: instantOf(until.value) };
  const isOrdered = range.from !== null && range.until !== null && range.from < range.until;
  const path = { path: { id: schedule } };
  const body = { request_id: requestId.value, from: range.from ?? "", until: range.until ?? "", ...(overlap.value && { overlap: overlap.value as Overlap }) };
  return (
    <ActionDialog
      title={`Backfill ${schedule}`}
      verb="Start the runs"
      disabled={!isOrdered}
      lines={{
        cli: cliLine("schedule", "backfill", schedule, "--from", body.from, "--until", body.until, ...(overlap.value ? ["--overlap", overlap.value] : [])),
        curl: curlLine("POST", "/v1/schedules/{id}/backfill", path, body),
      }}
      warning="Each slot of the range that has no run yet starts one. Runs cannot be taken back."
      action={async () => {
        await api.post("/v1/schedules/{id}/backfill", body, path);
        toast("The backfill has begun.");
        onDone();
      }}
      onClose={onClose}
    >
      <Input label="From" type="datetime-local" step={1} required autoFocus value={from.value} hint={`In your zone, ${ownZone()}. Slots at this time are included.`} onInput={(text) => (from.value = text)} />
      <Input label="Until" type="datetime-local" step={1} required value={until.value} hint="Slots are before this time." error={isOrdered ? null : "The range ends before it begins."} onInput={(text) => (until.value = text)} />
      <OverlapSelect value={overlap.value} absent="buffer_all: one after the other" onChange={(value) => (overlap.value = value)} />
    </ActionDialog>
  );
}

/** Returns the time of a `datetime-local` control; null without one. */
function instantOf(local: string): string | null {
  const time = new Date(local).getTime();
  return Number.isNaN(time) ? null : new Date(time).toISOString();
}

function Delete({ schedule: { schedule, running }, onClose }: DialogProps) {
  const typed = useSignal("");
  const path = { path: { id: schedule } };
  return (
    <ActionDialog
      title={`Delete ${schedule}`}
      verb="Delete the schedule"
      danger
      disabled={typed.value !== schedule}
      warning={`The schedule and its history are gone.${running.length > 0 ? " Runs that it started continue." : ""} This cannot be undone.`}
      lines={{ cli: cliLine("schedule", "delete", schedule), curl: curlLine("DELETE", "/v1/schedules/{id}", path) }}
      action={async () => {
        await api.delete("/v1/schedules/{id}", path);
        toast(`Deleted ${schedule}.`);
        navigate(href(["schedules"]));
      }}
      onClose={onClose}
    >
      <Input label="Id of the schedule" value={typed.value} autoFocus required hint="Enter it to confirm." onInput={(text) => (typed.value = text)} />
    </ActionDialog>
  );
}

export function OverlapSelect({ value, absent, onChange }: { value: string; absent?: string; onChange: (value: string) => void }) {
  return <Select label="Overlap" value={value} hint="If a run of the schedule is running." options={[...(absent === undefined ? [] : [{ value: "", label: absent }]), ...OVERLAPS]} onChange={onChange} />;
}
