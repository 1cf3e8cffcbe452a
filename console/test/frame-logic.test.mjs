// The logic of the frame without a browser: exact JSON, frames of streams, forms from schemas, command lines, money.
import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./bundle.mjs";

const { parseJson, printJson, ExactNumber } = await load("api/json.ts");
const { FrameParser } = await load("api/sse.ts");
const { resolve, shapeOf, initialOf } = await load("ui/schema.ts");
const { shellWord, cliLine, curlLine } = await load("api/commands.ts");
const { durationText, relativeText, moneyText, countText } = await load("ui/format.ts");
const { addMoney } = await load("pages/operations/money.ts");
const { readFilter, bulkFilter, hasText, matches } = await load("pages/runs/filter.ts");

// Node 20 has no source text in revivers, which browsers have; the test is of what they do.
const hasSource = (() => {
  let found = false;
  JSON.parse("1", (_, value, context) => ((found = context?.source === "1"), value));
  return found;
})();

test("JSON is printed as it was read, with numbers that a double cannot hold", { skip: !hasSource }, () => {
  const text = '{"a":12345678901234567890,"b":[1,2.50,1e400],"c":0.1}';
  const value = parseJson(text);
  assert.ok(value.a instanceof ExactNumber);
  assert.equal(printJson(value), '{"a":12345678901234567890,"b":[1,2.5,1e400],"c":0.1}');
});

test("JSON without long numbers is read and printed like JSON.stringify", () => {
  const value = { a: [1, "x\n", null, true], b: {}, c: [] };
  assert.deepEqual(parseJson(JSON.stringify(value)), value);
  assert.equal(printJson(value), JSON.stringify(value));
  assert.equal(printJson(value, 2), JSON.stringify(value, null, 2));
});

test("frames are the same however the stream is cut", () => {
  const text = ': hi\nid: 0:1\nevent: event\ndata: {"a":1}\n\ndata: x\r\ndata: y\r\n\r\nevent: end\n\n';
  const expected = [
    { event: "event", data: '{"a":1}', id: "0:1" },
    { event: "message", data: "x\ny", id: null },
    { event: "end", data: "", id: null },
  ];
  for (let size = 1; size <= text.length; size++) {
    const parser = new FrameParser();
    const frames = [];
    for (let at = 0; at < text.length; at += size) frames.push(...parser.push(text.slice(at, at + size)));
    assert.deepEqual(frames, expected, `pieces of ${size}`);
  }
});

test("schemas with references, options and endless recursion have forms", () => {
  const schema = { $ref: "#/$defs/Node", $defs: { Node: { type: "object", required: ["name", "next"], properties: { name: { type: "string" }, next: { anyOf: [{ $ref: "#/$defs/Node" }, { type: "null" }] }, size: { type: ["integer", "null"], default: 3 } } } } };
  const { schema: node } = resolve(schema, schema);
  const shape = shapeOf(node);
  assert.equal(shape.type, "object");
  assert.deepEqual(shape.fields.map((field) => [field.name, field.required]), [["name", true], ["next", true], ["size", false]]);
  assert.equal(resolve(node.properties.next, schema).nullable, true);
  assert.equal(resolve(node.properties.size, schema).nullable, true);
  assert.equal(initialOf(schema, schema).size, 3);
  assert.deepEqual(shapeOf({ oneOf: [{ const: 1, title: "one" }, { const: 2 }] }).options, [{ value: 1, label: "one" }, { value: 2, label: "2" }]);
  assert.equal(shapeOf({ oneOf: [{ type: "object" }, { type: "string" }] }).type, "json");
});

test("command lines are quoted for a shell", () => {
  assert.equal(shellWord("a/b-1"), "a/b-1");
  assert.equal(shellWord("it's"), `'it'\\''s'`);
  assert.equal(shellWord("$(rm -rf /)"), "'$(rm -rf /)'");
  assert.equal(cliLine("run", "get", "a b", null, false), "onward run get 'a b'");
  assert.equal(curlLine("POST", "/v1/runs/{id}/cancel", { path: { id: "a/b" } }, { reason: "x" }), `curl http://localhost:7400/v1/runs/a%2Fb/cancel -H 'content-type: application/json' -d '{"reason":"x"}'`);
  assert.equal(curlLine("DELETE", "/v1/runs/{id}", { path: { id: "a" } }), "curl -X DELETE http://localhost:7400/v1/runs/a");
});

test("times, money and counts are written for people", () => {
  assert.deepEqual([0, 950, 1234, 59_999, 61_000, 3_600_000, 90_061_000].map((ms) => durationText(ms)), ["0 ms", "950 ms", "1.2 s", "1 min", "1 min 1 s", "1 h", "1 d 1 h"]);
  assert.deepEqual([relativeText(0, 500), relativeText(0, 61_000), relativeText(7_300_000, 0)], ["just now", "1 min ago", "in 2 h"]);
  assert.deepEqual(["0", "2.5", "0.0125", "0.0031", "0.000031", "1234.5678"].map(moneyText), ["$0.00", "$2.50", "$0.0125", "$0.0031", "$0.000031", "$1,234.57"]);
  assert.deepEqual([countText(1, "run"), countText(12_345, "run")], ["1 run", "12,345 runs"]);
  assert.deepEqual([addMoney("0.1", "0.2"), addMoney("1.25", "0.000031"), addMoney("10", "90")], ["0.3", "1.250031", "100"]);
});

test("a filter is read from the address, and bulk requests get typed attributes", () => {
  const filter = readFilter(new URLSearchParams("kind=order&status=failed&status=nonsense&attr.n=42&since=2y&q=x&from=never"));
  assert.deepEqual(filter, { kind: "order", statuses: ["failed"], attributes: [{ name: "n", value: "42" }], since: "", from: "", until: "", text: "x" });
  const run = { id: "a", kind: "order", status: "failed", created_at: "2026-01-01T00:00:00Z", attributes: { n: 42 } };
  assert.deepEqual(bulkFilter(filter, [run], 0), { kind: "order", status: ["failed"], attributes: { n: 42 }, created_from: undefined, created_until: undefined });
  assert.equal(matches(filter, run, 0), true);
  assert.equal(matches(filter, { ...run, attributes: { n: 43 } }, 0), false);
  assert.deepEqual([hasText(run, "N=4"), hasText(run, "ORD"), hasText(run, "zzz")], [true, true, false]);
});

test("characters that hide or turn others around are written out", async () => {
  const { plain } = await load("ui/plain.ts");
  assert.equal(plain("\u202Etxt.exe\u202C\u0007 ok\n\t"), "\\u{202e}txt.exe\\u{202c}\\u{7} ok\n\t");
  assert.equal(plain("👩‍👩‍👧 naïve שלום"), "👩‍👩‍👧 naïve שלום");
});
