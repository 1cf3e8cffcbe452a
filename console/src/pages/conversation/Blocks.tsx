/** Owns the display of the blocks of an entry: texts as text, calls and results folded, images from their own bytes only. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { parseJson } from "../../api/json";
import { Button } from "../../ui/Button";
import { bytesText } from "../../ui/format";
import { Icon } from "../../ui/icons";
import { bytesOf, Json, preview } from "../../ui/Json";
import { href } from "../../ui/router";
import { StatusDot } from "../../ui/Status";
import { cut } from "../run/model";
import { shortSpan } from "../run/waterfall";
import { type Attachment, type Block, gist, imageType, safeUrl, type ToolCall } from "./content";
import type { ToolRun } from "./fold";

const TEXT_MAX = 6000;

export interface BlocksProps {
  blocks: readonly Block[];
  /** What a tool call did, if it is known. */
  runsOf?: (call: ToolCall, nth: number) => ToolRun[];
  run?: string;
}

export function Blocks({ blocks, runsOf, run }: BlocksProps) {
  const seen = new Map<string, number>();
  return (
    <>
      {blocks.map((block, at) => {
        if (block.type !== "tool_call") return <One key={at} block={block} />;
        // Equal calls of one answer are told apart by their order.
        const same = `${block.name} ${block.arguments}`;
        const nth = seen.get(same) ?? 0;
        seen.set(same, nth + 1);
        return <Call key={at} call={block} runs={runsOf?.(block, nth) ?? []} run={run} />;
      })}
    </>
  );
}

function One({ block }: { block: Exclude<Block, ToolCall> }) {
  switch (block.type) {
    case "text": return <LongText text={block.text} />;
    case "reasoning": return (
      <details class="fold fold-reasoning">
        <summary><Icon name="info" size={12} /> Reasoning{block.text === "" && " (hidden by the provider)"}</summary>
        {block.text !== "" && <LongText text={block.text} />}
      </details>
    );
    case "refusal": return <p class="note note-bad">Refused: {block.text || "no reason given"}</p>;
    case "opaque": return <details class="fold"><summary>Content of {block.provider}</summary><pre tabIndex={0}>{cut(block.json, 4000)}</pre></details>;
    case "attachment": return <AttachmentView attachment={block} />;
    case "tool_result": return <Result isError={block.isError} blocks={block.blocks} />;
  }
}

export function LongText({ text }: { text: string }) {
  const all = useSignal(false);
  const shown = all.value || text.length <= TEXT_MAX ? text : text.slice(0, TEXT_MAX);
  return (
    <div class="talk-text">
      {shown}
      {shown !== text && <Button kind="quiet" small onClick={() => (all.value = true)}>{`… ${bytesText(text.length - TEXT_MAX)} more`}</Button>}
    </div>
  );
}

function parsed(text: string): unknown {
  try {
    return parseJson(text.trim() === "" ? "{}" : text);
  } catch {
    return text;
  }
}

function Call({ call, runs, run }: { call: ToolCall; runs: ToolRun[]; run: string | undefined }) {
  const value = parsed(call.arguments);
  const isJson = typeof value !== "string";
  return (
    <details class="fold fold-call">
      <summary>
        <Icon name="workers" size={12} /> <strong>{call.name}</strong>
        <code class="ellipsis fold-args">{isJson ? preview(value, 100) : cut(call.arguments, 100)}</code>
        {runs.map((one) => <StatusDot key={one.callId} status={statusOf(one)} label={wordOf(one)} />)}
      </summary>
      {!isJson && <p class="note note-warning">The model wrote arguments that are not JSON. They are shown as they are.</p>}
      <Json value={value} open={3} label="Arguments" />
      {runs.map((one) => (
        <p key={one.callId} class="muted fold-run">
          {one.type === "approval" ? "Approval" : one.type === "child" ? "Run" : "Task"} · {wordOf(one)}
          {one.by && ` by ${one.by}`}{one.feedback && `: ${one.feedback}`}
          {one.endedAt && ` · ${shortSpan(Date.parse(one.endedAt) - Date.parse(one.at))}`}
          {one.child && <> · <a href={href(["runs", one.child])}>{one.child}</a></>}
          {run && <> · <a href={href(["runs", run, "timeline"], { call: one.callId, generation: one.generation })}>call {one.callId}</a></>}
        </p>
      ))}
    </details>
  );
}

function statusOf(run: ToolRun): string {
  if (run.status === "approved") return "completed";
  if (run.status === "denied") return "failed";
  return run.status === "open" ? (run.type === "approval" ? "waiting" : "running") : run.status;
}

function wordOf(run: ToolRun): string {
  return run.status === "open" ? (run.type === "approval" ? "waits for a decision" : "runs") : run.status;
}

function Result({ isError, blocks }: { isError: boolean; blocks: readonly Block[] }) {
  const text = gist(blocks);
  const isShort = text.length <= 160 && blocks.every((block) => block.type === "text");
  if (isShort) return <p class={isError ? "talk-text talk-result bad" : "talk-text talk-result"}>{text || <span class="muted">an empty result</span>}</p>;
  return (
    <details class={isError ? "fold fold-bad" : "fold"}>
      <summary><code class="ellipsis fold-args">{cut(text, 140)}</code></summary>
      <Blocks blocks={blocks} />
    </details>
  );
}

/** An image is drawn from bytes of the entry itself; nothing is fetched from elsewhere. */
function AttachmentView({ attachment }: { attachment: Attachment }) {
  const { source, mediaType } = attachment;
  const type = imageType(mediaType);
  if ("base64" in source && type !== null) return <Picture base64={source.base64} type={type} />;
  const url = "url" in source ? safeUrl(source.url) : null;
  return (
    <p class="attachment">
      <Icon name="external" size={12} /> <code>{cut(mediaType, 80)}</code>
      {"base64" in source && <span class="muted">{bytesText(Math.floor((source.base64.length * 3) / 4))}, not shown</span>}
      {"hash" in source && <span class="muted">stored as <code>{cut(source.hash, 64)}</code></span>}
      {"url" in source && (url ? <a href={url} rel="noreferrer noopener" target="_blank">{cut(source.url, 120)}</a> : <code>{cut(source.url, 120)}</code>)}
    </p>
  );
}

function Picture({ base64, type }: { base64: string; type: string }) {
  const url = useSignal<string | null>(null);
  const failed = useSignal(false);
  useEffect(() => {
    const bytes = bytesOf(base64);
    if (!bytes) {
      failed.value = true;
      return;
    }
    const made = URL.createObjectURL(new Blob([bytes as BlobPart], { type }));
    url.value = made;
    return () => URL.revokeObjectURL(made);
  }, [base64, type]);
  if (failed.value) return <p class="attachment"><code>{type}</code> <span class="muted">that cannot be drawn</span></p>;
  return url.value ? <img class="picture" src={url.value} alt={`Attached image (${type})`} onError={() => (failed.value = true)} /> : null;
}
