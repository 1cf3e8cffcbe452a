/**
 * Owns what a person can do to a run: when an action applies, its form, its request, and the equal `onward` and `curl` lines.
 * Each request has an id of its own, so a second click is the same request.
 */
import type { RequestOptions } from "../../api/client";
import { cliLine, curlLine } from "../../api/commands";
import { parseJson, printJson } from "../../api/json";
import type { Scope } from "../../api/session";
import { newId } from "../../ui/id";
import { isClosed, type RunView, type Status } from "./model";

export type Verb =
  | "signal" | "update" | "query" | "message" | "pause" | "resume" | "cancel" | "retry" | "fork" | "reset" | "terminate" | "delete";

export interface Field {
  name: string;
  label: string;
  type: "text" | "json" | "number" | "choice" | "check" | "long";
  required?: boolean;
  placeholder?: string;
  choices?: readonly string[];
  help?: string;
  /** Rarely needed: the form folds it. */
  isRare?: boolean;
}

export type Values = Record<string, string>;

export interface Request {
  method: "POST" | "DELETE";
  path: string;
  options: RequestOptions;
  body?: Record<string, unknown>;
}

export interface Action {
  verb: Verb;
  label: string;
  scope: Scope;
  /** One sentence: what happens. */
  says: string;
  /** It cannot be undone: the form asks, and the button is red. */
  isFinal: boolean;
  fields: Field[];
}

const REASON: Field = { name: "reason", label: "Reason", type: "text", placeholder: "recorded in the log" };
const NAME: Field = { name: "name", label: "Name", type: "text", required: true };
const PAYLOAD: Field = { name: "payload", label: "Payload (JSON)", type: "json", placeholder: "null" };
const UNKNOWN: Field = {
  name: "include_outcome_unknown", label: "Also repeat calls whose outcome is unknown", type: "check",
  help: "They may have had their effect already.", isRare: true,
};

function copyFields(index: string): Field[] {
  return [
    { name: index, label: "Last event to copy", type: "number", help: "It must end a commit. Empty: the last event." },
    { name: "generation", label: "Generation", type: "number", help: "Empty: the latest." },
    { name: "id", label: "Id of the new run", type: "text", placeholder: "made by the server" },
    { name: "signals", label: "Signals after that event", type: "choice", choices: ["keep", "drop"], isRare: true },
    { name: "children", label: "Children without a result", type: "choice", choices: ["", "await", "restart"], help: "As usual: await for a fork, restart for a reset.", isRare: true },
    { name: "version", label: "Version", type: "text", placeholder: "that of the original", isRare: true },
    REASON, UNKNOWN,
  ];
}

export const ACTIONS: readonly Action[] = [
  { verb: "message", label: "Message", scope: "signal", says: "Sends a message to the agent, which answers it next.", isFinal: false, fields: [{ name: "text", label: "Text", type: "long", required: true }] },
  { verb: "signal", label: "Signal", scope: "signal", says: "Puts a named message into the mailbox of the run.", isFinal: false, fields: [NAME, PAYLOAD] },
  { verb: "update", label: "Update", scope: "signal", says: "Asks the code to change something and waits for its recorded answer.", isFinal: false, fields: [NAME, PAYLOAD] },
  { verb: "query", label: "Query", scope: "read", says: "Asks the code; nothing is recorded.", isFinal: false, fields: [NAME, PAYLOAD] },
  { verb: "pause", label: "Pause", scope: "operate", says: "Stops the run and its timers until it is resumed.", isFinal: false, fields: [REASON] },
  { verb: "resume", label: "Resume", scope: "operate", says: "Continues the run. Limits given here are its new total budget.", isFinal: false, fields: [
    { name: "tokens", label: "Tokens", type: "number" }, { name: "cost", label: "Cost in dollars", type: "text" },
    { name: "turns", label: "Turns", type: "number" }, { name: "seconds", label: "Seconds", type: "number" },
  ] },
  { verb: "retry", label: "Retry", scope: "operate", says: "Repeats the calls that made the run fail; other results stay.", isFinal: false, fields: [REASON, UNKNOWN] },
  { verb: "fork", label: "Fork", scope: "operate", says: "Starts a new run that continues from a copy of this log. This run is unchanged.", isFinal: false, fields: copyFields("from") },
  { verb: "reset", label: "Reset", scope: "operate", says: "Starts a new run from a copy of this log and terminates this one.", isFinal: true, fields: copyFields("to") },
  { verb: "cancel", label: "Cancel", scope: "operate", says: "Asks the code to stop; it may compensate first. A canceled run does not continue.", isFinal: true, fields: [REASON] },
  { verb: "terminate", label: "Terminate", scope: "operate", says: "Ends the run at once, without running its code: nothing is compensated.", isFinal: true, fields: [REASON] },
  { verb: "delete", label: "Delete", scope: "admin", says: "Removes the run, its log and everything that belongs to it.", isFinal: true, fields: [REASON] },
];

/** Returns the actions that apply to a run of this status. */
export function actionsFor(run: Pick<RunView, "status" | "external">, isAgent: boolean): Action[] {
  if (run.external) return ACTIONS.filter((action) => action.verb === "delete" && isClosed(run.status));
  return ACTIONS.filter((action) => applies(action.verb, run.status, isAgent));
}

function applies(verb: Verb, status: Status, isAgent: boolean): boolean {
  const open = !isClosed(status);
  switch (verb) {
    case "message": return open && isAgent;
    case "signal":
    case "update":
    case "query":
    case "cancel":
    case "terminate": return open;
    case "pause": return open && status !== "paused";
    case "resume": return status === "paused";
    case "retry": return status === "failed";
    case "delete": return !open;
    case "fork":
    case "reset": return true;
  }
}

export class FormError extends Error {
  constructor(readonly field: string, message: string) {
    super(message);
  }
}

function json(values: Values, name: string): unknown {
  const text = (values[name] ?? "").trim();
  if (text === "") return null;
  try {
    return parseJson(text);
  } catch (error) {
    throw new FormError(name, `This is not JSON: ${error instanceof Error ? error.message : ""}. Quote a text: "hello"`);
  }
}

function number(values: Values, name: string): number | undefined {
  const text = (values[name] ?? "").trim();
  if (text === "") return undefined;
  if (!/^\d+$/.test(text)) throw new FormError(name, "This must be a whole number.");
  return Number(text);
}

function text(values: Values, name: string): string | undefined {
  const value = values[name] ?? "";
  return value.trim() === "" ? undefined : value;
}

function compact(body: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(body).filter(([, value]) => value !== undefined));
}

/** Builds the request of a form; `once` is the id that makes a repeat harmless. */
export function requestOf(action: Action, run: string, values: Values, once: string): Request {
  for (const field of action.fields) {
    if (field.required && text(values, field.name) === undefined) throw new FormError(field.name, `${field.label} is missing.`);
  }
  const post = (verb: string, body?: Record<string, unknown>, query?: RequestOptions["query"]): Request =>
    ({ method: "POST", path: `/v1/runs/{id}/${verb}`, options: { path: { id: run }, ...(query ? { query } : {}) }, ...(body ? { body: compact(body) } : {}) });
  const reason = text(values, "reason");
  switch (action.verb) {
    case "message": return post("messages", { text: values.text, message_id: once });
    case "signal": return post("signals", { name: values.name, payload: json(values, "payload"), signal_id: once });
    case "update": return post("updates", { name: values.name, payload: json(values, "payload"), update_id: once }, { wait_ms: 10_000 });
    case "query": return post("queries", { name: values.name, input: json(values, "payload") });
    case "pause":
    case "cancel":
    case "terminate": return post(action.verb, { reason });
    case "resume": {
      const budget = compact({ tokens: number(values, "tokens"), cost: text(values, "cost"), turns: number(values, "turns"), seconds: number(values, "seconds") });
      return post("resume", Object.keys(budget).length > 0 ? { budget } : {});
    }
    case "retry": return post("retry", { reason, request_id: once, include_outcome_unknown: checked(values) });
    case "fork":
    case "reset": {
      const index = action.verb === "fork" ? "from" : "to";
      return post(action.verb, {
        [index]: number(values, index), generation: number(values, "generation"), id: text(values, "id"),
        signals: text(values, "signals"), children: text(values, "children"), version: text(values, "version"), reason,
        include_outcome_unknown: checked(values),
      });
    }
    case "delete": return { method: "DELETE", path: "/v1/runs/{id}", options: { path: { id: run }, query: { reason } } };
  }
}

function checked(values: Values): true | undefined {
  return values.include_outcome_unknown === "true" ? true : undefined;
}

/** Returns the equal command line of a request. */
export function cliOf(action: Action, run: string, values: Values, once: string): string {
  const flag = (name: string, value: string | undefined): (string | false)[] => (value === undefined ? [] : [`--${name}`, value]);
  const reason = flag("reason", text(values, "reason"));
  const unknown = checked(values) ? ["--include-outcome-unknown"] : [];
  const payload = text(values, "payload");
  switch (action.verb) {
    case "message": return cliLine("run", "message", run, values.text ?? "", "--message-id", once);
    case "signal": return cliLine("run", "signal", run, values.name ?? "NAME", payload, "--signal-id", once);
    case "update": return cliLine("run", "update", run, values.name ?? "NAME", payload, "--update-id", once);
    case "query": return cliLine("run", "query", run, values.name ?? "NAME", payload);
    case "pause":
    case "cancel":
    case "terminate":
    case "delete": return cliLine("run", action.verb, run, ...reason);
    case "resume": {
      const limits = ["tokens", "cost", "turns", "seconds"].flatMap((name) => flag("budget", text(values, name) && `${name}=${values[name]?.trim()}`));
      return cliLine("run", "resume", run, ...limits);
    }
    case "retry": return cliLine("run", "retry", run, ...reason, "--request-id", once, ...unknown);
    case "fork":
    case "reset": {
      const index = action.verb === "fork" ? "from" : "to";
      const signals = values.signals === "drop" ? ["--signals", "drop"] : [];
      return cliLine(
        "run", action.verb, run, ...flag(index, text(values, index)), ...flag("generation", text(values, "generation")),
        ...flag("new-id", text(values, "id")), ...signals, ...flag("children", text(values, "children")),
        ...flag("version", text(values, "version")), ...reason, ...unknown,
      );
    }
  }
}

export function curlOf(request: Request): string {
  return curlLine(request.method, request.path, request.options, request.body);
}

/** Returns both lines for the values as they are typed; a form that is not complete yet has no `curl` line. */
export function linesOf(action: Action, run: string, values: Values, once: string): { cli: string; curl: string } {
  const cli = cliOf(action, run, values, once);
  try {
    return { cli, curl: curlOf(requestOf(action, run, values, once)) };
  } catch {
    return { cli, curl: "" };
  }
}

/** Returns the id for one filling of a form. */
export function onceId(): string {
  return newId("console");
}

/** The answer of a request as text, for the form that sent it. */
export function answerText(answer: unknown): string {
  return answer === undefined ? "done" : printJson(answer, 2);
}
