/** Owns the names under which the run pages use the API's types, and texts of payloads and event addresses. */
import { ExactNumber } from "../../api/json";
import type { Payload, Schemas } from "../../api/model";

export type { ActiveCall, Awaited, Failure, LoggedEvent, Payload, RunAt, RunFrames, RunView, Status, TimelineAttempt, TimelineCall } from "../../api/model";
export { isClosed, jsonOf } from "../../api/model";

export type RunEvent = Schemas["Event"];
export type EventType = RunEvent["type"];
export type EventOf<T extends EventType> = Extract<RunEvent, { type: T }>;
export type Divergence = Schemas["Divergence"];
export type RunPaused = Schemas["RunPaused"];

/** Writes a payload as one line of text, cut to `max` characters. */
export function payloadLine(payload: Payload | null | undefined, max = 120): string {
  if (!payload) return "";
  const text = "json" in payload ? shortJson(payload.json, 4 * max) : `${payload.type}, ${bytesOf(payload.base64)} bytes`;
  return cut(text, max);
}

/** Prints the beginning of a JSON value: at least `max` characters of it, if it has as many. A payload may have megabytes. */
export function shortJson(value: unknown, max: number): string {
  let out = "";
  const print = (item: unknown): void => {
    if (out.length > max) return;
    if (item instanceof ExactNumber) out += item.text;
    else if (typeof item === "string") out += JSON.stringify(item.length > max ? item.slice(0, max + 1) : item);
    else if (item === null || typeof item !== "object") out += JSON.stringify(item) ?? "null";
    else if (Array.isArray(item)) list("[", "]", item, print);
    else list("{", "}", Object.keys(item), (name) => {
      out += `${JSON.stringify(name)}:`;
      print((item as Record<string, unknown>)[name as string]);
    });
  };
  const list = (open: string, close: string, items: readonly unknown[], each: (item: unknown) => void): void => {
    out += open;
    for (let at = 0; at < items.length && out.length <= max; at++) {
      if (at > 0) out += ",";
      each(items[at]);
    }
    out += close;
  };
  print(value);
  return out;
}

export function cut(text: string, max: number): string {
  const line = text.length > 4 * max ? text.slice(0, 4 * max) : text;
  const flat = line.replace(/\s+/g, " ");
  return flat.length > max ? `${flat.slice(0, max - 1)}…` : flat;
}

/** Returns the number of bytes that a Base64 text stands for. */
export function bytesOf(base64: string): number {
  const padding = base64.endsWith("==") ? 2 : base64.endsWith("=") ? 1 : 0;
  return Math.max(0, Math.floor((base64.length * 3) / 4) - padding);
}

/** The address of an event in links: `GENERATION:INDEX`. */
export function eventRef(generation: number, index: number): string {
  return `${generation}:${index}`;
}

export function readEventRef(text: string | null | undefined): { generation: number; index: number } | null {
  const match = /^(\d{1,10}):(\d{1,15})$/.exec(text ?? "");
  return match ? { generation: Number(match[1]), index: Number(match[2]) } : null;
}
