/** Owns the short form of an entry: its role and the beginning of what it says. */
import type { Payload } from "../run/model";
import { cut } from "../run/model";
import { blocksOf, gist } from "./content";
import { clockText } from "../../ui/format";

export function EntryPreview({ role, content, at }: { role: string; content: Payload | null; at: string }) {
  return (
    <div class={`said said-${roleTone(role)}`}>
      <span class="said-role">{role}</span>
      <span class="said-text">{cut(gist(blocksOf(content)), 400) || <span class="muted">nothing to show</span>}</span>
      <time class="muted" dateTime={at}>{clockText(Date.parse(at))}</time>
    </div>
  );
}

/** The tone of a role: those that every conversation has, and any other. */
export function roleTone(role: string): string {
  return ["user", "assistant", "tool", "system", "summary"].includes(role) ? role : "other";
}
