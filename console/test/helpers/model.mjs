// Owns a scripted model for tests: the streaming chat completions of OpenAI's format, with answers that depend on the last message.
import { createServer } from "node:http";

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
export const STORY = "Once upon a time there was a clerk who wrote everything down, and nothing that was sold was ever sold twice.";

/** Returns the parts of an answer: texts, reasoning and calls. */
function answer(messages, tools) {
  const last = messages.at(-1);
  if (last?.role === "tool") {
    const results = messages.slice(messages.findLastIndex((message) => message.role === "assistant") + 1);
    return { text: `The tools say: ${results.map((result) => result.content).join("; ")}` };
  }
  const said = typeof last?.content === "string" ? last.content : (last?.content ?? []).map((part) => part.text ?? "").join(" ");
  const has = (name) => tools.some((tool) => tool.function.name === name);
  if (/story/.test(said)) return { reasoning: "The customer has time. A story it is.", text: STORY, delay: /long/.test(said) ? 200 : 40 };
  if (/markup/.test(said)) return { text: said };
  const item = /bell|lamp|saddle/.exec(said)?.[0];
  if (item && has("order")) return { reasoning: `They want a ${item}.`, text: `Let me look at the shelf for a ${item}.`, calls: [["stock", { item }], ["order", { item, count: 1 }]] };
  if (item && has("stock")) return { text: "Let me look.", calls: [["stock", { item }]] };
  return { text: `You said: ${said}` };
}

export class ScriptedModel {
  static async start() {
    const model = new ScriptedModel();
    model.server = createServer((request, response) => void model.respond(request, response));
    await new Promise((resolve) => model.server.listen(0, "127.0.0.1", resolve));
    model.url = `http://127.0.0.1:${model.server.address().port}/v1`;
    return model;
  }

  close() {
    this.server.closeAllConnections();
    this.server.close();
  }

  async respond(request, response) {
    let body = "";
    for await (const chunk of request) body += chunk;
    const { messages, tools = [], model } = JSON.parse(body);
    const { reasoning, text = "", calls = [], delay = 5 } = answer(messages, tools);
    response.writeHead(200, { "content-type": "text/event-stream" });
    const id = `chatcmpl-${messages.length}`;
    const send = (choices, usage = null) => response.write(`data: ${JSON.stringify({ id, object: "chat.completion.chunk", created: 1, model, choices, usage })}\n\n`);
    const piece = (delta, finish_reason = null) => send([{ index: 0, delta, finish_reason }]);
    piece({ role: "assistant", content: "" });
    for (const words of reasoning?.match(/\S+\s*/g) ?? []) {
      piece({ reasoning: words });
      await pause(delay);
    }
    for (const words of text.match(/\S+\s*/g) ?? []) {
      piece({ content: words });
      await pause(delay);
    }
    for (const [index, [name, args]] of calls.entries()) piece({ tool_calls: [{ index, id: `call_${messages.length}_${index}`, type: "function", function: { name, arguments: JSON.stringify(args) } }] });
    piece({}, calls.length > 0 ? "tool_calls" : "stop");
    send([], { prompt_tokens: 40 + 10 * messages.length, completion_tokens: 5 + Math.ceil(text.length / 4), total_tokens: 0, completion_tokens_details: { reasoning_tokens: reasoning ? 8 : 0 } });
    response.end("data: [DONE]\n\n");
  }
}
