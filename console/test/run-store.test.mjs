// The listed runs without a browser: pages and frames of the feed in every order.
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { load } from "./bundle.mjs";

let pictures = [];
globalThis.requestAnimationFrame = (call) => pictures.push(call);
globalThis.cancelAnimationFrame = () => undefined;
let answers = [];
globalThis.fetch = (url) => new Promise((resolve) => answers.push({ url, resolve }));
const { RunStore } = await load("pages/runs/store.ts");

const settle = () => new Promise((resolve) => setTimeout(resolve, 5));
const run = (id, second, status = "running", updated = second) => ({ id, kind: "k", status, created_at: `2026-01-01T00:00:${String(second).padStart(2, "0")}.000Z`, updated_at: `2026-01-01T00:01:${String(updated).padStart(2, "0")}.000Z`, attributes: {} });
const frame = (item, change = "status") => ({ at: "", change, run: item });

async function answer(runs, next = null) {
  const { resolve } = answers.shift();
  resolve(new Response(JSON.stringify({ runs, next }), { headers: { "content-type": "application/json" } }));
  await settle();
}

function draw() {
  const due = pictures;
  pictures = [];
  for (const call of due) call();
}

const shown = (store) => store.runs.value.map((item) => `${item.id} ${item.status}`);

beforeEach(() => {
  pictures = [];
  answers = [];
});

async function listed(...runs) {
  const store = new RunStore(() => ({}), (item) => item.status !== "hidden");
  void store.reload();
  await settle();
  await answer(runs);
  draw();
  return store;
}

test("new runs are put where they belong, changed ones stay in their place, others leave", async () => {
  const store = await listed(run("c", 30), run("a", 10));
  store.push(frame(run("b", 20), "started"));
  store.push(frame(run("d", 40), "started"));
  store.push(frame(run("a", 10, "failed", 50)));
  store.push(frame(run("c", 30, "hidden", 50)));
  draw();
  assert.deepEqual(shown(store), ["d running", "b running", "a failed"]);
  store.push(frame(run("b", 20, "running", 59), "deleted"));
  draw();
  assert.deepEqual(shown(store), ["d running", "a failed"]);
});

test("frames that arrive while the list is loaded are applied to the answer, unless they are older", async () => {
  const store = new RunStore(() => ({}), () => true);
  void store.reload();
  await settle();
  store.push(frame(run("a", 10, "completed", 20)));
  store.push(frame(run("b", 11, "running", 12)));
  draw();
  await answer([run("b", 11, "failed", 30), run("a", 10, "running", 11)]);
  draw();
  assert.deepEqual(shown(store), ["b failed", "a completed"]);
});

test("new runs are held back while the list is scrolled, and known ones still change", async () => {
  const store = await listed(run("a", 10));
  store.holds = true;
  store.push(frame(run("b", 20), "started"));
  store.push(frame(run("a", 10, "failed", 20)));
  draw();
  assert.deepEqual([shown(store), store.held.value], [["a failed"], 1]);
  store.release();
  assert.deepEqual([shown(store), store.held.value], [["b running", "a failed"], 0]);
});

test("runs older than the last listed one come with their page, once", async () => {
  const store = new RunStore(() => ({}), () => true);
  void store.reload();
  await settle();
  await answer([run("c", 30), run("b", 20)], "cursor");
  store.push(frame(run("a", 10)));
  draw();
  assert.deepEqual(shown(store), ["c running", "b running"]);
  void store.more();
  await settle();
  assert.match(answers[0].url, /cursor=cursor/);
  await answer([run("b", 20), run("a", 10, "waiting")]);
  assert.deepEqual(shown(store), ["c running", "b running", "a waiting"]);
  assert.equal(store.complete.value, true);
});

test("an answer to an earlier request does not replace a newer list", async () => {
  const store = new RunStore(() => ({}), () => true);
  void store.reload();
  await settle();
  const late = answers.shift();
  void store.reload();
  await settle();
  await answer([run("new", 20)]);
  late.resolve(new Response(JSON.stringify({ runs: [run("old", 10)], next: null })));
  await settle();
  assert.deepEqual(shown(store), ["new running"]);
});
