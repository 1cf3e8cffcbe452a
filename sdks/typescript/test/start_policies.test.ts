/** Start policies: what callers send, and the runs that they get. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { OnwardError, RunFailed, workflow, type StartPolicy } from "onward";
import { inMemory } from "./kit.js";

const report = workflow("report", async (_ctx, input: unknown) => ({ of: input }));
const slow = workflow("slow", async (ctx, _input: number) => ctx.signal<number>("end").recv());
const onward = await inMemory({ workflows: [report, slow] });

test("a singleton answers with the open run, or replaces it", async () => {
  const first = await onward.startWithPolicy(slow, 1, { singleton: { key: "u7" } });
  assert.deepEqual([first.outcome, first.dueAt, first.repeated], ["started", undefined, false]);
  const second = await onward.startWithPolicy(slow, 2, { singleton: { key: "u7" } });
  assert.deepEqual([second.outcome, second.run.id], ["skipped", first.run.id]);
  const third = await onward.startWithPolicy(slow, 3, { singleton: { key: "u7", onConflict: "cancel" } });
  assert.deepEqual([third.outcome, third.dueAt], ["held", undefined]);
  await assert.rejects(first.run.result(), (error) => error instanceof RunFailed && error.failure.code === "canceled");
  const result = third.run.result();
  for (;;) {
    const sent = await third.run.signal("end", 9).then(() => true, (error: unknown) => {
      assert(error instanceof OnwardError && error.code === "run_not_found", String(error));
      return false;
    });
    if (sent) break;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  assert.equal(await result, 9);
});

test("a debounced run has the last input, and a repeat counts once", async () => {
  const policy: StartPolicy = { debounce: { key: "k", window: { milliseconds: 200 }, maxWait: { seconds: 5 } } };
  const first = await onward.startWithPolicy(report, "one", policy, { requestId: "q" });
  const again = await onward.startWithPolicy(report, "one", policy, { requestId: "q" });
  assert.deepEqual([again.repeated, again.run.id, again.dueAt], [true, first.run.id, first.dueAt]);
  assert(first.dueAt instanceof Date);
  const second = await onward.startWithPolicy(report, "two", policy);
  assert.deepEqual([second.outcome, second.run.id], ["held", first.run.id]);
  assert.deepEqual(await second.run.result(), { of: "two" });
});

test("a batch has the list of its inputs", async () => {
  const policy: StartPolicy = { batch: { key: "k", sizeMax: 2, window: { hours: 1 } } };
  const first = await onward.startWithPolicy(report, { n: 1 }, policy, { attributes: { team: "ops" } });
  const second = await onward.startWithPolicy(report, { n: 2 }, policy, { attributes: { team: "ops" } });
  assert.deepEqual([first.outcome, second.outcome, second.run.id], ["held", "started", first.run.id]);
  assert.deepEqual(await first.run.result(), { of: [{ n: 1 }, { n: 2 }] });
});

test("a policy outside of its limits is refused", async () => {
  const policies: StartPolicy[] = [{ singleton: { key: "" } }, { batch: { key: "k", sizeMax: 0, window: { hours: 1 } } }];
  for (const policy of policies) {
    const refused = onward.startWithPolicy(report, 1, policy);
    await assert.rejects(refused, (error) => error instanceof OnwardError && error.code === "start_policy_invalid");
  }
});
