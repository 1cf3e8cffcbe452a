/** The scripted model server: what it answers, and what it was asked. */

import assert from "node:assert/strict";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { durableModel } from "onward/ai";
import type { RunHandle } from "onward";

const url = process.env["SCRIPTED_MODEL_URL"];
assert(url, "SCRIPTED_MODEL_URL names the server: cargo xtask test typescript sets it");

export const model = durableModel(createOpenAICompatible({ name: "scripted", baseURL: `${url}/v1`, apiKey: "k" })("scripted"));

async function control(method: string, path: string, body?: unknown): Promise<unknown> {
  const response = await fetch(url + path, body === undefined ? { method } : { method, body: JSON.stringify(body) });
  const text = await response.text();
  assert(response.ok, text);
  return text === "" ? null : JSON.parse(text);
}

/** Adds an answer to those that the server gives next. */
export async function says(text: string, options: object = {}): Promise<void> {
  await control("POST", "/script/answers", { parts: [{ text }], ...options });
}

/** Adds an answer that calls tools. */
export async function calls(...tools: [name: string, args: object][]): Promise<void> {
  const parts = tools.map(([name, args]) => ({ call: { name, arguments: JSON.stringify(args) } }));
  await control("POST", "/script/answers", { parts });
}

export async function fails(fault: unknown): Promise<void> {
  await control("POST", "/script/answers", { fault });
}

export async function forget(): Promise<void> {
  await control("DELETE", "/script");
}

interface Asked {
  request_count: number;
  requests: { body: { messages: { role: string; content: string }[] } }[];
}

export async function asked(): Promise<Asked> {
  return (await control("GET", "/script")) as Asked;
}

export async function requestCount(): Promise<number> {
  return (await asked()).request_count;
}

/** Returns the names of the steps that the log has, in the order of their results. */
export async function steps(run: RunHandle<unknown>): Promise<string[]> {
  const events = (await run.log()).flatMap((record) => record.events);
  return events.filter((event) => event.type === "step_completed").map((event) => String(event["name"]));
}
