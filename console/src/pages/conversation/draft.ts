/** Owns the answers that are being written: frames of the run's stream, put together per model call. */
import type { Usage } from "./content";

export interface DraftCall {
  id: string;
  name: string;
  arguments: string;
}

export interface Draft {
  /** `RUN~GENERATION~CALL`. */
  task: string;
  attempt: number;
  model: string;
  text: string;
  reasoning: string;
  refusal: string;
  calls: DraftCall[];
  usage: Usage | null;
  failure: { code: string; message: string; nextDelayMs: number | null } | null;
  isOver: boolean;
}

export type Drafts = Map<string, Draft>;

/** A frame of `GET /v1/runs/{id}/stream`; output of tasks may have any fields. */
export type StreamFrame = { type: string; task?: string; attempt?: number } & Record<string, unknown>;

function draftOf(drafts: Drafts, frame: StreamFrame): Draft {
  const task = frame.task ?? "";
  let draft = drafts.get(task);
  if (!draft) {
    draft = { task, attempt: frame.attempt ?? 1, model: "", text: "", reasoning: "", refusal: "", calls: [], usage: null, failure: null, isOver: false };
    drafts.set(task, draft);
  }
  return draft;
}

function str(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/** Adds a frame. Returns whether the drafts changed. */
export function addFrame(drafts: Drafts, frame: StreamFrame): boolean {
  switch (frame.type) {
    case "stream_reset":
    case "branch_reset":
      drafts.clear();
      return true;
    case "attempt_reset": return drafts.delete(str(frame.task));
    case "attempt_failed": {
      const draft = draftOf(drafts, frame);
      draft.failure = { code: str(frame.code), message: str(frame.message), nextDelayMs: typeof frame.next_delay_ms === "number" ? frame.next_delay_ms : null };
      return true;
    }
    case "task_end": {
      const draft = drafts.get(str(frame.task));
      if (draft) draft.isOver = true;
      return draft !== undefined;
    }
    case "end":
      drafts.clear();
      return true;
  }
  if (frame.task === undefined) return false;
  return addOutput(drafts, frame);
}

function addOutput(drafts: Drafts, frame: StreamFrame): boolean {
  switch (frame.type) {
    case "begin": {
      const draft = draftOf(drafts, frame);
      draft.model = str(frame.model);
      draft.attempt = frame.attempt ?? draft.attempt;
      draft.failure = null;
      return true;
    }
    case "text": draftOf(drafts, frame).text += str(frame.text); return true;
    case "reasoning": draftOf(drafts, frame).reasoning += str(frame.text); return true;
    case "refusal": draftOf(drafts, frame).refusal += str(frame.text); return true;
    case "tool_call_begin": {
      const at = Number(frame.call);
      if (!(at >= 0 && at < 1000)) return false;
      draftOf(drafts, frame).calls[at] = { id: str(frame.id), name: str(frame.name), arguments: "" };
      return true;
    }
    case "tool_call_arguments": {
      const call = draftOf(drafts, frame).calls[Number(frame.call)];
      if (call) call.arguments += str(frame.text);
      return call !== undefined;
    }
    case "usage": {
      const number = (name: string) => (typeof frame[name] === "number" ? (frame[name] as number) : 0);
      draftOf(drafts, frame).usage = { input: number("input"), cached_read: number("cached_read"), cached_write: number("cached_write"), output: number("output"), reasoning: number("reasoning") };
      return true;
    }
  }
  return false;
}

/** Returns the generation and call of a task's name; a run id may itself contain `~`. */
export function taskCall(task: string): { generation: number; callId: string } | null {
  const match = /~(\d+)~([^~]+)$/.exec(task);
  return match ? { generation: Number(match[1]), callId: match[2]! } : null;
}
