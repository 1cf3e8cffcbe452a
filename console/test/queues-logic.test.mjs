// The words and the form of queues, without a browser.
import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./bundle.mjs";

const { Problem, changesOf, commandOf, enteredOf, rebase, refusedField, settingsOf, settingsText } = await load("pages/queues/words", "pages/queues/form", "api/errors");

const STORED = {
  concurrency_max: 20, key_concurrency_max: 2, rate: { starts_max: 100, period_ms: 60_000 }, key_rate: { starts_max: 5, period_ms: 90_000 },
  depth_max: 1000, paused: true, weights: [{ key: "tenant-7", weight: 3 }, { key: "a = b", weight: 2 }],
};

test("stored settings come back from the form as they were, with a pause that the form does not have", () => {
  for (const stored of [STORED, {}, { paused: true }, { depth_max: 0 }, { rate: STORED.rate }]) {
    assert.deepEqual(settingsOf(enteredOf(stored), stored), { settings: stored, errors: {} });
    assert.deepEqual(changesOf(stored, stored), []);
  }
});

test("what is no value is an error of its field", () => {
  const errorsOf = (patch) => settingsOf({ ...enteredOf({}), ...patch }, {}).errors;
  assert.deepEqual(errorsOf({}), {});
  assert.deepEqual(errorsOf({ concurrency: "1,000", weights: "\n a = 3 \n" }), {});
  assert.deepEqual(Object.keys(errorsOf({ concurrency: "many", keyConcurrency: "1.5", depth: "-1" })), ["concurrency", "keyConcurrency", "depth"]);
  assert.deepEqual(Object.keys(errorsOf({ rateStarts: "5" })), ["ratePeriod"]);
  assert.deepEqual(Object.keys(errorsOf({ ratePeriod: "1m" })), ["rateStarts"]);
  assert.match(errorsOf({ keyRateStarts: "5", keyRatePeriod: "soon" }).keyRatePeriod, /not a duration/);
  assert.match(errorsOf({ weights: "a = 3\nb" }).weights, /^b: /);
  assert.match(errorsOf({ weights: "a = 3\na = 4" }).weights, /a is there twice/);
  assert.match(errorsOf({ weights: "= 4" }).weights, /not a key and its weight/);
});

test("a change is described setting by setting", () => {
  const after = { ...STORED, concurrency_max: 5, rate: undefined, weights: [{ key: "tenant-7", weight: 4 }] };
  assert.deepEqual(changesOf(STORED, after), [
    { label: "Running tasks", from: "20", to: "5" },
    { label: "Rate", from: "100 per 1m", to: "no limit" },
    { label: "Weights", from: "tenant-7 3, a = b 2", to: "tenant-7 4" },
  ]);
  const many = (last) => ({ weights: Array.from({ length: 9 }, (_, n) => ({ key: `k${n}`, weight: n === 8 ? last : 2 })) });
  assert.deepEqual(changesOf(many(2), many(3)).map(({ label }) => label), ["Weights"], "also a weight that is not written out");
  assert.equal(settingsText({ depth_max: 0 })[0].text, "0: drained");
});

test("the command makes the same change", () => {
  assert.equal(commandOf("q", {}, STORED), "onward queue set q --concurrency 20 --key-concurrency 2 --rate 100/1m --key-rate 5/1m30s --depth 1000 --weight tenant-7=3 --weight 'a = b=2'");
  assert.equal(commandOf("q", STORED, { ...STORED, rate: undefined, depth_max: 0, weights: [{ key: "tenant-7", weight: 4 }] }), "onward queue set q --rate none --depth 0 --weight 'a = b=1' --weight tenant-7=4");
});

test("what another person stores meanwhile is taken over, except where something was entered", () => {
  const entered = { ...enteredOf(STORED), concurrency: "7" };
  const fresh = { ...STORED, concurrency_max: 30, key_concurrency_max: 9, rate: undefined };
  const { settings } = settingsOf(rebase(entered, STORED, fresh), fresh);
  const { rate: _, ...expected } = { ...STORED, concurrency_max: 7, key_concurrency_max: 9 };
  assert.deepEqual(settings, expected);
});

test("a refusal is shown at the field that it names", () => {
  const field = (detail, code = "queue_invalid") => refusedField(new Problem(400, code, detail, null));
  assert.equal(field("invalid settings of the queue: `concurrency_max` is 0"), "concurrency");
  assert.equal(field("invalid settings of the queue: `key_concurrency_max` is 0"), "keyConcurrency");
  assert.equal(field("invalid settings of the queue: `rate.starts_max` is 0"), "rateStarts");
  assert.equal(field("invalid settings of the queue: `rate.period_ms` is 0"), "ratePeriod");
  assert.equal(field("invalid settings of the queue: `key_rate.starts_max` is 0"), "keyRateStarts");
  assert.equal(field("invalid settings of the queue: `key_rate.period_ms` is 0"), "keyRatePeriod");
  assert.equal(field("invalid settings of the queue: `weights[1].weight` is 0"), "weights");
  assert.equal(field("something else"), null);
  assert.equal(field("`concurrency_max`", "not_allowed"), null);
});
