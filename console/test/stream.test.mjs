// Streams without a browser: resuming, reconnecting, and the ends that are final.
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { load } from "./bundle.mjs";

globalThis.document = { addEventListener() {}, removeEventListener() {}, visibilityState: "visible" };
let requests = [];
let script = [];
globalThis.fetch = async (url, { headers, signal } = {}) => {
  if (url === "/readyz") return new Response("ready\n");
  requests.push({ url, last: headers.get("last-event-id") });
  const next = script.shift();
  if (next === undefined) return new Response(new ReadableStream({ start: (controller) => signal.addEventListener("abort", () => controller.error(new DOMException("aborted", "AbortError"))) }));
  if (next instanceof Error) throw next;
  if (next instanceof Response) return next;
  return new Response(next, { headers: { "content-type": "text/event-stream" } });
};
const { openStream, online } = await load("api/sse.ts", "api/connection.ts");

const until = async (holds) => {
  for (let n = 0; n < 400 && !holds(); n++) await new Promise((resolve) => setTimeout(resolve, 10));
  assert.ok(holds(), "it did not happen in time");
};
const problem = (status, code) => new Response(JSON.stringify({ status, code, detail: code, hint: null }), { status });

beforeEach(() => {
  requests = [];
  script = [];
});

test("a broken stream continues after its last event, and ends with its last frame", async () => {
  script = ['id: 0:1\nevent: event\ndata: {"n":1}\n\nevent: blocked\ndata: {"n":2}\n\n', 'id: 0:2\nevent: event\ndata: {"n":3}\n\nevent: end\ndata: {"status":"completed"}\n\nevent: event\ndata: {"n":4}\n\n'];
  const seen = [];
  let reopened = 0;
  const stream = openStream("/v1/runs/{id}/live", { path: { id: "a/b" }, on: { event: (data, id) => seen.push([data.n, id]), end: (data) => seen.push(data.status) }, onReopen: () => reopened++ });
  await until(() => stream.state.value === "ended");
  assert.deepEqual(seen, [[1, "0:1"], [3, "0:2"], "completed"]);
  assert.deepEqual(requests, [{ url: "/v1/runs/a%2Fb/live", last: null }, { url: "/v1/runs/a%2Fb/live", last: "0:1" }]);
  assert.equal(reopened, 1);
});

test("a reader that was dropped continues from the cursor", async () => {
  script = ['id: 0:1\nevent: event\ndata: {}\n\nevent: dropped\ndata: {"cursor":"0:7"}\n\n', "event: end\ndata: {}\n\n"];
  const stream = openStream("/x", { on: {} });
  await until(() => stream.state.value === "ended");
  assert.equal(requests[1].last, "0:7");
});

test("a refusal is final and has its problem", async () => {
  script = [problem(404, "run_not_found")];
  const stream = openStream("/x", { on: {} });
  await until(() => stream.state.value === "failed");
  assert.equal(stream.error.value.code, "run_not_found");
  assert.equal(requests.length, 1);
});

test("an error frame of a deleted run is final, one of a failed store is not", async () => {
  script = ['event: error\ndata: {"status":503,"code":"store_unavailable","detail":"x"}\n\n', 'event: error\ndata: {"status":404,"code":"run_not_found","detail":"x"}\n\n'];
  const stream = openStream("/x", { on: {} });
  await until(() => stream.state.value === "failed");
  assert.equal(requests.length, 2);
  assert.equal(stream.error.value.code, "run_not_found");
});

test("a server that is away is waited for", async () => {
  script = [new TypeError("refused"), new Response("", { status: 502 }), "event: end\ndata: {}\n\n"];
  const states = [];
  const stream = openStream("/x", { on: {}, onError: () => states.push(online.value) });
  await until(() => stream.state.value === "ended");
  assert.equal(requests.length, 3);
});

test("a closed stream sends nothing more", async () => {
  const stream = openStream("/x", { on: {} });
  await until(() => stream.state.value === "open");
  stream.close();
  await new Promise((resolve) => setTimeout(resolve, 600));
  assert.equal(requests.length, 1);
});
