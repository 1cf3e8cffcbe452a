/** Owns the page of one schedule: its definition, the next slots, what runs and waits, and the history. */
import { useSignal } from "@preact/signals";
import { api } from "../../api/client";
import type { Schedule, UpcomingSlot } from "../../api/model";
import { can } from "../../api/session";
import { Button } from "../../ui/Button";
import { numberText } from "../../ui/format";
import { Json, PayloadView } from "../../ui/Json";
import { KeyValue } from "../../ui/KeyValue";
import { href } from "../../ui/router";
import { Time } from "../../ui/Time";
import { Figure, OperationsPage } from "../operations/Page";
import type { PageProps } from "../registry";
import { ScheduleAction, type ScheduleVerb } from "./Actions";
import { Backfills, type Left, leftOf } from "./Backfills";
import { EditDialog } from "./EditDialog";
import { isEditable } from "./form";
import { History } from "./History";
import { RunLink, StateOf, Times } from "./parts";
import { SlotCalendar } from "./SlotCalendar";
import { SlotTime } from "./SlotTime";
import { useScheduleLoad } from "./useScheduleLoad";
import { lastRunOf, spanText, zoneOf } from "./words";

const SLOTS = 50;

interface Data {
  schedule: Schedule;
  slots: UpcomingSlot[];
  left: Left;
}

async function load(id: string, signal: AbortSignal): Promise<Data> {
  const path = { id };
  const [schedule, { slots }] = await Promise.all([
    api.get("/v1/schedules/{id}", { path, signal }),
    api.get("/v1/schedules/{id}/slots", { path, signal, query: { limit: SLOTS } }),
  ]);
  return { schedule, slots, left: await leftOf(schedule, signal) };
}

export function SchedulePage({ params }: PageProps) {
  const id = params.id ?? "";
  const dialog = useSignal<ScheduleVerb | "edit" | null>(null);
  const loaded = useScheduleLoad<Data>({
    load: (signal) => load(id, signal),
    deps: [id],
    isShown: (schedule) => schedule === id,
    nextDue: ({ slots }) => slots[0]?.due_at,
  });
  const schedule = loaded.data.value?.schedule ?? null;
  const close = () => (dialog.value = null);
  return (
    <>
      <OperationsPage title={id} loaded={loaded} actions={schedule && <Buttons schedule={schedule} choose={(chosen) => (dialog.value = chosen)} />}>
        {({ schedule: shown, slots, left }) => <Parts schedule={shown} slots={slots} left={left} />}
      </OperationsPage>
      {schedule && dialog.value === "edit" && <EditDialog schedule={schedule} onClose={close} onDone={loaded.reload} />}
      {schedule && dialog.value !== null && dialog.value !== "edit" && <ScheduleAction verb={dialog.value} schedule={schedule} onClose={close} onDone={loaded.reload} />}
    </>
  );
}

function Buttons({ schedule, choose }: { schedule: Schedule; choose: (chosen: ScheduleVerb | "edit") => void }) {
  if (!can("operate")) return null;
  return (
    <>
      <Button icon={schedule.paused ? "play" : "pause"} onClick={() => choose(schedule.paused ? "resume" : "pause")}>{schedule.paused ? "Resume" : "Pause"}</Button>
      <Button kind="primary" icon="play" onClick={() => choose("trigger")}>Trigger</Button>
      <Button onClick={() => choose("backfill")}>Backfill</Button>
      <Button disabled={!isEditable(schedule)} title={isEditable(schedule) ? undefined : "The input is not JSON, and the form would lose it."} onClick={() => choose("edit")}>Edit</Button>
      <Button onClick={() => choose("delete")}>Delete</Button>
    </>
  );
}

function Parts({ schedule, slots, left }: Data) {
  const zone = zoneOf(schedule.spec);
  const { paused, running, waiting } = schedule;
  return (
    <>
      {paused && (
        <div class="note note-warning" role="note">
          Paused <Time at={paused.at} />{paused.note && <>: {paused.note}</>}{paused.after && <>, because the run <RunLink run={paused.after} /> failed</>}. Slots are skipped until it is resumed.
        </div>
      )}
      <Figures schedule={schedule} />
      <section class="section" aria-label="Next slots">
        <h2>Next slots</h2>
        <SlotCalendar slots={slots} zone={zone} />
      </section>
      {(running.length > 0 || waiting.length > 0) && <Now schedule={schedule} zone={zone} />}
      <Backfills schedule={schedule} left={left} />
      <section class="section" aria-label="History">
        <h2>History</h2>
        <History history={schedule.history} zone={zone} />
      </section>
      <Definition schedule={schedule} />
    </>
  );
}

function Figures({ schedule }: { schedule: Schedule }) {
  const { totals, history } = schedule;
  const last = lastRunOf(history);
  return (
    <dl class="figures">
      <Figure name="State" value={<StateOf schedule={{ ...schedule, paused: schedule.paused && { ...schedule.paused, note: "" } }} />} />
      <Figure name="Last run" value={last ? <Time at={last.at} /> : "–"} />
      <Figure name="Started" value={numberText(totals.started)} />
      <Figure name="Completed" value={numberText(totals.completed)} />
      <Figure name="Failed" value={numberText(totals.failed)} />
      <Figure name="Skipped" value={numberText(totals.skipped)} />
      <Figure name="of these missed" value={numberText(totals.missed)} />
    </dl>
  );
}

/** The runs that are running, and the starts that wait for them. */
function Now({ schedule: { running, waiting }, zone }: { schedule: Schedule; zone: string }) {
  return (
    <section class="section" aria-label="Running and waiting">
      <h2>Running and waiting</h2>
      <ul class="schedule-now">
        {running.map(({ firing, started_at, stopped_by }) => (
          <li key={firing.number} class="row">
            <RunLink run={firing.run} /> <span class="muted">{firing.cause}, started <Time at={started_at} />{stopped_by && `, being stopped by the policy ${stopped_by}`}</span>
          </li>
        ))}
        {waiting.map(({ number, run, slot, cause }) => (
          <li key={number} class="row">
            <span class="mono">{run}</span> <span class="muted">waits, {cause}, slot <SlotTime at={slot} zone={zone} /></span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Definition({ schedule }: { schedule: Schedule }) {
  const { options, spec } = schedule;
  const limits = Object.entries(schedule.budget ?? {}).filter(([, limit]) => limit !== null && limit !== undefined);
  return (
    <section class="section" aria-label="Definition">
      <h2>Definition</h2>
      <KeyValue
        pairs={[
          ["Kind", <a class="mono" href={href(["runs"], { kind: schedule.kind })}>{schedule.kind}</a>],
          ["Version", schedule.version],
          ["Times", <Times spec={spec} />],
          ["Overlap", options.overlap],
          ["Catch-up", options.catch_up_ms ? spanText(options.catch_up_ms) : "1d"],
          ["Waiting slots at most", options.buffer_max],
          ["Pause on failure", options.pause_on_failure ? "yes" : "no"],
          ["Deadline of a run", schedule.deadline_ms ? spanText(schedule.deadline_ms) : null],
          ["Budget of a run", limits.map(([name, limit]) => `${name} ${limit}`).join(", ")],
          ["Defined by", schedule.requester],
          ["Revision", schedule.revision],
          ["Created", <Time at={schedule.created_at} mode="both" />],
          ["Changed", <Time at={schedule.updated_at} mode="both" />],
        ]}
      />
      <div class="columns">
        <div class="section"><h3>Specification</h3><Json value={spec} open={4} label="Specification" /></div>
        <div class="section"><h3>Input{schedule.template && " (template)"}</h3><PayloadView payload={schedule.input} open={3} label="Input" /></div>
        {Object.keys(schedule.attributes ?? {}).length > 0 && <div class="section"><h3>Attributes</h3><Json value={schedule.attributes} open={2} label="Attributes" /></div>}
      </div>
    </section>
  );
}
