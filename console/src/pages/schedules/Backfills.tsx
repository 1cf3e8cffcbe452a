/** Owns the backfills that are under way, with the number of slots that are left. */
import { api } from "../../api/client";
import type { Schedule } from "../../api/model";
import { Table } from "../../ui/Table";
import { numberText } from "../../ui/format";
import { SlotTime } from "./SlotTime";
import { zoneOf } from "./words";

/** The slots that are counted at most. */
const COUNTED = 1000;

/** The number of slots that are left, by the id of the backfill. */
export type Left = ReadonlyMap<string, number>;

function open({ backfills }: Schedule) {
  return backfills.filter(({ is_done }) => !is_done);
}

/** Counts the slots that are left of each backfill under way. */
export async function leftOf(schedule: Schedule, signal: AbortSignal): Promise<Left> {
  const counts = open(schedule).map(async ({ request_id, after, until }): Promise<[string, number]> => {
    const { slots } = await api.get("/v1/schedules/{id}/slots", { path: { id: schedule.schedule }, signal, query: { after, limit: COUNTED } });
    return [request_id, slots.filter(({ slot }) => Date.parse(slot) < Date.parse(until)).length];
  });
  return new Map(await Promise.all(counts));
}

export function Backfills({ schedule, left }: { schedule: Schedule; left: Left }) {
  const zone = zoneOf(schedule.spec);
  const rows = open(schedule);
  if (rows.length === 0) return null;
  return (
    <section class="section" aria-label="Backfills">
      <h2>Backfills</h2>
      <Table
        label="Backfills under way"
        rows={rows}
        rowKey={({ request_id }) => request_id}
        columns={[
          { id: "id", label: "Request", grow: true, cell: ({ request_id }) => <span class="mono">{request_id}</span> },
          { id: "after", label: "Done up to", cell: ({ after }) => <SlotTime at={after} zone={zone} /> },
          { id: "until", label: "Until", cell: ({ until }) => <SlotTime at={until} zone={zone} /> },
          { id: "left", label: "Slots left", number: true, cell: ({ request_id }) => leftText(left.get(request_id)) },
          { id: "overlap", label: "Overlap", cell: ({ overlap }) => overlap },
          { id: "by", label: "Requested by", cell: ({ requested_by }) => requested_by },
        ]}
      />
    </section>
  );
}

function leftText(count: number | undefined): string {
  return count === undefined ? "–" : `${numberText(count)}${count === COUNTED ? " or more" : ""}`;
}
