// A tool server over the Model Context Protocol on stdin and stdout, for the agent of the tests.
import { createInterface } from "node:readline";

const item = { type: "string", description: "What is looked for." };
const tools = [
  { name: "stock", description: "Counts an item on the shelf", inputSchema: { type: "object", required: ["item"], properties: { item } } },
  { name: "order", description: "Orders an item, which costs money", inputSchema: { type: "object", required: ["item", "count"], properties: { item, count: { type: "integer" } } } },
];

function result(method, params) {
  switch (method) {
    case "initialize": return { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "shop", version: "1" } };
    case "tools/list": return { tools };
    case "tools/call": return { content: [{ type: "text", text: params.name === "stock" ? `7 of ${params.arguments.item}, shelf 7` : `${params.arguments.count} ${params.arguments.item} ordered` }] };
    case "ping": return {};
    default: return null;
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) continue;
  const found = result(method, params);
  const answer = found === null ? { error: { code: -32601, message: "Method not found" } } : { result: found };
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", id, ...answer })}\n`);
}
