/**
 * Owns the conversation of an agent as its logs have it: entries with their content, model calls with their cost, tools,
 * checkpoints and waiting messages. Events of a generation come in order; generations may come in any order.
 */
import { jsonOf, type EventOf, type LoggedEvent, type Payload } from "../run/model";
import { addMoney } from "./money";
import type { Usage } from "./content";

export interface EntryNode {
  id: string;
  parent: string | null;
  role: string;
  /** Absent if the event that it quotes is missing. */
  content: Payload | null;
  generation: number;
  index: number;
  at: string;
  isAbandoned: boolean;
  key: string | null;
  /** The model call whose answer it quotes. */
  call: ModelCall | null;
}

export interface CallSpend {
  attempt: number;
  beganAt: string;
  failureCode: string | null;
  model: string;
  provider: string;
  cost: string | null;
  isUnknown: boolean;
  tokens: Usage;
}

export interface ModelCall {
  generation: number;
  callId: string;
  index: number;
  at: string;
  model: string;
  /** The last entry that was sent; `null` for an empty conversation. */
  leaf: string | null;
  settings: { generation: number; id: string } | null;
  status: "open" | "completed" | "failed" | "canceled";
  endedAt: string | null;
  endIndex: number | null;
  reply: Payload | null;
  failure: { code: string; message: string } | null;
  spend: CallSpend[];
}

export interface ToolRun {
  generation: number;
  callId: string;
  index: number;
  at: string;
  /** The name that the model used; the kind may have the agent's name before it. */
  name: string;
  type: "task" | "approval" | "child";
  arguments: unknown;
  status: "open" | "completed" | "failed" | "canceled" | "approved" | "denied";
  endedAt: string | null;
  child: string | null;
  by: string | null;
  feedback: string | null;
}

export interface CheckpointMark {
  generation: number;
  index: number;
  at: string;
  leaf: string | null;
  depth: number;
  awaits: string | null;
  handoff: string | null;
  state: Payload;
}

export interface BranchMark {
  generation: number;
  index: number;
  at: string;
  from: string | null;
}

export interface WaitingMessage {
  generation: number;
  index: number;
  at: string;
  name: string;
  role: string | null;
  content: Payload;
}

interface GenerationState {
  leaf: string | null;
  /** Payloads that entries of this log may quote. */
  quotable: Map<number, Payload[]>;
  calls: Map<string, ModelCall>;
  tools: Map<string, ToolRun>;
  /** Entries of this log in order, for the leaf after an abandoned segment. */
  path: EntryNode[];
  startLeaf: string | null;
  waiting: WaitingMessage[];
  next: number;
}

const ENTRY_SIGNAL = "onward.entry";
const MESSAGE = "message";

export class Conversation {
  readonly entries = new Map<string, EntryNode>();
  readonly settings = new Map<string, Payload>();
  readonly calls: ModelCall[] = [];
  readonly tools: ToolRun[] = [];
  readonly checkpoints: CheckpointMark[] = [];
  readonly branches: BranchMark[] = [];
  kind = "";
  private readonly generations = new Map<number, GenerationState>();
  private readonly callKeys = new Map<string, ModelCall>();
  private readonly toolKeys = new Map<string, ToolRun>();

  /** Returns whether the run has a conversation. */
  get isAgent(): boolean {
    return this.entries.size > 0 || this.checkpoints.length > 0 || this.settings.size > 0;
  }

  /** Returns the last entry of the current conversation. */
  get leaf(): string | null {
    return this.latest()?.leaf ?? null;
  }

  /** Returns messages and entries from outside that the agent has not read. */
  get waiting(): WaitingMessage[] {
    return this.latest()?.waiting.filter((one) => one.name === MESSAGE || one.name === ENTRY_SIGNAL) ?? [];
  }

  private latest(): GenerationState | undefined {
    let latest = -1;
    for (const generation of this.generations.keys()) latest = Math.max(latest, generation);
    return this.generations.get(latest);
  }

  private state(generation: number): GenerationState {
    let state = this.generations.get(generation);
    if (!state) {
      state = { leaf: null, startLeaf: null, quotable: new Map(), calls: new Map(), tools: new Map(), path: [], waiting: [], next: 0 };
      this.generations.set(generation, state);
    }
    return state;
  }

  /** Adds an event; one that was added before changes nothing. */
  add(logged: LoggedEvent): boolean {
    const state = this.state(logged.generation);
    if (logged.index < state.next) return false;
    state.next = logged.index + 1;
    const { event } = logged;
    switch (event.type) {
      case "run_started": this.start(state, event, logged); break;
      case "signal_received": this.receive(state, logged, event.name, event.payload, logged.index); break;
      case "signal_consumed": {
        const at = state.waiting.findIndex((one) => one.index === event.index && one.name === event.name);
        if (at >= 0) state.waiting.splice(at, 1);
        break;
      }
      case "task_scheduled": this.schedule(state, event, logged); break;
      case "task_completed": this.complete(state, event.call_id, logged, event.output); break;
      case "task_failed": this.fail(state, event.call_id, logged, event.failure); break;
      case "task_canceled": this.settle(state, event.call_id, logged, "canceled"); break;
      case "task_attempt_ended": this.spend(state, event); break;
      case "child_started": this.addTool(state, logged, event.call_id, "child", event.kind, jsonOf(event.input), event.child); break;
      case "child_completed":
        state.quotable.set(logged.index, [event.output]);
        this.settle(state, event.call_id, logged, "completed");
        break;
      case "child_failed": this.settle(state, event.call_id, logged, "failed"); break;
      case "approval_requested": {
        const show = jsonOf(event.show) as { arguments?: unknown } | undefined;
        if (event.name.startsWith("tool.")) this.addTool(state, logged, event.call_id, "approval", event.name.slice(5), show?.arguments, null);
        break;
      }
      case "approval_decided": {
        const tool = this.settle(state, event.call_id, logged, event.approved ? "approved" : "denied");
        if (tool) [tool.by, tool.feedback] = [event.decided_by, event.feedback];
        break;
      }
      case "entry_appended": this.append(state, event, logged); break;
      case "segment_abandoned": this.abandon(state, event.from, event.to); break;
      case "branch_requested":
        this.branches.push({ generation: logged.generation, index: logged.index, at: logged.at, from: event.from });
        state.leaf = event.from;
        break;
      case "run_continued":
        if (event.checkpoint) {
          const { leaf, depth, awaits, handoff = null, state: value } = event.checkpoint;
          this.checkpoints.push({ generation: logged.generation, index: logged.index, at: logged.at, leaf, depth, awaits, handoff, state: value });
        }
        break;
      default: return false;
    }
    return true;
  }

  private start(state: GenerationState, event: EventOf<"run_started">, logged: LoggedEvent): void {
    this.kind = event.kind;
    state.startLeaf = event.checkpoint?.leaf ?? null;
    state.leaf = state.startLeaf;
    state.quotable.set(logged.index, event.mailbox.map((signal) => signalContent(signal.name, signal.payload)));
    for (const signal of event.mailbox) this.hold(state, logged, signal.name, signal.payload);
  }

  private receive(state: GenerationState, logged: LoggedEvent, name: string, payload: Payload, index: number): void {
    state.quotable.set(index, [signalContent(name, payload)]);
    this.hold(state, logged, name, payload);
  }

  private hold(state: GenerationState, logged: LoggedEvent, name: string, payload: Payload): void {
    const role = name === ENTRY_SIGNAL ? String((jsonOf(payload) as { role?: unknown } | null)?.role ?? "") : null;
    state.waiting.push({ generation: logged.generation, index: logged.index, at: logged.at, name, role, content: signalContent(name, payload) });
  }

  private schedule(state: GenerationState, event: EventOf<"task_scheduled">, logged: LoggedEvent): void {
    if (event.kind.startsWith("tool.")) {
      const input = jsonOf(event.input) as { arguments?: unknown } | undefined;
      this.addTool(state, logged, event.call_id, "task", event.kind.slice(5), input?.arguments, null);
      return;
    }
    if (!event.kind.startsWith("llm.")) return;
    // A retry copies the log into the next generation: the copy is the same call.
    const key = `${event.call_id}@${logged.at}`;
    const prompt = jsonOf(event.input) as { leaf?: string | null; settings?: ModelCall["settings"] } | undefined;
    let call = this.callKeys.get(key);
    if (!call) {
      call = {
        generation: 0, callId: event.call_id, index: 0, at: logged.at, model: event.kind.slice(4), leaf: prompt?.leaf ?? null,
        settings: prompt?.settings ?? null, status: "open", endedAt: null, endIndex: null, reply: null, failure: null, spend: [],
      };
      this.callKeys.set(key, call);
      this.calls.push(call);
    }
    call.generation = logged.generation;
    call.index = logged.index;
    state.calls.set(event.call_id, call);
  }

  private addTool(state: GenerationState, logged: LoggedEvent, id: string, type: ToolRun["type"], name: string, args: unknown, child: string | null): void {
    const key = `${id}@${logged.at}`;
    let tool = this.toolKeys.get(key);
    if (!tool) {
      tool = {
        generation: 0, callId: id, index: 0, at: logged.at, name, type, arguments: args, status: "open", endedAt: null, child,
        by: null, feedback: null,
      };
      this.toolKeys.set(key, tool);
      this.tools.push(tool);
    }
    tool.generation = logged.generation;
    tool.index = logged.index;
    state.tools.set(id, tool);
  }

  private complete(state: GenerationState, id: string, logged: LoggedEvent, output: Payload): void {
    state.quotable.set(logged.index, [output]);
    const call = state.calls.get(id);
    if (call) Object.assign(call, { status: "completed", endedAt: logged.at, endIndex: logged.index, reply: output });
    else this.settle(state, id, logged, "completed");
  }

  private fail(state: GenerationState, id: string, logged: LoggedEvent, failure: { code: string; message: string }): void {
    const call = state.calls.get(id);
    if (call) Object.assign(call, { status: "failed", endedAt: logged.at, endIndex: logged.index, failure });
    else this.settle(state, id, logged, "failed");
  }

  private settle(state: GenerationState, id: string, logged: LoggedEvent, status: ToolRun["status"]): ToolRun | undefined {
    const call = state.calls.get(id);
    if (call && status === "canceled") Object.assign(call, { status, endedAt: logged.at, endIndex: logged.index });
    const tool = state.tools.get(id);
    if (tool) Object.assign(tool, { status, endedAt: logged.at });
    return tool;
  }

  private spend(state: GenerationState, event: EventOf<"task_attempt_ended">): void {
    const call = event.generation === undefined ? state.calls.get(event.call_id) : (this.generations.get(event.generation) ?? state).calls.get(event.call_id);
    if (!call || call.spend.some((one) => one.attempt === event.attempt && one.beganAt === event.began_at)) return;
    for (const line of event.spend) {
      call.spend.push({
        attempt: event.attempt, beganAt: event.began_at, failureCode: event.failure_code ?? null, model: line.model,
        provider: line.provider, cost: line.cost ?? null, isUnknown: line.is_unknown ?? false, tokens: line.tokens,
      });
    }
  }

  private append(state: GenerationState, event: EventOf<"entry_appended">, logged: LoggedEvent): void {
    const content = event.quote ? (state.quotable.get(event.quote.index)?.[event.quote.item] ?? null) : event.content;
    if (event.is_aside) {
      if (content) this.settings.set(event.id, content);
      return;
    }
    const quoted = event.quote?.index;
    const call = quoted === undefined ? null : ([...state.calls.values()].find((one) => one.endIndex === quoted) ?? null);
    const node: EntryNode = {
      id: event.id, parent: event.parent, role: event.role, content, generation: logged.generation, index: logged.index,
      at: logged.at, isAbandoned: false, key: event.idempotency_key ?? null, call,
    };
    state.path.push(node);
    state.leaf = node.id;
    const known = this.entries.get(node.id);
    // A copy of a log has the same entries: the first time is when it was said.
    if (known && !known.isAbandoned) Object.assign(known, { generation: node.generation, index: node.index });
    else this.entries.set(node.id, node);
  }

  private abandon(state: GenerationState, from: number, to: number): void {
    for (const node of state.path) {
      if (node.index < from || node.index > to) continue;
      node.isAbandoned = true;
      const known = this.entries.get(node.id);
      if (known && known.generation === node.generation && known.index === node.index) known.isAbandoned = true;
    }
    state.path = state.path.filter((node) => !node.isAbandoned);
    state.leaf = state.path.at(-1)?.id ?? state.startLeaf;
  }
}

function signalContent(name: string, payload: Payload): Payload {
  if (name !== ENTRY_SIGNAL) return payload;
  const entry = jsonOf(payload) as { content?: Payload } | null | undefined;
  return entry?.content ?? payload;
}

/** Adds up what a call cost, over all its attempts. */
export function costOf(call: ModelCall): { cost: string | null; tokens: Usage; unknown: number; attempts: number } {
  const tokens: Usage = { input: 0, cached_read: 0, cached_write: 0, output: 0, reasoning: 0 };
  let cost: string | null = null;
  let unknown = 0;
  for (const line of call.spend) {
    for (const name of Object.keys(tokens) as (keyof Usage)[]) tokens[name] += line.tokens[name];
    if (line.cost !== null) cost = addMoney(cost ?? "0", line.cost);
    if (line.isUnknown) unknown++;
  }
  return { cost, tokens, unknown, attempts: new Set(call.spend.map((line) => line.attempt)).size };
}
