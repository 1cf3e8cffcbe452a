/** Owns the panel beside a conversation: its branches, its costs in total and per call, and why it stopped. */
import { Button } from "../../ui/Button";
import { countText, moneyText, numberText } from "../../ui/format";
import { KeyValue } from "../../ui/KeyValue";
import { setQuery } from "../../ui/router";
import { Badge } from "../../ui/Status";
import { Time } from "../../ui/Time";
import { cut, jsonOf, type RunView } from "../run/model";
import { attributeText } from "../run/summary";
import { blocksOf, gist, replyInfo, stopText } from "./content";
import { tokenTitle } from "./EntryView";
import { type Conversation, costOf, type ModelCall } from "./fold";
import { sumMoney } from "./money";
import type { EntryTree } from "./tree";
import { TreeMapView } from "./TreeMap";

const CALLS_SHOWN = 50;

export function BranchPanel({ view, conversation, tree, leaf }: { view: RunView; conversation: Conversation; tree: EntryTree; leaf: string | null }) {
  return (
    <aside class="details" aria-label="About the conversation">
      <Totals view={view} conversation={conversation} tree={tree} />
      <Branches tree={tree} leaf={leaf} run={view.id} />
      <Calls conversation={conversation} />
    </aside>
  );
}

/** Why the agent stopped: the outcome of a run that ended, the attribute of one that waits. */
export function stopOf(view: Pick<RunView, "outcome" | "attributes">): string | null {
  const output = view.outcome && "output" in view.outcome ? (jsonOf(view.outcome.output) as { stop?: unknown } | null | undefined) : null;
  if (typeof output?.stop === "string") return output.stop;
  const attribute = (view.attributes as Record<string, unknown>).agent_stop;
  return attribute === undefined ? null : attributeText(attribute);
}

function Totals({ view, conversation, tree }: { view: RunView; conversation: Conversation; tree: EntryTree }) {
  const stop = stopOf(view);
  const spend = view.spend;
  const cost = spend?.cost ?? sumMoney(conversation.calls.map((call) => costOf(call).cost));
  return (
    <section>
      <h2>Conversation</h2>
      <KeyValue pairs={[
        ["Agent", conversation.kind || view.kind],
        ["Entries", `${numberText(tree.path(tree.current).length)}${tree.entries.size > tree.path(tree.current).length ? ` of ${numberText(tree.entries.size)} in all branches` : ""}`],
        ["Model calls", conversation.calls.length || null],
        ["Cost", cost && moneyText(cost)],
        ["Tokens", spend && <span title={tokenTitle(spend.tokens)}>{numberText(spend.tokens.input + spend.tokens.cached_read + spend.tokens.cached_write)} in, {numberText(spend.tokens.output)} out</span>],
        ["Unknown cost", spend?.unknown ? countText(spend.unknown, "attempt") : null],
        ["Stopped", stop && <Badge text={stopText(stop)} tone={stop === "done" ? "good" : "warn"} />],
      ]} />
    </section>
  );
}

function Branches({ tree, leaf, run }: { tree: EntryTree; leaf: string | null; run: string }) {
  const branches = tree.branches();
  if (branches.length === 0) return null;
  return (
    <section>
      <h2>Branches</h2>
      <TreeMapView tree={tree} run={run} leaf={leaf} />
      <ul class="branches">
        {branches.map((branch) => {
          const last = tree.entries.get(branch.leaf);
          const parts = branch.partsAfter === null ? 0 : tree.path(branch.partsAfter).length;
          const isShown = branch.leaf === leaf;
          return (
            <li key={branch.leaf} class={isShown ? "branch branch-shown" : "branch"}>
              <button type="button" class="branch-select" aria-pressed={isShown} onClick={() => setQuery({ leaf: branch.isCurrent ? null : branch.leaf, entry: null, with: null })}>
                <span class="row">
                  {branch.isCurrent ? <Badge text="current" tone="good" /> : branch.isAbandoned ? <Badge text="abandoned" /> : <Badge text="branch" tone="wait" />}
                  <span class="muted tabular">{countText(branch.length, "entry", "entries")}{!branch.isCurrent && (parts > 0 ? `, parts after ${parts}` : ", parts at the beginning")}</span>
                  <span class="muted"><Time at={branch.lastAt} /></span>
                </span>
                <span class="branch-text">{cut(gist(blocksOf(last?.content ?? null)), 90)}</span>
              </button>
              {!isShown && <Button small kind="quiet" onClick={() => setQuery({ with: branch.leaf })}>Compare</Button>}
            </li>
          );
        })}
      </ul>
    </section>
  );
}

function Calls({ conversation }: { conversation: Conversation }) {
  const calls = conversation.calls.slice(-CALLS_SHOWN).reverse();
  if (calls.length === 0) return null;
  return (
    <section>
      <h2>Model calls</h2>
      <table class="calls">
        <thead><tr><th scope="col">Model</th><th scope="col" class="number">In</th><th scope="col" class="number">Out</th><th scope="col" class="number">Cost</th></tr></thead>
        <tbody>{calls.map((call) => <Call key={`${call.generation}~${call.callId}`} call={call} />)}</tbody>
      </table>
      {conversation.calls.length > CALLS_SHOWN && <p class="muted">The latest {CALLS_SHOWN} of {conversation.calls.length}.</p>}
    </section>
  );
}

function Call({ call }: { call: ModelCall }) {
  const spent = costOf(call);
  const info = replyInfo(call.reply);
  const tokens = spent.attempts > 0 && call.status !== "open" ? spent.tokens : info?.usage;
  return (
    <tr>
      <td>
        <button type="button" class="link" title={info?.stop ? stopText(info.stop) : call.status} onClick={() => setQuery({ saw: `${call.generation}~${call.callId}` })}>{call.model}</button>{" "}
        {call.status === "failed" && <Badge text={call.failure?.code ?? "failed"} tone="bad" />}
        {call.status === "open" && <Badge text="runs" tone="active" />}
      </td>
      <td class="number">{tokens ? numberText(tokens.input + tokens.cached_read + tokens.cached_write) : "–"}</td>
      <td class="number">{tokens ? numberText(tokens.output) : "–"}</td>
      <td class="number">{spent.cost ? moneyText(spent.cost) : spent.unknown ? "?" : "–"}</td>
    </tr>
  );
}
