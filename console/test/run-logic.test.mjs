// Tests the logic of the run pages without a browser.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { load } from "./bundle.mjs";

const run = await load(
  "pages/run/model.ts", "pages/run/summary.ts", "pages/run/timeline.ts", "pages/run/waterfall.ts", "pages/run/actions.ts",
  "pages/run/wordDiff.ts", "pages/run/logStore.ts",
);

const at = (seconds) => new Date(Date.UTC(2026, 10, 18, 12, 0, 0) + seconds * 1000).toISOString();
const logged = (index, event, seconds = index, generation = 0) => ({ generation, index, at: at(seconds), commit: null, event });
const json = (value) => ({ json: value });
const failure = (code, message) => ({ code, message, causes: [], details: null, retry_after_ms: null, retryable: true });

describe("timeline", () => {
  test("a task is queued, runs in two attempts and completes", () => {
    const timeline = run.emptyTimeline();
    run.addEvent(timeline, logged(1, { type: "task_scheduled", call_id: "0", kind: "resize", input: json(1), options: {} }));
    assert.equal(timeline.calls[0].status, "queued");
    run.addActive(timeline, { call_id: "0", type: "task", name: "resize", attempt: 1, started_at: at(3), input: null, worker: "w-1" });
    assert.equal(timeline.calls[0].status, "running");
    run.addEvent(timeline, logged(2, { type: "task_attempt_ended", call_id: "0", attempt: 1, began_at: at(3), claim: 1, generation: 0, failure_code: "timed_out", spend: [] }, 5));
    assert.equal(timeline.calls[0].status, "retrying");
    run.addActive(timeline, { call_id: "0", type: "task", name: "resize", attempt: 2, started_at: at(7), input: null, worker: "w-2" });
    run.addEvent(timeline, logged(3, { type: "task_completed", call_id: "0", attempts: 2, output: json(2) }, 9));
    const [call] = timeline.calls;
    assert.equal(call.status, "completed");
    assert.deepEqual(call.attempts.map((one) => [one.attempt, one.failure?.code ?? null, one.worker]), [[1, "timed_out", "w-1"], [2, null, "w-2"]]);
    const bars = run.barsOf(call, Date.parse(at(20)));
    assert.deepEqual(bars.map((bar) => [bar.kind, (bar.to - bar.from) / 1000]), [["queue", 2], ["run", 2], ["gap", 2], ["run", 2]]);
    assert.deepEqual(run.timesOf(call, 0), { queued: 2000, ran: 4000, waited: 2000 });
  });

  test("a step appears when it starts and keeps its place when its event comes", () => {
    const timeline = run.emptyTimeline();
    run.addActive(timeline, { call_id: "1", type: "step", name: "charge", attempt: 1, started_at: at(1), input: json(3), worker: null });
    assert.equal(timeline.calls[0].first_index, null);
    assert.equal(timeline.calls[0].status, "running");
    run.addEvent(timeline, logged(4, { type: "step_failed", call_id: "1", name: "charge", attempt: 1, failure: failure("x", "y"), retry_at: at(5), took_ms: 500, input_hash: null }, 4));
    assert.equal(timeline.calls[0].status, "retrying");
    run.addEvent(timeline, logged(5, { type: "step_completed", call_id: "1", name: "charge", attempt: 2, output: json(1), took_ms: 100, input_hash: null }, 6));
    assert.equal(timeline.calls.length, 1);
    assert.equal(timeline.calls[0].first_index, 4);
    assert.equal(timeline.calls[0].ended_at, at(6));
    assert.equal(timeline.calls[0].attempts[1].started_at, new Date(Date.parse(at(6)) - 100).toISOString());
  });

  test("the same events twice change nothing", () => {
    const events = [
      logged(1, { type: "timer_started", call_id: "0", due_at: at(9) }),
      logged(2, { type: "signal_awaited", call_id: "1", name: "pay", deadline: null, is_pattern: false }),
      logged(3, { type: "signal_received", name: "pay", payload: json(1), sender: null, signal_id: null }),
      logged(4, { type: "signal_consumed", call_id: "1", name: "pay", index: 3 }),
      logged(5, { type: "timer_fired", call_id: "0" }),
    ];
    const once = run.emptyTimeline();
    events.forEach((event) => run.addEvent(once, event));
    const before = JSON.stringify(once.calls);
    events.forEach((event) => assert.equal(run.addEvent(once, event), false, event.event.type));
    assert.equal(JSON.stringify(once.calls), before);
    assert.deepEqual(once.calls.map((call) => [call.type, call.status]), [["timer", "completed"], ["signal", "completed"]]);
  });

  test("a page of the server and live events overlap without doubles", () => {
    const timeline = run.emptyTimeline();
    run.addEvent(timeline, logged(7, { type: "timer_started", call_id: "2", due_at: at(20) }));
    run.addPage(timeline, [
      { call_id: "0", type: "step", name: "a", status: "completed", queued_at: null, started_at: at(0), ended_at: at(1), attempts: [], first_index: 1, last_index: 1, child: null, deadline: null, input: null, abandoned: false },
      { call_id: "2", type: "timer", name: null, status: "waiting", queued_at: null, started_at: at(7), ended_at: null, attempts: [], first_index: 7, last_index: 7, child: null, deadline: at(20), input: null, abandoned: false },
    ]);
    run.addEvent(timeline, logged(1, { type: "step_completed", call_id: "0", name: "a", attempt: 1, output: json(1), took_ms: 1, input_hash: null }));
    assert.deepEqual(timeline.calls.map((call) => call.call_id), ["0", "2"]);
  });

  test("an abandoned segment leaves its calls and frees their ids", () => {
    const timeline = run.emptyTimeline();
    run.addEvent(timeline, logged(1, { type: "task_scheduled", call_id: "0", kind: "tool.look", input: json(1), options: {} }));
    run.addEvent(timeline, logged(2, { type: "segment_abandoned", from: 1, to: 1, attempt: 1, withdrawn: [], divergence: {} }));
    run.addEvent(timeline, logged(3, { type: "task_scheduled", call_id: "0", kind: "llm.small", input: json(1), options: {} }));
    assert.deepEqual(timeline.calls.map((call) => [call.type, call.abandoned, call.status]), [["tool", true, "abandoned"], ["model", false, "queued"]]);
  });

  test("a step whose next attempt is due runs again; a wait whose deadline passed has failed", () => {
    const timeline = run.emptyTimeline();
    run.addEvent(timeline, logged(1, { type: "step_failed", call_id: "0", name: "charge", attempt: 1, failure: failure("x", "y"), retry_at: at(3), took_ms: 10, input_hash: null }));
    run.addEvent(timeline, logged(2, { type: "timer_fired", call_id: "0" }));
    assert.deepEqual([timeline.calls[0].status, timeline.calls[0].ended_at], ["running", null]);
    run.addEvent(timeline, logged(3, { type: "approval_requested", call_id: "1", name: "ship", title: "Ship?", deadline: at(4), deciders: [], description: null, show: null }));
    run.addEvent(timeline, logged(4, { type: "timer_fired", call_id: "1" }));
    assert.equal(timeline.calls[1].status, "failed");
  });

  test("the result of a task says when and where it ran", () => {
    const timeline = run.emptyTimeline();
    run.addEvent(timeline, logged(1, { type: "task_scheduled", call_id: "0", kind: "tool.look", input: json(1), options: {} }));
    run.addEvent(timeline, logged(2, { type: "task_completed", call_id: "0", attempts: 2, output: json(1), ran: { started_at: at(1.5), worker: "w" } }));
    assert.deepEqual(timeline.calls[0].attempts, [{ attempt: 2, started_at: at(1.5), ended_at: at(2), failure: null, worker: "w" }]);
    assert.equal(run.shownName(timeline.calls[0]), "look");
  });

  test("a call that takes over an abandoned one continues its line, and updates have ids of their own", () => {
    const timeline = run.emptyTimeline();
    run.addEvent(timeline, logged(1, { type: "task_scheduled", call_id: "0", kind: "x", input: json(1), options: {} }));
    run.addEvent(timeline, logged(2, { type: "segment_abandoned", from: 1, to: 1, attempt: 1, withdrawn: [], divergence: {} }));
    run.addEvent(timeline, logged(3, { type: "call_adopted", call_id: "5", from: "0" }));
    run.addEvent(timeline, logged(4, { type: "task_completed", call_id: "5", attempts: 1, output: json(1) }));
    run.addEvent(timeline, logged(5, { type: "update_received", update_id: "5", name: "n", payload: json(1) }));
    assert.deepEqual(timeline.calls.map((call) => [call.call_id, call.type, call.status, call.abandoned]), [["5", "task", "completed", false], ["5", "update", "waiting", false]]);
  });

  test("the end of the run ends what was open", () => {
    const timeline = run.emptyTimeline();
    run.addEvent(timeline, logged(1, { type: "promise_created", call_id: "0", name: "p", deadline: null }));
    run.addEvent(timeline, logged(2, { type: "run_canceled", failure: failure("canceled", "") }));
    assert.deepEqual([timeline.calls[0].status, timeline.calls[0].ended_at], ["canceled", at(2)]);
  });

  test("running steps that the server no longer reports disappear", () => {
    const timeline = run.emptyTimeline();
    run.addActive(timeline, { call_id: "1", type: "step", name: "a", attempt: 1, started_at: at(1), input: null, worker: null });
    run.keepActive(timeline, []);
    assert.equal(timeline.calls.length, 0);
  });
});

describe("waterfall", () => {
  test("a queue without a worker is an open bar", () => {
    const call = { call_id: "0", type: "task", name: "x", status: "queued", queued_at: at(0), started_at: null, ended_at: null, attempts: [], first_index: 1, last_index: 1, child: null, deadline: null, input: null, abandoned: false };
    assert.deepEqual(run.barsOf(call, Date.parse(at(5))).map((bar) => [bar.kind, bar.isOpen, bar.to - bar.from]), [["queue", true, 5000]]);
  });

  test("zoom keeps the point under the pointer and stays within the bounds", () => {
    const bounds = { from: 0, to: 1000 };
    const zoomed = run.zoomView(bounds, 0.5, 0.25, bounds);
    assert.deepEqual(zoomed, { from: 125, to: 625 });
    assert.deepEqual(run.zoomView(zoomed, 100, 0.5, bounds), bounds);
    assert.deepEqual(run.panView(zoomed, 10_000, bounds), { from: 500, to: 1000 });
    assert.equal(run.zoomView({ from: 0, to: 5 }, 0.1, 0.5, bounds).to, 5);
  });

  test("bars are placed in percent and cut at the window", () => {
    assert.deepEqual(run.place({ from: 50, to: 150 }, { from: 100, to: 200 }), { left: 0, width: 50 });
    assert.equal(run.place({ from: 0, to: 50 }, { from: 100, to: 200 }), null);
  });

  test("ticks are at round times, at most as many as asked", () => {
    for (const span of [7, 900, 61_000, 3_600_000, 9e9]) {
      const marks = run.ticks({ from: 1000, to: 1000 + span }, 1000, 8);
      assert.ok(marks.length >= 1 && marks.length <= 9, `${span}: ${marks.length}`);
      assert.equal(marks[0].label, "0");
    }
  });

  test("spans have at most two units", () => {
    assert.deepEqual([0, 999, 1500, 12_340, 65_000, 3_600_000, 100_000_000].map(run.shortSpan), ["0 ms", "999 ms", "1.5 s", "12.3 s", "1 min 5 s", "1 h", "1 d 3 h"]);
  });
});

describe("log lines", () => {
  test("an unknown event of a newer server is shown by its type and fields", () => {
    const line = run.lineOf({ type: "rain_began", litres: 3 });
    assert.equal(line.title, "rain began");
    assert.match(line.detail, /litres/);
  });

  test("events name their call and their run", () => {
    const child = run.lineOf({ type: "child_started", call_id: "2", child: "a/2", kind: "book", version: null, input: json([1]), input_hash: "", on_parent_close: "cancel" });
    assert.deepEqual([child.title, child.callId, child.run], ["Child book", "2", "a/2"]);
    const model = run.lineOf({ type: "task_scheduled", call_id: "1", kind: "llm.small", input: json({}), input_hash: "", options: { queue: null } });
    assert.equal(model.title, "Model call small");
    const failed = run.lineOf({ type: "step_failed", call_id: "0", name: "charge", attempt: 2, failure: failure("declined", "no money"), retry_at: null, took_ms: 3, input_hash: null });
    assert.equal(failed.detail, "attempt 2 · declined: no money · final");
    assert.equal(failed.tone, "bad");
    assert.equal(run.callOf({ type: "update_received", update_id: "u", name: "n", payload: json(1) }), "update:u");
  });

  test("a payload of megabytes costs no more than its beginning", () => {
    const large = { list: Array.from({ length: 300_000 }, (_, index) => ({ index, text: "x".repeat(50) })) };
    const started = performance.now();
    const text = run.payloadLine(json(large), 100);
    assert.ok(performance.now() - started < 20);
    assert.equal(text.length, 100);
  });

  test("the compact log joins the events of a call and keeps signals", () => {
    const rows = run.compactRows([
      logged(0, { type: "run_started", kind: "k", generation: 0, input: json(1), mailbox: [], version: null }),
      logged(1, { type: "signal_received", name: "pay", payload: json(1), sender: null, signal_id: null }),
      logged(2, { type: "task_scheduled", call_id: "0", kind: "x", input: json(1), options: {} }),
      logged(3, { type: "run_suspended", reason: "polled" }),
      logged(4, { type: "task_attempted", call_id: "0", attempt: 1 }),
      logged(5, { type: "task_completed", call_id: "0", attempts: 1, output: json(2) }),
    ]);
    assert.deepEqual(rows.map((row) => [row.event.event.type, row.indexes]), [["run_started", [0]], ["signal_received", [1]], ["task_completed", [2, 4, 5]]]);
  });

  test("pages are requested once, and again after a failure", () => {
    const store = new run.LogStore(0);
    store.length = 1000;
    assert.deepEqual(store.missing(150, 450), [0, 1, 2]);
    assert.deepEqual(store.missing(150, 450), []);
    store.failed(1);
    assert.deepEqual(store.missing(0, 1000), [1, 3, 4]);
    store.add([logged(400, { type: "run_suspended", reason: "polled" }), logged(401, { type: "run_suspended", reason: "polled" })]);
    assert.deepEqual(store.stretch(400), { from: 400, to: 402 });
  });

  test("an address of an event is read and checked", () => {
    assert.deepEqual(run.readEventRef("2:17"), { generation: 2, index: 17 });
    for (const text of ["", "1", "a:b", "1:2:3", "-1:2", null]) assert.equal(run.readEventRef(text), null);
  });
});

describe("actions", () => {
  const action = (verb) => run.ACTIONS.find((one) => one.verb === verb);
  const verbs = (status, agent = false) => run.actionsFor({ status, external: false }, agent).map((one) => one.verb);

  test("the status decides which apply", () => {
    assert.deepEqual(verbs("waiting"), ["signal", "update", "query", "pause", "fork", "reset", "cancel", "terminate"]);
    assert.ok(verbs("waiting", true).includes("message"));
    assert.ok(verbs("paused").includes("resume") && !verbs("paused").includes("pause"));
    assert.deepEqual(verbs("failed"), ["retry", "fork", "reset", "delete"]);
    assert.deepEqual(verbs("completed"), ["fork", "reset", "delete"]);
    assert.deepEqual(run.actionsFor({ status: "running", external: true }, false), []);
  });

  test("what cannot be undone is marked", () => {
    assert.deepEqual(run.ACTIONS.filter((one) => one.isFinal).map((one) => one.verb), ["reset", "cancel", "terminate", "delete"]);
  });

  test("a signal has one id, and lines that a shell reads", () => {
    const values = { name: "pay it's", payload: '{"cents": 4200}' };
    const request = run.requestOf(action("signal"), "order/4 2", values, "once-1");
    assert.deepEqual(request.body, { name: "pay it's", payload: { cents: 4200 }, signal_id: "once-1" });
    const lines = run.linesOf(action("signal"), "order/4 2", values, "once-1");
    assert.equal(lines.cli, `onward run signal 'order/4 2' 'pay it'\\''s' '{"cents": 4200}' --signal-id once-1`);
    assert.match(lines.curl, /^curl http:\/\/localhost:7400\/v1\/runs\/order%2F4%202\/signals -H 'content-type: application\/json' -d '/);
  });

  test("wrong JSON and missing names are errors of their field", () => {
    assert.throws(() => run.requestOf(action("signal"), "a", { name: "x", payload: "{" }, "o"), (error) => error.field === "payload");
    assert.throws(() => run.requestOf(action("signal"), "a", { name: " " }, "o"), (error) => error.field === "name");
    assert.throws(() => run.requestOf(action("fork"), "a", { from: "x" }, "o"), (error) => error.field === "from");
    assert.equal(run.linesOf(action("signal"), "a", {}, "o").curl, "");
  });

  test("fork, reset, retry, resume and delete", () => {
    assert.deepEqual(run.requestOf(action("fork"), "a", { from: "3", signals: "drop", id: "b" }, "o").body, { from: 3, id: "b", signals: "drop" });
    assert.equal(run.cliOf(action("fork"), "a", { from: "3", signals: "drop", id: "b" }, "o"), "onward run fork a --from 3 --new-id b --signals drop");
    assert.equal(run.cliOf(action("reset"), "a", { to: "3", include_outcome_unknown: "true", reason: "new code" }, "o"), "onward run reset a --to 3 --reason 'new code' --include-outcome-unknown");
    assert.deepEqual(run.requestOf(action("retry"), "a", {}, "o").body, { request_id: "o" });
    assert.deepEqual(run.requestOf(action("resume"), "a", { tokens: "400000" }, "o").body, { budget: { tokens: 400000 } });
    assert.equal(run.cliOf(action("resume"), "a", { tokens: "400000", cost: "2.5" }, "o"), "onward run resume a --budget tokens=400000 --budget cost=2.5");
    assert.deepEqual(run.requestOf(action("delete"), "a", { reason: "old" }, "o"), { method: "DELETE", path: "/v1/runs/{id}", options: { path: { id: "a" }, query: { reason: "old" } } });
    assert.equal(run.curlOf(run.requestOf(action("delete"), "a", { reason: "old" }, "o")), "curl -X DELETE 'http://localhost:7400/v1/runs/a?reason=old'");
  });
});

describe("word differences", () => {
  test("marks what differs and keeps what is equal", () => {
    const { left, right } = run.diffWords("step charge at 3", "step refund at 3");
    assert.deepEqual(left, [{ text: "step ", isSame: true }, { text: "charge", isSame: false }, { text: " at 3", isSame: true }]);
    assert.deepEqual(right.find((piece) => !piece.isSame), { text: "refund", isSame: false });
    for (const [a, b] of [["", "x"], ["a b c d", "c d a b"], ["x".repeat(5), "y ".repeat(5000)]]) {
      const diff = run.diffWords(a, b);
      assert.equal(diff.left.map((piece) => piece.text).join(""), a);
      assert.equal(diff.right.map((piece) => piece.text).join(""), b);
    }
  });
});
