/**
 * Owns how the content of an entry is read: a text, an object with `text` or `blocks`, and anything else as its JSON.
 * It follows the worker that assembles prompts, so a person sees what the model gets. Never fails because of a content.
 */
import { printJson } from "../../api/json";
import { jsonOf, type Payload } from "../run/model";

export interface Attachment {
  type: "attachment";
  mediaType: string;
  source: { base64: string } | { url: string } | { hash: string };
}

export interface ToolCall {
  type: "tool_call";
  id: string;
  name: string;
  /** The exact text that the model wrote, which may not be JSON. */
  arguments: string;
}

export interface ToolResult {
  type: "tool_result";
  callId: string;
  isError: boolean;
  blocks: Block[];
}

export type Block =
  | { type: "text"; text: string; citations: number }
  | { type: "reasoning"; text: string; isSigned: boolean }
  | { type: "refusal"; text: string }
  | { type: "opaque"; provider: string; json: string }
  | Attachment
  | ToolCall
  | ToolResult;

export interface Usage {
  input: number;
  cached_read: number;
  cached_write: number;
  output: number;
  reasoning: number;
}

/** What an answer of a model has beside its blocks. */
export interface ReplyInfo {
  stop: string | null;
  model: string;
  responseId: string;
  usage: Usage | null;
  leftOut: number;
}

type Fields = Record<string, unknown>;

function fields(value: unknown): Fields | null {
  return value !== null && typeof value === "object" && !Array.isArray(value) ? (value as Fields) : null;
}

function str(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function textBlock(text: string, citations = 0): Block {
  return { type: "text", text, citations };
}

/** Returns the blocks of an entry's content. */
export function blocksOf(content: Payload | null): Block[] {
  if (content === null) return [];
  if (!("json" in content)) {
    if (content.type.startsWith("text/")) return [textBlock(decodeText(content.base64))];
    return [{ type: "attachment", mediaType: content.type, source: { base64: content.base64 } }];
  }
  const value = content.json;
  if (value === null || value === undefined) return [];
  if (typeof value === "string") return [textBlock(value)];
  const object = fields(value);
  if (object && Array.isArray(object.blocks)) {
    if (object.blocks.length === 0 && typeof object.text === "string") return [textBlock(object.text)];
    const blocks = object.blocks.map(blockOf);
    // A block of an unknown shape makes the whole content unreadable as blocks, as for the model.
    return blocks.every((block): block is Block => block !== null) ? blocks : [textBlock(printJson(value))];
  }
  if (object && typeof object.text === "string") return [textBlock(object.text)];
  return [textBlock(printJson(value))];
}

function blockOf(value: unknown): Block | null {
  const block = fields(value);
  if (!block) return null;
  switch (block.type) {
    case "text":
      return typeof block.text === "string" ? textBlock(block.text, Array.isArray(block.citations) ? block.citations.length : 0) : null;
    case "reasoning": return { type: "reasoning", text: str(block.text), isSigned: fields(block.payload) !== null };
    case "refusal": return { type: "refusal", text: str(block.text) };
    case "tool_call": return { type: "tool_call", id: str(block.id), name: str(block.name), arguments: str(block.arguments) };
    case "tool_result": {
      const blocks = Array.isArray(block.blocks) ? block.blocks.map(blockOf).filter((one): one is Block => one !== null) : [];
      return { type: "tool_result", callId: str(block.call_id), isError: block.is_error === true, blocks };
    }
    case "attachment": return attachmentOf(block);
    case "opaque": return { type: "opaque", provider: str(block.provider), json: printJson(block.json) };
    default: return null;
  }
}

function attachmentOf(block: Fields): Block {
  const source = fields(block.source);
  const mediaType = str(block.media_type);
  const [sort, data] = source ? Object.entries(source)[0] ?? [] : [];
  if (mediaType !== "" && typeof data === "string" && (sort === "base64" || sort === "url" || sort === "hash")) {
    return { type: "attachment", mediaType, source: { [sort]: data } as Attachment["source"] };
  }
  return textBlock("[an attachment that no model can be shown]");
}

export function decodeText(base64: string): string {
  try {
    return new TextDecoder().decode(Uint8Array.from(atob(base64), (char) => char.charCodeAt(0)));
  } catch {
    return "[invalid Base64]";
  }
}

/** Returns the texts of blocks, without those of tools. */
export function textOf(blocks: readonly Block[]): string {
  return blocks.flatMap((block) => (block.type === "text" ? [block.text] : [])).join("\n");
}

/** Returns a short text for lists: what was said, called or answered. */
export function gist(blocks: readonly Block[]): string {
  const parts = blocks.map((block) => {
    switch (block.type) {
      case "text": return block.text;
      case "refusal": return `refused: ${block.text}`;
      case "tool_call": return `calls ${block.name}`;
      case "tool_result": return `${block.isError ? "failed: " : ""}${gist(block.blocks)}`;
      case "attachment": return `[${block.mediaType}]`;
      default: return "";
    }
  });
  return parts.filter((part) => part !== "").join(" ").replace(/\s+/g, " ").trim();
}

/** Returns the metadata of a model's answer; `null` for content of another origin. */
export function replyInfo(content: Payload | null): ReplyInfo | null {
  const reply = fields(jsonOf(content));
  if (!reply || !Array.isArray(reply.blocks) || (reply.stop === undefined && reply.usage === undefined && reply.response_id === undefined)) return null;
  const usage = fields(reply.usage);
  const number = (name: string) => (usage && typeof usage[name] === "number" ? (usage[name] as number) : 0);
  const other = fields(reply.stop);
  return {
    stop: typeof reply.stop === "string" ? reply.stop : other ? str(other.other) || null : null,
    model: str(reply.model),
    responseId: str(reply.response_id),
    usage: usage ? { input: number("input"), cached_read: number("cached_read"), cached_write: number("cached_write"), output: number("output"), reasoning: number("reasoning") } : null,
    leftOut: Array.isArray(reply.left_out) ? reply.left_out.length : 0,
  };
}

const STOPS: Record<string, string> = {
  end: "finished", tool_calls: "calls tools", max_tokens: "cut off by the token limit", context_full: "the context window is full",
  stop_sequence: "stop sequence", refusal: "refused", paused: "paused by the provider",
  done: "finished", refused: "refused", max_turns: "turn limit reached", no_answer: "no answer", repeated_call: "repeats the same call",
  max_handoffs: "handoff limit reached", budget_exhausted: "budget exhausted",
};

export function stopText(stop: string): string {
  return STOPS[stop] ?? stop.replaceAll("_", " ");
}

/** Image types that a browser draws without running anything; SVG may hold scripts and references, so it is not among them. */
const SHOWN: ReadonlySet<string> = new Set(["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"]);

/** Returns the plain image type of an attachment that may be shown; `null` for anything else. */
export function imageType(mediaType: string): string | null {
  const essence = mediaType.split(";")[0]!.trim().toLowerCase();
  return SHOWN.has(essence) ? essence : null;
}

/** Returns an address as link target only if it is http or https; payloads may contain anything. */
export function safeUrl(text: string): string | null {
  try {
    const url = new URL(text);
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
  } catch {
    return null;
  }
}
