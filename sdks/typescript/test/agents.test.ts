/** Agents against the scripted model server: turns, tools from schemas, approvals, streams, and a crash in the middle. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Agent, Onward, agent, tool, type ConnectOptions } from "onward";
import { z } from "zod";
import { directory, scriptedModel } from "./kit.js";

const url = await scriptedModel();

interface Part {
  text?: string;
  call?: { name: string; arguments: string };
}

/** Queues the next answers of the model. */
async function answers(...replies: Part[][]): Promise<void> {
  await fetch(`${url}/script`, { method: "DELETE" });
  for (const parts of replies) {
    const response = await fetch(`${url}/script/answers`, { method: "POST", body: JSON.stringify({ parts }) });
    assert(response.ok, await response.text());
  }
}

async function requests(): Promise<{ body: { messages: { role: string; content: string }[]; tools?: unknown[] } }[]> {
  return ((await (await fetch(`${url}/script`)).json()) as { requests: never[] }).requests;
}

let calls: string[] = [];

const weather = tool("weather", { description: "The weather in a city", input: z.object({ city: z.string().describe("Its name") }) }, ({ city }, task) => {
  calls.push(`${city} ${task.attempt}`);
  return `sunny in ${city}`;
});
const refund = tool(
  "refund",
  { description: "Pays money back", input: { type: "object", properties: { order: { type: "string" } } }, effect: "at_most_once", needsApproval: true },
  ({ order }) => `${String(order)} is paid back`,
);

const assistant = agent("assistant", async (ctx, question: string) => {
  ctx.append("user", question);
  return ctx.turns({ turn: 0 }, async ({ turn }) => {
    const reply = await ctx.llm("scripted", { system: "Be brief.", tools: [weather] });
    ctx.append("assistant", reply);
    if (reply.calls.length === 0) return { done: { text: reply.text, turn, entries: ctx.entryCount() } };
    for (const outcome of await Promise.all(reply.calls.map((call) => ctx.tool(call)))) ctx.append("tool", outcome);
    return { next: { turn: turn + 1 } };
  });
});

const options: ConnectOptions = {
  workflows: [assistant],
  tools: [weather],
  agents: [new Agent("support", { model: "scripted", system: "You help.", tools: [weather, refund] })],
  models: { providers: { local: { api_format: "openai", base_url: `${url}/v1` } }, models: { scripted: { provider: "local" } } },
};

test("an agent with code of its own calls models and tools, turn by turn", async () => {
  await using onward = await Onward.embedded("memory:", options);
  calls = [];
  await answers(
    [{ call: { name: "weather", arguments: '{"city":"Ulm"}' } }, { call: { name: "weather", arguments: '{"city":"Bern"}' } }],
    [{ call: { name: "weather", arguments: '{"city":5}' } }],
    [{ text: "It is sunny." }],
  );
  const run = await onward.start(assistant, "How is the weather?");
  assert.deepEqual(await run.result(), { text: "It is sunny.", turn: 2, entries: 7 });
  assert.deepEqual(calls.sort(), ["Bern 1", "Ulm 1"]);
  const sent = await requests();
  assert.equal(sent.length, 3);
  assert.match(JSON.stringify(sent[0]?.body.tools), /"description":"Its name"/, "the model sees the schema");
  assert.match(JSON.stringify(sent[2]?.body.messages), /arguments of `weather` do not fit: city/, "the model reads what was wrong");
});

test("the ready-made agent asks a person, and its text streams", async () => {
  await using onward = await Onward.embedded("memory:", options);
  await answers([{ call: { name: "refund", arguments: '{"order":"o-1"}' } }], [{ text: "Your money is on its way." }]);
  const run = await onward.start(options.agents![0]!, "I want my money back");
  let approval: string | undefined;
  while (approval === undefined) {
    await new Promise((resolve) => setTimeout(resolve, 2));
    approval = (await run.view()).awaiting.find(({ kind }) => kind === "approval")?.id;
  }
  await onward.approve(approval);
  const frames: unknown[] = [];
  for await (const frame of run.stream()) frames.push(frame);
  assert.deepEqual(await run.result(), { stop: "done", text: "Your money is on its way.", turns: 2 });
  assert.match(JSON.stringify(await requests()), /o-1 is paid back/);
  assert.match(JSON.stringify(frames), /Your m/);
  const roles: string[] = [];
  for await (const entry of run.conversation()) roles.unshift(entry.role);
  assert.deepEqual(roles, ["user", "assistant", "tool", "assistant"]);
});

test("an agent goes on in another process without repeating what it has", async () => {
  const store = directory();
  await answers([{ call: { name: "weather", arguments: '{"city":"Ulm"}' } }], [{ text: "Sunny." }]);
  calls = [];
  let release = (): void => {};
  const held = new Promise<void>((resolve) => (release = resolve));
  const holding = tool("weather", weather.options as never, async ({ city }: { city: string }) => (await held, calls.push(city), "held"));
  const first = await Onward.embedded(store, { ...options, tools: [holding], shutdownTimeout: { milliseconds: 1 } });
  const run = await first.start(assistant, "How is it?", { id: "chat" });
  while ((await requests()).length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  await run.waitForStatus("waiting");
  await first.close();
  await using second = await Onward.embedded(store, options);
  assert.equal((await second.run<{ text: string }>("chat").result()).text, "Sunny.");
  assert.equal((await requests()).length, 2, "the first model call is not repeated");
  release();
});
