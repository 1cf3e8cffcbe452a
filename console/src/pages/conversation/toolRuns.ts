/** Owns which task, approval or run belongs to a tool call of a model. The log has no link: name, arguments and order decide. */
import type { Conversation, EntryNode, ToolRun } from "./fold";

/** Finds what a tool call of a model did: the task, approval or child run after the entry with the same name and arguments. */
export function toolRunsOf(conversation: Conversation, entry: EntryNode, name: string, args: string, nth: number): ToolRun[] {
  const wanted = normalized(args);
  const after = conversation.tools.filter((tool) => tool.generation === entry.generation && tool.index > entry.index);
  const isSame = (tool: ToolRun) => (tool.name === name || tool.name.endsWith(`.${name}`)) && normalized(tool.arguments) === wanted;
  const of = (type: ToolRun["type"]) => after.filter((tool) => tool.type === type && isSame(tool))[nth];
  return [of("approval"), of("task"), of("child")].filter((tool): tool is ToolRun => tool !== undefined);
}

function normalized(value: unknown): string {
  if (typeof value !== "string") return JSON.stringify(value ?? null);
  try {
    return JSON.stringify(JSON.parse(value.trim() === "" ? "{}" : value));
  } catch {
    return value;
  }
}
