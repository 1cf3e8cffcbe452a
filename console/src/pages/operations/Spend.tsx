/** Owns the page of spend: per day, model, agent and tree of runs. */
import { api } from "../../api/client";
import type { Run, SpendRow, SpendTotals } from "../../api/model";
import { EmptyState } from "../../ui/EmptyState";
import { Select } from "../../ui/Field";
import { Table } from "../../ui/Table";
import { moneyText, numberText } from "../../ui/format";
import { href, setQuery } from "../../ui/router";
import type { PageProps } from "../registry";
import { Figure, OperationsPage } from "./Page";
import { addMoney } from "./money";
import { usePolled } from "./usePolled";

const DAYS: Record<string, string> = { "1": "today", "7": "7 days", "30": "30 days", "90": "90 days" };
const RUN_PAGES = 5;
const POLL_MS = 30_000;

function startOf(days: number): string {
  const today = new Date();
  return new Date(Date.UTC(today.getUTCFullYear(), today.getUTCMonth(), today.getUTCDate() - days + 1)).toISOString();
}

async function load(days: number, signal: AbortSignal) {
  const from = startOf(days);
  const by = (name: string, limit: number) => api.get("/v1/spend", { signal, query: { by: name, from, limit } });
  const [day, model, tree, agents] = await Promise.all([by("day", 366), by("model", 100), by("tree", 20), byKind(from, signal)]);
  return { day: day.rows, model: model.rows, tree: tree.rows, agents, from };
}

/** Adds up the spend of the runs that were started in the time, by kind. */
async function byKind(from: string, signal: AbortSignal): Promise<{ rows: SpendRow[]; complete: boolean }> {
  const totals = new Map<string, SpendTotals>();
  let cursor: string | null = null;
  for (let page = 0; page < RUN_PAGES; page++) {
    const answer: { runs: Run[]; next?: string | null } = await api.get("/v1/runs", { signal, query: { created_from: from, limit: 1000, cursor } });
    for (const run of answer.runs) if (run.spend) totals.set(run.kind, add(totals.get(run.kind), run.spend));
    cursor = answer.next ?? null;
    if (cursor === null) break;
  }
  const rows = [...totals].map(([name, sum]) => ({ name, totals: sum }));
  return { rows: rows.sort((a, b) => Number(b.totals.cost) - Number(a.totals.cost)), complete: cursor === null };
}

function add(a: SpendTotals | undefined, b: SpendTotals): SpendTotals {
  if (!a) return b;
  const tokens = { ...a.tokens };
  for (const name of Object.keys(tokens) as (keyof typeof tokens)[]) tokens[name] = (tokens[name] ?? 0) + (b.tokens[name] ?? 0);
  return { cost: addMoney(a.cost, b.cost), tokens, attempts: a.attempts + b.attempts, unknown: a.unknown + b.unknown, unpriced: a.unpriced + b.unpriced };
}

export function SpendPage({ route }: PageProps) {
  const days = DAYS[route.query.get("days") ?? ""] ? (route.query.get("days") ?? "30") : "30";
  const loaded = usePolled((signal) => load(Number(days), signal), [days], POLL_MS);
  const choice = <Select label="Time" quiet value={days} options={Object.entries(DAYS).map(([value, label]) => ({ value, label }))} onChange={(value) => setQuery({ days: value })} />;
  return (
    <OperationsPage title="Spend" loaded={loaded} actions={choice}>
      {(data) =>
        data.model.length === 0 ? (
          <EmptyState title="Nothing was spent in this time">Model calls and tasks that cost money appear here with their attempts.</EmptyState>
        ) : (
          <>
            <Totals rows={data.model} />
            <DayChart rows={data.day} days={Number(days)} />
            <div class="columns">
              <SpendTable title="By model" name="Model" rows={data.model} />
              <SpendTable title={data.agents.complete ? "By agent or workflow" : "By agent or workflow, newest runs"} name="Kind" rows={data.agents.rows} link={(name) => href(["runs"], { kind: name })} />
            </div>
            <SpendTable title="Most expensive runs, with their children and forks" name="Root run" rows={data.tree} link={(name) => href(["runs", name])} />
            <p class="muted">Days are in UTC.</p>
          </>
        )
      }
    </OperationsPage>
  );
}

function Totals({ rows }: { rows: readonly SpendRow[] }) {
  const total = rows.map((row) => row.totals).reduce<SpendTotals | undefined>((sum, row) => add(sum, row), undefined);
  if (!total) return null;
  return (
    <dl class="figures">
      <Figure name="Cost" value={moneyText(total.cost)} />
      <Figure name="Input tokens" value={numberText(inputOf(total))} />
      <Figure name="Output tokens" value={numberText(total.tokens.output)} />
      <Figure name="Attempts" value={numberText(total.attempts)} />
      {total.unknown > 0 && <Figure name="With unknown cost" value={numberText(total.unknown)} />}
      {total.unpriced > 0 && <Figure name="Without a price" value={numberText(total.unpriced)} />}
    </dl>
  );
}

function inputOf(totals: SpendTotals): number {
  return totals.tokens.input + totals.tokens.cached_read + totals.tokens.cached_write;
}

function DayChart({ rows, days }: { rows: readonly SpendRow[]; days: number }) {
  const start = Date.parse(startOf(days));
  const byDay = new Map(rows.map((row) => [row.name, row.totals.cost]));
  const bars = Array.from({ length: days }, (_, index) => {
    const day = new Date(start + index * 86_400_000).toISOString().slice(0, 10);
    return { day, cost: byDay.get(day) ?? "0" };
  });
  const most = Math.max(...bars.map((bar) => Number(bar.cost)), 1e-9);
  return (
    <figure class="day-chart" aria-label="Spend per day">
      <p class="day-most muted">{moneyText(bars.reduce((top, bar) => (Number(bar.cost) > Number(top) ? bar.cost : top), "0"))}</p>
      <ol class="day-bars">
        {bars.map((bar) => (
          <li key={bar.day} title={`${bar.day}: ${moneyText(bar.cost)}`}>
            <span class="day-bar" style={{ height: `${(Number(bar.cost) / most) * 100}%` }} />
            <span class="visually-hidden">{`${bar.day}: ${moneyText(bar.cost)}`}</span>
          </li>
        ))}
      </ol>
      <figcaption class="row spread muted">
        <span>{bars[0]?.day}</span>
        <span>{bars.at(-1)?.day}</span>
      </figcaption>
    </figure>
  );
}

function SpendTable({ title, name, rows, link }: { title: string; name: string; rows: readonly SpendRow[]; link?: (name: string) => string }) {
  return (
    <section class="section">
      <h2>{title}</h2>
      <Table
        label={title}
        rows={rows}
        rowKey={(row) => row.name}
        empty={<p class="muted">none</p>}
        columns={[
          { id: "name", label: name, grow: true, cell: (row) => (link ? <a class="mono" href={link(row.name)}>{row.name}</a> : <span class="mono">{row.name}</span>) },
          { id: "cost", label: "Cost", number: true, cell: (row) => moneyText(row.totals.cost) },
          { id: "input", label: "Input", number: true, cell: (row) => numberText(inputOf(row.totals)) },
          { id: "output", label: "Output", number: true, cell: (row) => numberText(row.totals.tokens.output) },
          { id: "attempts", label: "Attempts", number: true, cell: (row) => numberText(row.totals.attempts) },
        ]}
      />
    </section>
  );
}
