// A generated client starts, signals, reads and lists runs. The types are part of the test: `tsc` checks this file.

import assert from "node:assert/strict";
import { test } from "node:test";

import type { components, paths } from "onward-api";
import createClient from "openapi-fetch";

type Schemas = components["schemas"];
type Json = "application/json" | "application/problem+json";

const { ONWARD_URL, ONWARD_KEY } = process.env;
assert(ONWARD_URL && ONWARD_KEY);

const client = createClient<paths, Json>({
  baseUrl: ONWARD_URL,
  headers: { Authorization: `Bearer ${ONWARD_KEY}` },
  // The style of OpenAPI; the default of this client is another.
  querySerializer: { object: { style: "form", explode: true } },
});

/** Fails with the code of the problem if there is no response. */
function found<T>({ data, error }: { data?: T; error?: Schemas["Problem"] }): T {
  assert.equal(error?.code, undefined, error?.detail);
  assert(data !== undefined);
  return data;
}

async function start(id: string): Promise<Schemas["StartedRun"]> {
  return found(
    await client.POST("/v1/runs", {
      body: { kind: "order", id, input: { item: "a teapot" }, attributes: { customer: "ada", priority: 7 } },
    }),
  );
}

test("a run is started once, signaled, read and listed", async () => {
  const started = await start("ts-1");
  assert(started.created);
  assert(!(await start("ts-1")).created);
  const path = { path: { id: "ts-1" } };
  const appended = found(
    await client.POST("/v1/runs/{id}/signals", { params: path, body: { name: "payment", payload: 42, signal_id: "one" } }),
  );
  assert.equal(appended.index, 1);

  const run = found(await client.GET("/v1/runs/{id}", { params: path }));
  assert.equal(run.status, "pending");
  assert.deepEqual(
    run.blocked_on.map(({ task, why }) => ({ task, why })),
    [{ task: null, why: "no_worker" }],
  );
  assert.deepEqual(run.attributes, { customer: "ada", priority: 7 });
  assert.deepEqual(run.input, { json: { item: "a teapot" } });
  assert.equal(run.counts.signals_received, 1);
  assert.equal(run.pause?.reason, undefined);

  const query = { kind: "order", status: ["pending" as const], attr: { "attr.customer": "ada" }, limit: 10 };
  const page = found(await client.GET("/v1/runs", { params: { query } }));
  assert(page.runs.some((listed) => listed.id === "ts-1"));
  const others = { ...query, attr: { "attr.customer": "bob" } };
  assert.equal(found(await client.GET("/v1/runs", { params: { query: others } })).runs.length, 0);
});

/** Uses the fields of each type of event; the compiler knows them. */
function eventText(event: Schemas["Event"]): string {
  switch (event.type) {
    case "run_started":
      return `${event.type} ${event.kind} ${BigInt(event.seed) > 0n}`;
    case "signal_received":
      return `${event.type} ${event.name} ${"json" in event.payload ? event.payload.json : event.payload.type}`;
    case "terminate_requested":
      return `${event.type} ${event.reason}`;
    default:
      return event.type;
  }
}

test("the log is typed, as a page and as server-sent events", async () => {
  await start("ts-2");
  const params = { path: { id: "ts-2" } };
  found(await client.POST("/v1/runs/{id}/signals", { params, body: { name: "payment", payload: 42 } }));
  found(await client.POST("/v1/runs/{id}/terminate", { params, body: { reason: "enough" } }));
  const wanted = ["run_started order true", "signal_received payment 42", "terminate_requested enough"];
  const page = found(await client.GET("/v1/runs/{id}/events", { params }));
  assert.deepEqual(page.events.map((logged) => eventText(logged.event)), wanted);

  const headers = { Accept: "text/event-stream" };
  const text = found(await client.GET("/v1/runs/{id}/events", { params, headers, parseAs: "text" }));
  const frames = text.trim().split("\n\n").map((frame) => JSON.parse(frame.slice(frame.indexOf("data: ") + 6)));
  const ended: Schemas["RunResult"] = frames.pop();
  assert.equal(ended.status, "terminated");
  const logged: Schemas["LoggedEvent"][] = frames;
  assert.deepEqual(logged.map((one) => eventText(one.event)), wanted);
});

test("an error has a code of the document", async () => {
  const { error } = await client.GET("/v1/runs/{id}", { params: { path: { id: "nope" } } });
  const code: Schemas["ErrorCode"] | undefined = error?.code;
  assert.equal(code, "run_not_found");
  const stranger = createClient<paths, Json>({ baseUrl: ONWARD_URL });
  assert.equal((await stranger.GET("/v1/runs")).error?.code, "unauthenticated");
});
