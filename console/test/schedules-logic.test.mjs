// The words, the form and the calendar of schedules, without a browser.
import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./bundle.mjs";

process.env.TZ = "Europe/Berlin";
const { Problem, commandOf, enteredOf, heatOf, isEditable, inputOf, lastRunOf, putOf, refusalText, refusedField, runsKey, scheduleOfRun, slotDays, spanOf, spanText, timesOf, zonedText } = await load(
  "pages/schedules/words", "pages/schedules/form", "pages/schedules/slotDays", "api/errors",
);

const STORED = {
  schedule: "nightly", kind: "report", input: { json: { size: 3 } }, template: true, version: "v2",
  attributes: { team: "data", express: true, due: { time: "2026-11-20T00:00:00Z" } }, deadline_ms: 5_400_000,
  budget: { cost: "2.50", tokens: null },
  spec: {
    cron: ["0 9 * * MON-FRI", "@daily"], every: [{ every_ms: 900_000 }, { every_ms: 3_600_000, offset_ms: 600_500 }], at: ["2026-12-31T23:00:00Z"],
    calendars: [{ hour: "8", weekday: "FRIL" }], except: [{ dates: ["2026-12-24/2027-01-01"] }], time_zone: "Europe/Berlin", end_at: "2027-06-01T00:00:00Z", jitter_ms: 1500,
  },
  options: { overlap: "buffer_all", catch_up_ms: 90_000, pause_on_failure: true, buffer_max: 7 },
  revision: 1, running: [], totals: { started: 1, completed: 1, failed: 0, skipped: 0, missed: 0 },
};

test("a stored definition comes back from the form as it was", () => {
  const { body, errors } = putOf(enteredOf(STORED), inputOf(STORED), STORED);
  assert.deepEqual(errors, {});
  const { schedule: _s, revision: _r, running: _n, totals: _t, input: _i, ...rest } = STORED;
  assert.deepEqual(body, { ...rest, input: { size: 3 } });
});

test("an empty form is the smallest definition", () => {
  const { body, errors } = putOf({ ...enteredOf(null), kind: "report", cron: " 0 9 * * * \n\n" }, undefined, null);
  assert.deepEqual(errors, {});
  assert.deepEqual(body, { kind: "report", spec: { cron: ["0 9 * * *"] }, options: { overlap: "skip" } });
});

test("text that is no value is an error of its field", () => {
  const wrong = { ...enteredOf(null), every: "15m\nsoon", more: "[1]", catchUp: "a day", bufferMax: "-1", deadline: "1 fortnight", attributes: "{" };
  const { errors } = putOf(wrong, undefined, null);
  assert.deepEqual(Object.keys(errors).sort(), ["attributes", "bufferMax", "catchUp", "deadline", "every", "more"]);
  assert.match(errors.every, /^soon: /);
});

test("an input that is not JSON is not edited: the form would lose it", () => {
  assert.equal(isEditable(STORED), true);
  assert.equal(isEditable({ ...STORED, input: { base64: "AAAA", type: "application/octet-stream" } }), false);
  assert.equal(isEditable({ ...STORED, input: { json: null } }), true);
});

test("durations are read and written without loss", () => {
  for (const ms of [1, 999, 1000, 61_000, 3_600_000, 86_399_999, 90_061_001]) assert.equal(spanOf(spanText(ms)), ms);
  assert.equal(spanText(5_400_000), "1h30m");
  assert.equal(spanOf("1h 30min"), 5_400_000);
  for (const text of ["", "5", "m5", "1.5h", "-1m", "1y"]) assert.equal(spanOf(text), null, text);
});

test("a refusal belongs to the field that it names", () => {
  const refused = (detail, code = "schedule_invalid") => refusedField(new Problem(400, code, detail, null));
  assert.equal(refused("spec.cron[1], character 3: 61 is out of range"), "cron");
  assert.equal(refused("spec.time_zone: unknown"), "zone");
  assert.equal(refused("spec.calendars[0].hour: no"), "more");
  assert.equal(refused("options.catch_up_ms: too short"), "catchUp");
  assert.equal(refused("spec: no times"), null);
  assert.equal(refused("spec.cron[0]: as text", "request_invalid"), null);
  assert.equal(refused("no kind", "kind_not_found"), "kind");
  assert.equal(refusalText(new Problem(400, "schedule_invalid", "spec.cron[0]: no", "use 5 fields")), "spec.cron[0]: no. Use 5 fields.");
});

test("the command has each part of a definition, and is absent if it needs a file", () => {
  const body = { kind: "report", input: { a: 1 }, spec: { cron: ["0 9 * * *"], every: [{ every_ms: 900_000, offset_ms: 60_000 }], time_zone: "Europe/Berlin" }, options: { overlap: "allow_all", pause_on_failure: true } };
  assert.equal(commandOf("it's", body), `onward schedule create 'it'\\''s' --kind report --input '{"a":1}' --cron '0 9 * * *' --every 15m --offset 1m --zone Europe/Berlin --overlap allow_all --pause-on-failure`);
  assert.equal(commandOf("a", { ...body, spec: { ...body.spec, except: [{ month: "12" }] } }), null);
  assert.equal(commandOf("a", { ...body, budget: { cost: "1" } }), null);
});

test("times are words, and a time has the zone of its schedule, also when the clock changes", () => {
  assert.deepEqual(timesOf(STORED.spec), ["0 9 * * MON-FRI", "@daily", "every 15m", "every 1h + 10m500ms", "at 2026-12-31T23:00:00Z", "1 calendar", "1 exception"]);
  assert.equal(zonedText(Date.parse("2026-10-25T00:30:00Z"), "Europe/Berlin"), "2026-10-25 02:30:00 Europe/Berlin");
  assert.equal(zonedText(Date.parse("2026-10-25T01:30:00Z"), "Europe/Berlin"), "2026-10-25 02:30:00 Europe/Berlin");
  assert.equal(zonedText(0, "<img src=x>"), "<img src=x>");
});

test("slots are grouped by the viewer's day and counted by its hours", () => {
  const slots = ["2026-11-19T22:30:00Z", "2026-11-19T22:45:00Z", "2026-11-19T23:00:00Z"].map((slot) => ({ slot, due_at: slot }));
  const days = slotDays(slots);
  assert.deepEqual(days.map(({ day, slots: ofDay }) => [day, ofDay.length]), [["2026-11-19", 2], ["2026-11-20", 1]]);
  assert.equal(days[0].hours[23], 2);
  assert.equal(days[1].hours[0], 1);
  assert.deepEqual([0, 1, 3, 20, 60].map(heatOf), [0, 1, 2, 3, 4]);
});

test("runs name their schedule, and the last run is the newest one", () => {
  assert.equal(scheduleOfRun("nightly@2026-11-20T02:00:00Z"), "nightly");
  assert.equal(scheduleOfRun("nightly@now:console-1"), "nightly");
  assert.equal(scheduleOfRun("order-1"), null);
  const history = [{ at: "1", started: { run: "a" } }, { at: "2", started: { run: "b" } }, { at: "3", skipped: {} }];
  assert.equal(lastRunOf(history).started.run, "b");
  assert.equal(lastRunOf([]), null);
  assert.notEqual(runsKey(STORED), runsKey({ ...STORED, running: [{ firing: { number: 4 } }] }));
});
