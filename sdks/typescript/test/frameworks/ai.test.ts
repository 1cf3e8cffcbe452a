/** AI SDK: every call of a model and of a tool is a step. */

import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { generateText, Output, stepCountIs, streamText, tool, ToolLoopAgent } from "ai";
import { Onward, RunFailed, workflow, type AnyWorkflow } from "onward";
import { durable, durableModel, durableTools } from "onward/ai";
import { z } from "zod";
import { asked, calls, fails, forget, model, requestCount, says, steps } from "./scripted.js";

beforeEach(forget);

/** Opens a store in memory, and replays every run at every commit. */
function inMemory(...workflows: AnyWorkflow[]): Promise<Onward> {
  return Onward.embedded("memory:", { workflows, checkReplay: "every" });
}

function weather(ran: string[]) {
  return tool({
    description: "Returns the weather.",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => {
      ran.push(city);
      return { city, is: "rain", at: new Date(0) };
    },
  });
}

test("calls of models and tools are steps that a replay does not repeat", async () => {
  const ran: string[] = [];
  const tools = durableTools({ weather: weather(ran) });
  const answer = workflow("answer", (ctx, question: string) =>
    durable(ctx, async () => {
      const result = await generateText({ model, tools, prompt: question, stopWhen: stepCountIs(5) });
      // What the framework made of clocks and random numbers is the same in every replay.
      await ctx.step("keep", () => null, { input: JSON.stringify(result.response) });
      return result.text;
    }),
  );
  await calls(["weather", { city: "Oslo" }]);
  await says("It rains.");
  await using onward = await inMemory(answer);
  const run = await onward.start(answer, "How is it in Oslo?");
  assert.equal(await run.result(), "It rains.");
  assert.deepEqual(await steps(run), ["model scripted", "tool weather", "model scripted", "keep"]);
  assert.deepEqual(ran, ["Oslo"]);
  const { request_count, requests } = await asked();
  assert.equal(request_count, 2);
  assert.deepEqual(JSON.parse(requests[1]!.body.messages.at(-1)!.content), { city: "Oslo", is: "rain", at: "1970-01-01T00:00:00.000Z" });
});

test("tools of one turn run side by side", async () => {
  let meet: (() => void) | undefined;
  const both = tool({
    inputSchema: z.object({ name: z.string() }),
    execute: async ({ name }) => {
      if (meet === undefined) await new Promise<void>((resolve) => (meet = resolve));
      else meet();
      return name;
    },
  });
  const agent = new ToolLoopAgent({ model, tools: durableTools({ both }) });
  const answer = workflow("answer", (ctx, prompt: string) => durable(ctx, async () => (await agent.generate({ prompt })).text));
  await calls(["both", { name: "a" }], ["both", { name: "b" }]);
  await says("met");
  await using onward = await inMemory(answer);
  assert.equal(await (await onward.start(answer, "go")).result(), "met");
  const messages = (await asked()).requests[1]!.body.messages.slice(-2);
  assert.deepEqual(messages.map((message) => message.content), ["a", "b"]);
});

test("typed output", async () => {
  const schema = z.object({ city: z.string(), days: z.number() });
  const answer = workflow("answer", (ctx, prompt: string) =>
    durable(ctx, async () => (await generateText({ model, prompt, output: Output.object({ schema }) })).output),
  );
  await says('{"city":"Oslo","days":3}');
  await using onward = await inMemory(answer);
  assert.deepEqual(await (await onward.start(answer, "go")).result(), { city: "Oslo", days: 3 });
});

test("watchers receive a streamed answer before it is recorded", async () => {
  const text = "It rains, and it will rain for some days.";
  const answer = workflow("answer", (ctx, prompt: string) =>
    durable(ctx, async () => {
      await ctx.signal("go").recv();
      const stream = streamText({ model, prompt });
      let read = "";
      for await (const piece of stream.textStream) read += piece;
      assert.equal(read, text);
      return stream.text;
    }),
  );
  await says(text, { chunk_delay_ms: 20 });
  await using onward = await inMemory(answer);
  const run = await onward.start(answer, "How is it?");
  const watched = run.watch();
  await watched.next();
  await run.signal("go");
  let [seen, before] = ["", 0];
  for await (const frame of watched) {
    const { content } = frame as unknown as { content: Frame };
    if (content.emitted !== undefined && before >= 0) before++;
    if (content.emitted?.name === "model") seen += content.emitted.value.json.text ?? "";
    const isResult = content.log?.record.events.some((event) => event.type === "step_completed") ?? false;
    if (isResult && before >= 0) {
      assert(before > 1, "values came before the result of the step");
      before = -1;
    }
  }
  assert.equal(await run.result(), text);
  assert.equal(seen, text);
  assert.equal(before, -1);
  assert.equal(await requestCount(), 1);
});

interface Frame {
  emitted?: { name: string; value: { json: { text?: string } } };
  log?: { record: { events: { type: string }[] } };
}

test("a model call is repeated if that may help, and fails the run if not", async () => {
  const answer = workflow("answer", (ctx, prompt: string) => durable(ctx, async () => (await generateText({ model, prompt })).text));
  await fails("overloaded");
  await says("hello");
  await using onward = await inMemory(answer);
  assert.equal(await (await onward.start(answer, "go")).result(), "hello");
  assert.equal(await requestCount(), 2);
  await fails("key_refused");
  const refused = await onward.start(answer, "go");
  await assert.rejects(refused.result(), (error) => error instanceof RunFailed && error.failure.message.startsWith("AI_APICallError"));
  assert.equal(await requestCount(), 3);
});

test("a tool in workflow code uses ctx", async () => {
  const answer = workflow("answer", (ctx, prompt: string) => {
    const askPerson = tool({
      inputSchema: z.object({ question: z.string() }),
      execute: () => ctx.signal<string>("reply").recv(),
    });
    return durable(ctx, async () => (await generateText({ model, prompt, tools: { askPerson }, stopWhen: stepCountIs(5) })).text);
  });
  await calls(["askPerson", { question: "May I?" }]);
  await says("I may.");
  await using onward = await inMemory(answer);
  const run = await onward.start(answer, "go");
  await run.signal("reply", "You may.");
  assert.equal(await run.result(), "I may.");
  assert.deepEqual(await steps(run), ["model scripted", "model scripted"]);
  assert.equal((await asked()).requests[1]!.body.messages.at(-1)!.content, "You may.");
});

test("mistakes are named: no scope, a timer of the framework, the name of a model", async () => {
  const bare = workflow("bare", async (_, prompt: string) => (await generateText({ model, prompt })).text);
  const timed = workflow("timed", (ctx, prompt: string) =>
    durable(ctx, async () => (await generateText({ model, prompt, timeout: 1000 })).text),
  );
  await using onward = await inMemory(bare, timed);
  for (const [code, message] of [[bare, /Math\.random|durable\(ctx/], [timed, /AbortSignal\.timeout/]] as const) {
    const run = await onward.start(code, "go");
    const view = await run.waitForStatus("paused");
    assert.match(JSON.stringify(view), message);
  }
  assert.throws(() => durableModel("gpt-5" as never), TypeError);
  assert.equal(await requestCount(), 0);
});

test("outside of workflows, models and tools are those of the framework", async () => {
  const ran: string[] = [];
  await calls(["weather", { city: "Oslo" }]);
  await says("It rains.");
  const tools = durableTools({ weather: weather(ran) });
  const { text } = await generateText({ model, tools, prompt: "go", stopWhen: stepCountIs(5) });
  assert.equal(text, "It rains.");
  assert.deepEqual(ran, ["Oslo"]);
});
