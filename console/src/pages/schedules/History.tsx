/** Owns the history of a schedule: its runs with their ends, and the slots without a run, newest first. */
import { EmptyState } from "../../ui/EmptyState";
import { countText } from "../../ui/format";
import { Table } from "../../ui/Table";
import { Duration } from "../../ui/Time";
import { Outcome, RunLink } from "./parts";
import { SlotTime } from "./SlotTime";
import { type HistoryEntry, reasonText } from "./words";

interface Row extends HistoryEntry {
  key: string;
}

export function History({ history, zone }: { history: readonly HistoryEntry[]; zone: string }) {
  const rows: Row[] = history.map((entry) => ({ ...entry, key: entry.started ? `run ${entry.started.number}` : `slots ${entry.skipped?.first} ${entry.at}` })).reverse();
  return (
    <Table
      label="History"
      rows={rows}
      rowKey={({ key }) => key}
      empty={<EmptyState title="Nothing happened yet">The first run appears here when its slot is due.</EmptyState>}
      columns={[
        { id: "slot", label: "Slot", cell: (row) => <SlotCell entry={row} zone={zone} /> },
        { id: "cause", label: "Cause", cell: ({ started, skipped }) => started?.cause ?? skipped?.cause },
        { id: "run", label: "Run", grow: true, cell: ({ started, skipped }) => (started ? <RunLink run={started.run} /> : skipped && <span class="muted">{skippedText(skipped)}</span>) },
        { id: "outcome", label: "Outcome", cell: (row) => (row.started ? <Outcome entry={row} /> : <span class="muted">skipped</span>) },
        { id: "took", label: "Duration", number: true, cell: ({ at, started, ended, ended_at }) => started && ended?.ending !== "existed" && <Duration from={at} to={ended_at} /> },
        { id: "by", label: "Requested by", cell: ({ started }) => started?.requested_by },
      ]}
    />
  );
}

function SlotCell({ entry: { started, skipped, at }, zone }: { entry: HistoryEntry; zone: string }) {
  if (!skipped) return <SlotTime at={started?.slot ?? at} zone={zone} />;
  return (
    <span class="row">
      <SlotTime at={skipped.first} zone={zone} />
      {skipped.first !== skipped.last && <>to <SlotTime at={skipped.last} zone={zone} /></>}
    </span>
  );
}

function skippedText({ count, is_partial, reason }: NonNullable<HistoryEntry["skipped"]>): string {
  return `${is_partial ? "at least " : ""}${countText(count, "slot")} without a run: ${reasonText(reason)}`;
}
