/** Schedules: what callers define, read and do. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { OnwardError, workflow } from "onward";
import { inMemory } from "./kit.js";

const report = workflow("report", async (_ctx, input: { day: string }) => `report of ${input.day}`);
const slow = workflow("slow", async (ctx) => ctx.signal<string>("end").recv());
const onward = await inMemory({ workflows: [report, slow] });

/** Returns the code with which a request is refused. */
async function refusal(request: Promise<unknown>): Promise<string> {
  const error: unknown = await request.then(() => assert.fail("it was accepted"), (error: unknown) => error);
  assert(error instanceof OnwardError, String(error));
  return error.code;
}

test("a backfill starts the runs of past slots, with rendered inputs", async () => {
  const daily = await onward.putSchedule("daily", report, {
    cron: "0 2 * * *", zone: "Europe/Berlin", exceptDates: "2026-03-29", input: { day: "{{ slot.date }}" }, template: true,
  });
  await daily.backfill(new Date("2026-03-28T00:00:00Z"), new Date("2026-03-31T00:00:00Z"), { id: "march" });
  assert.equal(await daily.runAt(new Date("2026-03-28T01:00:00Z")).result(), "report of 2026-03-28");
  assert.equal(await daily.runAt(new Date("2026-03-30T00:00:00Z")).result(), "report of 2026-03-30");
  let view = await daily.read();
  while (view.totals.completed < 2) view = await daily.read();
  assert.deepEqual([view.totals.started, view.kind, view.input], [2, "report", { day: "{{ slot.date }}" }]);
  const lines = view.history.map(({ run, cause, outcome, count }) => [run, cause, outcome, count]);
  assert.deepEqual(lines[0], ["daily@2026-03-28T01:00:00Z", "backfill", "completed", 1]);
  const [first] = await daily.nextSlots(3, { after: new Date("2026-10-24T12:00:00Z") });
  assert.equal(first?.slot.toISOString(), "2026-10-25T00:00:00.000Z");
  assert.equal(view.next.length, 5);
});

test("a trigger starts one run for each id, and overlap decides about further ones", async () => {
  const handle = await onward.putSchedule("slow", slow, { every: { days: 1 }, offset: { hours: 1 }, attributes: { team: "ops" } });
  assert.equal((await handle.pause("holidays")).paused, "holidays");
  const one = await handle.trigger({ id: "one" });
  assert.deepEqual([one.outcome, one.run.id], ["started", "slow@now:one"]);
  assert.equal((await handle.trigger({ id: "two" })).outcome, "skipped");
  const three = await handle.trigger({ id: "three", overlap: "buffer_one" });
  assert.equal(three.outcome, "buffered");
  const result = three.run.result();
  await until(() => one.run.signal("end", "first"));
  assert.equal(await one.run.result(), "first");
  await until(() => three.run.signal("end", "third"));
  assert.equal(await result, "third");
  const view = await handle.resume();
  assert.deepEqual([view.paused, view.overlap, view.revision], [undefined, "skip", 0]);
  assert(view.history.some(({ outcome, reason }) => outcome === "skipped" && reason === "overlap"), JSON.stringify(view.history));
});

/** Repeats a request until the run that it is about exists. */
async function until(request: () => Promise<unknown>): Promise<void> {
  for (;;) {
    const error: unknown = await request().then(() => undefined, (error: unknown) => error);
    if (error === undefined) return;
    if (!(error instanceof OnwardError) || error.code !== "run_not_found") throw error;
  }
}

test("an equal definition changes nothing, another one replaces it", async () => {
  const put = (minutes: number) => onward.putSchedule("often", report, { every: { minutes }, input: { day: "x" }, jitter: { seconds: 5 } });
  const first = await (await put(10)).read();
  const equal = await (await put(10)).read();
  const other = await (await put(20)).read();
  assert.deepEqual([equal.revision, other.revision], [first.revision, first.revision + 1]);
  assert.deepEqual(other.spec, { every: [{ every_ms: 1_200_000 }], jitter_ms: 5_000 });
  const ids: string[] = [];
  for await (const { id, history } of onward.schedules()) {
    ids.push(id);
    assert.deepEqual(history, []);
  }
  assert(ids.includes("often") && ids.includes("slow"), ids.join());
  await onward.schedule("often").delete();
  assert.equal(await refusal(onward.schedule("often").read()), "schedule_not_found");
});

test("what cannot work is refused", async () => {
  assert.equal(await refusal(onward.putSchedule("s", report, { cron: "61 * * * *" })), "schedule_invalid");
  assert.equal(await refusal(onward.putSchedule("s", report, {})), "schedule_invalid");
  assert.equal(await refusal(onward.putSchedule("s", "unknown", { every: { hours: 1 } })), "kind_not_found");
  assert.equal(await refusal(onward.putSchedule("s", report, { every: { hours: 1 }, corn: "x" } as object)), "value_invalid");
  await assert.rejects(onward.putSchedule("s", report, { at: new Date(Number.NaN) }), RangeError);
  const slots = await onward.previewSlots({ at: [new Date("2198-06-01T12:00:00Z")], spec: { cron: ["0 0 1 1 *"] } }, 1000);
  assert(slots.some(({ slot }) => slot.getTime() === Date.parse("2198-06-01T12:00:00Z")));
});
