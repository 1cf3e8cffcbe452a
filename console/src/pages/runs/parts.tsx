/** Owns the parts around the list of runs. */
import type { Activity, Counts, Status } from "../../api/model";
import { can } from "../../api/session";
import { Button } from "../../ui/Button";
import { EmptyState, Loading } from "../../ui/EmptyState";
import { countText, numberText } from "../../ui/format";
import { route, setQuery } from "../../ui/router";
import { BULK, type BulkVerb } from "./Bulk";
import { ActivityChart } from "./Chart";
import { StatusCounts } from "./Filters";
import { type Filter, noFilter } from "./filter";

export function Overview({ counts, activity, filter }: { counts: Counts | null; activity: Activity | null; filter: Filter }) {
  return (
    <div class="overview">
      <StatusCounts filter={filter} counts={counts} />
      {activity ? <ActivityChart activity={activity} /> : <div class="chart" />}
    </div>
  );
}

export function SelectionBar({ count, onVerb, onClear }: { count: number; onVerb: (verb: BulkVerb) => void; onClear: () => void }) {
  return (
    <>
      <strong>{countText(count, "run")} selected</strong>
      <span class="run-bar-actions">
        {(Object.keys(BULK) as BulkVerb[]).map((verb) => (
          <Button key={verb} small onClick={() => onVerb(verb)}>
            {BULK[verb].label}
          </Button>
        ))}
        <Button small kind="quiet" onClick={onClear}>
          Clear
        </Button>
      </span>
    </>
  );
}

const OPEN: readonly Status[] = ["pending", "running", "waiting", "paused"];

/** Buttons for all runs of the filter, each only if it applies to some of them. */
export function BulkButtons({ counts, statuses, onVerb }: { counts: Counts | null; statuses: readonly Status[]; onVerb: (verb: BulkVerb) => void }) {
  const some = (wanted: readonly Status[]) => wanted.some((status) => (statuses.length === 0 || statuses.includes(status)) && counts?.counts[status] !== 0);
  const verbs: [BulkVerb, boolean][] = [["cancel", some(OPEN)], ["retry", some(["failed"])]];
  return (
    <span class="run-bar-actions bulk-all">
      {verbs.map(([verb, applies]) => applies && (
        <Button key={verb} small onClick={() => onVerb(verb)}>
          {`${BULK[verb].label} all that match…`}
        </Button>
      ))}
    </span>
  );
}

/** Says how many runs are listed, and whether there are more. */
export function listedText(count: number, complete: boolean, searched: boolean): string {
  if (count === 0) return "";
  if (searched) return `${countText(count, "run")} found${complete ? "" : ", searching"}`;
  return complete ? countText(count, "run") : `the newest ${numberText(count)} runs; scroll for more`;
}

export function NoRuns({ loading, filtered }: { loading: boolean; filtered: boolean }) {
  if (loading) return <Loading what="Loading runs" />;
  if (filtered) {
    return (
      <EmptyState title="No run matches the filter" actions={<Button onClick={() => setQuery(noFilter(route.peek().query), false)}>Show all runs</Button>}>
        New runs that match appear here by themselves.
      </EmptyState>
    );
  }
  return (
    <EmptyState
      title="There are no runs yet"
      actions={
        can("start") && (
          <Button kind="primary" icon="plus" onClick={() => setQuery({ start: "1" })}>
            Start a run
          </Button>
        )
      }
    >
      Start one here, from your code, or with <code>onward run start KIND</code>. It appears here at once.
    </EmptyState>
  );
}
