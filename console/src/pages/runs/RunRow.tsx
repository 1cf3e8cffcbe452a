/** Owns one row of the list. */
import type { Run } from "../../api/model";
import { isClosed } from "../../api/model";
import { StatusDot } from "../../ui/Status";
import { Duration, Time } from "../../ui/Time";
import { moneyText } from "../../ui/format";
import { href, navigate } from "../../ui/router";
import { attributeText } from "./filter";

export interface RunRowProps {
  run: Run;
  index: number;
  active: boolean;
  selected: boolean;
  canSelect: boolean;
  onSelect: (index: number, range: boolean) => void;
  onFocus: (index: number) => void;
}

export function RunHeader({ canSelect }: { canSelect: boolean }) {
  return (
    <div class="run-row run-head" role="row" data-select={canSelect}>
      {canSelect && <span role="columnheader"><span class="visually-hidden">Selected</span></span>}
      <span role="columnheader">Status</span>
      <span role="columnheader">Run</span>
      <span role="columnheader">Kind</span>
      <span role="columnheader" class="wide-only">Attributes</span>
      <span role="columnheader" class="number">Cost</span>
      <span role="columnheader" class="number">Duration</span>
      <span role="columnheader" class="number">Started</span>
    </div>
  );
}

export function RunRow({ run, index, active, selected, canSelect, onSelect, onFocus }: RunRowProps) {
  const link = href(["runs", run.id]);
  return (
    <div
      class="run-row"
      role="row"
      aria-rowindex={index + 2}
      data-active={active}
      data-selected={selected}
      data-select={canSelect}
      onClick={(event) => {
        if (event.target instanceof Element && event.target.closest("a, input, label")) return;
        if (String(window.getSelection()) !== "") return;
        if (event.ctrlKey || event.metaKey || event.shiftKey) onSelect(index, event.shiftKey);
        else navigate(link);
      }}
    >
      {canSelect && (
        <span role="cell" class="run-check">
          <input type="checkbox" checked={selected} aria-label={`Select ${run.id}`} tabIndex={-1} onClick={(event) => onSelect(index, event.shiftKey)} />
        </span>
      )}
      <span role="cell" class="run-status">
        <StatusDot status={run.status} />
      </span>
      <span role="cell" class="run-id ellipsis">
        <a href={link} data-run={index} title={run.id} onFocus={() => onFocus(index)}>
          {run.id}
        </a>
      </span>
      <span role="cell" class="run-kind ellipsis" title={run.version ? `${run.kind}, version ${run.version}` : run.kind}>
        {run.kind}
        {run.version && <span class="muted"> {run.version}</span>}
      </span>
      <span role="cell" class="run-attributes ellipsis muted wide-only">
        {Object.entries(run.attributes)
          .map(([name, value]) => `${name}=${attributeText(value)}`)
          .join("  ")}
      </span>
      <span role="cell" class="run-cost number">{run.spend ? moneyText(run.spend.cost) : ""}</span>
      <span role="cell" class="run-duration number">
        <Duration from={run.created_at} to={isClosed(run.status) ? (run.ended_at ?? run.updated_at) : null} />
      </span>
      <span role="cell" class="run-started number muted">
        <Time at={run.created_at} />
      </span>
    </div>
  );
}
