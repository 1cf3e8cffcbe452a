// Owns logs written by hand: a worker that commits given events, thousands at a time, so that large runs are cheap to make.
import assert from "node:assert/strict";

const AT_ONCE = 2000;

/** Takes the pending run of a kind, and calls `onRun(head, reply)`; `reply(frame, request)` returns the outcome of a request. */
export async function takeRun(server, kind, onRun) {
  const post = async (frames, wait = 0) => {
    const response = await fetch(`${server.url}/v1/workers/w-${kind}/frames?wait_ms=${wait}`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ frames }) });
    if (!response.ok) throw new Error(await response.text());
    return (await response.json()).frames;
  };
  await post([{ hello: { protocol: 1, worker: `w-${kind}`, kinds: [{ kind }], task_kinds: [], runs_max: 2, sdk: "console tests", connection: 1 } }]);
  let frames = await post([{ credit: { runs: 1, tasks: 0 } }], 2000);
  while (!frames.some((frame) => frame.run)) frames = await post([{ heartbeat: { request: 0 } }], 2000);
  const { head } = frames.find((frame) => frame.run).run;
  const reply = async (frame, request) => {
    let answers = await post([frame]);
    while (!answers.some((answer) => answer.reply?.request === request)) answers = await post([{ heartbeat: { request: 0 } }], 1000);
    return answers.find((answer) => answer.reply?.request === request).reply.outcome;
  };
  await onRun(head, reply);
  await post([{ leave: { request: 99_999 } }]);
}

/** Commits `count` events, which `make` returns by their number. */
export async function commitEvents(head, reply, count, make) {
  let horizon = 0;
  for (let n = 0; n * AT_ONCE < count; n++) {
    const events = Array.from({ length: Math.min(AT_ONCE, count - n * AT_ONCE) }, (_, at) => make(n * AT_ONCE + at));
    const commit = { key: head.key, generation: head.generation, epoch: head.epoch, n: head.next_commit + n, commit_id: String(n + 1), horizon, events, waits: false };
    const outcome = await reply({ commit: { request: n + 1, commit } }, n + 1);
    assert.ok(outcome.committed, JSON.stringify(outcome));
    horizon = outcome.committed.index + events.length - 1;
  }
}
