/** Owns the panel with exactly what a model saw at a call. */
import { Button } from "../../ui/Button";
import { CopyButton } from "../../ui/CopyButton";
import { moneyText, numberText } from "../../ui/format";
import { printJson } from "../../api/json";
import { Json } from "../../ui/Json";
import { KeyValue } from "../../ui/KeyValue";
import { href, setQuery } from "../../ui/router";
import { Badge } from "../../ui/Status";
import { Time } from "../../ui/Time";
import { FailureView } from "../run/FailureView";
import { eventRef, type Failure } from "../run/model";
import { Blocks, LongText } from "./Blocks";
import { replyInfo, stopText } from "./content";
import { roleTone } from "./EntryPreview";
import { type Conversation, costOf, type ModelCall } from "./fold";
import { promptOf } from "./prompt";
import type { EntryTree } from "./tree";

export interface PromptPanelProps {
  run: string;
  conversation: Conversation;
  tree: EntryTree;
  call: ModelCall;
  onClose: () => void;
}

export function PromptPanel({ run, conversation, tree, call, onClose }: PromptPanelProps) {
  const prompt = promptOf(conversation, tree, call);
  const spent = costOf(call);
  const info = replyInfo(call.reply);
  const options = Object.entries(prompt.options);
  return (
    <aside class="details details-wide" aria-label="What the model saw">
      <header class="row spread">
        <h2>What the model saw</h2>
        <span class="row">
          <CopyButton text={() => printJson({ model: prompt.model, system: prompt.system, messages: prompt.messages.map(({ role, blocks }) => ({ role, blocks })), tools: prompt.tools, ...prompt.options }, 2)} label="Copy the prompt as JSON" />
          <Button kind="quiet" small icon="close" label="Close the prompt" onClick={onClose} />
        </span>
      </header>
      {prompt.isPartial && <p class="note note-warning">The settings of this call are not in the loaded part of the log: the system prompt and the tools are missing here.</p>}
      <KeyValue pairs={[
        ["Model", <span>{prompt.model}{info?.model && info.model !== prompt.model && <span class="muted"> (answered as {info.model})</span>}</span>],
        ["Call", <a href={href(["runs", run, "timeline"], { call: call.callId, generation: call.generation })}>{call.callId}</a>],
        ["Time", <Time at={call.at} mode="both" />],
        ["Log", <a href={href(["runs", run, "log"], { event: eventRef(call.generation, call.index) })}>event {eventRef(call.generation, call.index)}</a>],
        ["Cost", spent.cost ? moneyText(spent.cost) : spent.unknown > 0 ? "unknown" : null],
        ["Stopped", info?.stop && <Badge text={stopText(info.stop)} />],
        ["Options", options.length > 0 && <Json value={prompt.options} tools={false} label="Options" />],
        ["Long texts", prompt.truncateAt !== null && `cut in the middle to ${numberText(prompt.truncateAt)} characters`],
      ]} />
      {call.spend.length > 1 && (
        <section>
          <h3>Attempts</h3>
          <ol class="attempts">
            {call.spend.map((line) => <li key={`${line.attempt} ${line.model}`} class="attempt">{`Attempt ${line.attempt}: ${line.failureCode ?? "answered"}, ${numberText(line.tokens.input)} in, ${numberText(line.tokens.output)} out${line.cost ? `, ${moneyText(line.cost)}` : ""}`}</li>)}
          </ol>
        </section>
      )}
      {call.failure && <FailureView failure={call.failure as Failure} />}
      {prompt.system !== null && <section><h3>System prompt</h3><LongText text={prompt.system} /></section>}
      {prompt.tools.length > 0 && (
        <details class="fold">
          <summary>{prompt.tools.length === 1 ? "1 tool" : `${prompt.tools.length} tools`}: {prompt.tools.map((tool) => tool.name).join(", ")}</summary>
          {prompt.tools.map((tool) => <div key={tool.name} class="tool-schema"><strong>{tool.name}</strong> <span class="muted">{tool.description}</span><Json value={tool.input} open={0} tools={false} label={`Arguments of ${tool.name}`} /></div>)}
        </details>
      )}
      <h3>{prompt.messages.length === 1 ? "1 message" : `${prompt.messages.length} messages`}</h3>
      {prompt.covered > 0 && <p class="note">A summary stands for the first {prompt.covered} entries.</p>}
      {prompt.messages.map((message, at) => (
        <article key={at} class={`prompt prompt-${roleTone(message.role)}`}>
          <header class="row spread">
            <strong class="entry-role">{message.role}</strong>
            {message.entry ? <button type="button" class="link muted" onClick={() => setQuery({ entry: message.entry, leaf: call.leaf })}>{message.entry.slice(0, 8)}</button> : <span class="muted">added by the worker</span>}
          </header>
          <Blocks blocks={message.blocks} />
        </article>
      ))}
    </aside>
  );
}
