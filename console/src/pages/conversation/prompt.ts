/**
 * Owns what a model saw at a call: the settings of the call and the conversation, as the worker assembles them.
 * Attachments that the provider cannot be shown are replaced by the worker, which the log does not tell; all else is exact.
 */
import { jsonOf, type Payload } from "../run/model";
import { blocksOf, textOf, type Block } from "./content";
import type { Conversation, EntryNode, ModelCall } from "./fold";
import type { EntryTree } from "./tree";

export interface ToolSchema {
  name: string;
  description: string;
  input: unknown;
}

export interface PromptMessage {
  role: "user" | "assistant" | "tool";
  blocks: Block[];
  /** The entry that it comes from; `null` for what the worker adds. */
  entry: string | null;
}

export interface ModelPrompt {
  model: string;
  system: string | null;
  messages: PromptMessage[];
  tools: ToolSchema[];
  /** Options of the request, such as `max_tokens`. */
  options: Record<string, unknown>;
  /** Entries that a summary stands for. */
  covered: number;
  truncateAt: number | null;
  /** The settings of the call are not loaded. */
  isPartial: boolean;
}

interface Settings {
  request?: { model?: string; system?: string | null; tools?: ToolSchema[] } & Record<string, unknown>;
  ask?: string;
  until?: string;
  truncate_at?: number;
}

const NO_RESULT = "there is no result of this call";
const REPORT = "A tool reports:\n";

/** Returns the entries that a model gets: the last summary first, and everything that it does not cover. */
export function contextOf(tree: EntryTree, leaf: string | null): { entries: EntryNode[]; covered: number } {
  const all = tree.path(leaf);
  const summary = all.findLast((entry) => summaryOf(entry) !== null);
  const covers = summary ? summaryOf(summary)?.covers : undefined;
  const from = covers === undefined ? 0 : all.findIndex((entry) => entry.id === covers) + 1;
  const read = all.slice(from);
  const last = read.findLastIndex((entry) => entry.role === "summary");
  if (last < 0) return { entries: read, covered: from };
  return { entries: [read[last]!, ...read.filter((entry) => entry.role !== "summary")], covered: from };
}

function summaryOf(entry: EntryNode): { text: string; covers: string } | null {
  if (entry.role !== "summary") return null;
  const value = jsonOf(entry.content) as { text?: unknown; covers?: unknown } | null | undefined;
  return typeof value?.text === "string" && typeof value.covers === "string" ? { text: value.text, covers: value.covers } : null;
}

/** Assembles the prompt of a call. */
export function promptOf(conversation: Conversation, tree: EntryTree, call: ModelCall): ModelPrompt {
  const kept = call.settings ? conversation.settings.get(call.settings.id) : undefined;
  const settings = (jsonOf(kept as Payload | undefined) ?? {}) as Settings;
  const { model, system, tools = [], messages: _, ...options } = settings.request ?? {};
  const context = contextOf(tree, call.leaf);
  const last = settings.until ? context.entries.findIndex((entry) => entry.id === settings.until) : -1;
  const entries = last >= 0 ? context.entries.slice(0, last + 1) : context.entries;
  const read = messagesOf(entries);
  let messages = read.messages;
  if (tools.length === 0) messages = withoutTools(messages);
  const truncateAt = typeof settings.truncate_at === "number" ? settings.truncate_at : null;
  if (truncateAt !== null) messages = messages.map((message) => ({ ...message, blocks: truncated(message.blocks, truncateAt) }));
  if (settings.ask) messages = [...messages, { role: "user", blocks: [{ type: "text", text: settings.ask, citations: 0 }], entry: null }];
  const systems = [...(system ? [system] : []), ...read.system];
  return {
    model: model ?? call.model, system: systems.length > 0 ? systems.join("\n\n") : null, messages, tools, options,
    covered: context.covered, truncateAt, isPartial: kept === undefined,
  };
}

function messagesOf(entries: readonly EntryNode[]): { system: string[]; messages: PromptMessage[] } {
  const system: string[] = [];
  const messages: PromptMessage[] = [];
  for (const entry of entries) {
    const blocks = blocksOf(entry.content);
    if (entry.role === "system") system.push(textOf(blocks));
    else if (entry.role === "summary") {
      messages.push({ role: "user", blocks: [{ type: "text", text: `Summary of the conversation so far:\n${textOf(blocks)}`, citations: 0 }], entry: entry.id });
    } else {
      const role = entry.role === "assistant" || entry.role === "tool" ? entry.role : "user";
      messages.push({ role, blocks, entry: entry.id });
    }
  }
  const kept = messages.map(withoutBlanks).filter((message): message is PromptMessage => message !== null);
  return { system: system.filter((text) => text.trim() !== ""), messages: answered(kept) };
}

function withoutBlanks(message: PromptMessage): PromptMessage | null {
  let blocks = message.blocks.filter((block) => !((block.type === "text" || block.type === "refusal") && block.text.trim() === ""));
  if (message.role === "user") blocks = blocks.filter((block) => block.type === "text" || block.type === "attachment");
  return blocks.some((block) => block.type !== "reasoning") ? { ...message, blocks } : null;
}

/** Every call is followed by exactly one result; results without a call become reports of a user. */
function answered(messages: readonly PromptMessage[]): PromptMessage[] {
  const out: PromptMessage[] = [];
  let open: string[] = [];
  const requested = new Set<string>();
  let reports: PromptMessage[] = [];
  const close = (): void => {
    const missing = open.map((callId): Block => ({ type: "tool_result", callId, isError: true, blocks: [{ type: "text", text: NO_RESULT, citations: 0 }] }));
    if (missing.length > 0) out.push({ role: "tool", blocks: missing, entry: null });
    open = [];
  };
  for (const message of messages) {
    if (message.role === "tool") {
      const results: Block[] = [];
      const reported: Block[] = [];
      for (const block of message.blocks) {
        if (block.type !== "tool_result") reported.push(block);
        else if (!requested.has(block.callId)) reported.push(...block.blocks);
        else if (open.includes(block.callId)) {
          open = open.filter((id) => id !== block.callId);
          results.push(block);
        }
      }
      if (results.length > 0) out.push({ ...message, blocks: results });
      if (reported.length > 0) reports.push({ role: "user", blocks: report(reported), entry: message.entry });
      if (open.length === 0) {
        out.push(...reports);
        reports = [];
      }
      continue;
    }
    close();
    out.push(...reports);
    reports = [];
    if (message.role === "assistant") {
      for (const block of message.blocks) {
        if (block.type !== "tool_call") continue;
        open.push(block.id);
        requested.add(block.id);
      }
    }
    out.push(message);
  }
  close();
  out.push(...reports);
  return out;
}

function report(blocks: readonly Block[]): Block[] {
  const [first, ...rest] = blocks;
  if (first?.type === "text") return [{ ...first, text: REPORT + first.text }, ...rest];
  return [{ type: "text", text: REPORT.trimEnd(), citations: 0 }, ...blocks];
}

/** A request without tools has no calls and no results: they become texts. */
function withoutTools(messages: readonly PromptMessage[]): PromptMessage[] {
  const names = new Map<string, string>();
  const text = (words: string): Block => ({ type: "text", text: words, citations: 0 });
  return messages.flatMap((message) => {
    const hasCalls = message.blocks.some((block) => block.type === "tool_call");
    const blocks = message.blocks.flatMap((block): Block[] => {
      if (block.type === "tool_call") {
        names.set(block.id, block.name);
        return [text(`(I called the tool \`${block.name}\` with ${block.arguments})`)];
      }
      if (block.type === "tool_result") {
        const said = `(The tool \`${names.get(block.callId) ?? "a tool"}\` ${block.isError ? "failed" : "answered"}: ${textOf(block.blocks)})`;
        return [text(said), ...block.blocks.filter((one) => one.type === "attachment")];
      }
      return block.type === "reasoning" && hasCalls ? [] : [block];
    });
    const kept = withoutBlanks({ ...message, role: message.role === "tool" ? "user" : message.role, blocks });
    return kept ? [kept] : [];
  });
}

/** Cuts long texts in the middle, also in arguments of calls, but nothing that a provider has signed. */
export function truncated(blocks: readonly Block[], max: number): Block[] {
  const isSigned = blocks.some((block) => block.type === "opaque" || (block.type === "reasoning" && block.isSigned));
  return blocks.map((block) => {
    if (block.type === "text") return { ...block, text: truncatedText(block.text, max) };
    if (block.type === "tool_result") return { ...block, blocks: truncated(block.blocks, max) };
    if (block.type === "tool_call" && !isSigned && block.arguments.length > max) return { ...block, arguments: truncatedArguments(block.arguments, max) };
    return block;
  });
}

function truncatedArguments(text: string, max: number): string {
  try {
    return JSON.stringify(JSON.parse(text), (_, value: unknown) => (typeof value === "string" ? truncatedText(value, max) : value));
  } catch {
    return truncatedText(text, max);
  }
}

function truncatedText(text: string, max: number): string {
  const chars = [...text];
  if (chars.length <= max) return text;
  const end = Math.floor(max / 4);
  return `${chars.slice(0, max - end).join("")}\n[${chars.length - max} characters are left out here]\n${chars.slice(chars.length - end).join("")}`;
}
