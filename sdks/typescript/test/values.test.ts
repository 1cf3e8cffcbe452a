/** Values that are not JSON: a clear error with the path, wherever they come from. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { runInNewContext } from "node:vm";
import { ValueRefused, task, workflow } from "onward";
import { failureOf, inMemory } from "./kit.js";

const cycle: { name: string; self?: unknown } = { name: "x" };
cycle.self = [cycle];

const nested = (depth: number): unknown => (depth === 0 ? 1 : [nested(depth - 1)]);

/** Values, the path, and a part of the reason. */
const refused: [string, unknown, string, RegExp][] = [
  ["NaN", { a: [1, NaN] }, "$.a[1]", /NaN and infinities have no JSON/],
  ["infinity", -Infinity, "$", /NaN and infinities/],
  ["BigInt", { "a b": 5n }, '$["a b"]', /a BigInt has no JSON; use a string/],
  ["date", { at: new Date(0) }, "$.at", /a date has no JSON; use an ISO 8601 string/],
  ["bytes", [new Uint8Array(2)], "$[0]", /bytes have no JSON; use base64 text/],
  ["buffer", Buffer.from("x"), "$", /bytes/],
  ["array buffer", { b: new ArrayBuffer(1) }, "$.b", /bytes/],
  ["map", { m: new Map() }, "$.m", /a Map has no JSON/],
  ["set", new Set([1]), "$", /a Set has no JSON/],
  ["error", { e: new TypeError("x") }, "$.e", /an? Error has no JSON/],
  ["promise", [Promise.resolve()], "$[0]", /a Promise has no JSON/],
  ["function", { f: () => 1 }, "$.f", /a function has no JSON/],
  ["symbol", { s: Symbol("s") }, "$.s", /a symbol has no JSON/],
  ["cycle", cycle, "$.self[0]", /the value contains itself/],
  ["lone surrogate", { t: "\ud800" }, "$.t", /a lone surrogate is not text/],
  ["lone surrogate in a key", { "\udc00": 1 }, "$", /a lone surrogate in a key/],
  ["boxed NaN", [new Number(NaN)], "$[0]", /NaN and infinities/],
  ["boxed BigInt", { n: Object(1n) as unknown }, "$.n", /a BigInt has no JSON/],
  ["map of another realm", { m: runInNewContext("new Map()") as unknown }, "$.m", /a Map has no JSON/],
  ["date of another realm", [runInNewContext("new Date(0)")], "$[0]", /a date has no JSON/],
  ["depth", nested(150), "$", /nested more than 100 levels deep/],
];

const values: Record<string, unknown> = Object.fromEntries(refused.map(([name, value]) => [name, value]));

const given = task("given", (name: string) => values[name]);
const any = task("any", (value: unknown) => value);

const result = workflow("result", (_, name: string) => values[name]);
const step = workflow("step", (ctx, name: string) => ctx.step("makes", () => values[name]));
const input = workflow("input", (ctx, name: string) => ctx.task(any, values[name]));
const made = workflow("made", (ctx, name: string) => ctx.task(given, name, { retry: 5 }));
const caught = workflow("caught", async (ctx, name: string) => {
  try {
    ctx.state.set("s", values[name]);
  } catch (error) {
    return (error as Error).message;
  }
});

const echo = workflow("echo", async (ctx, value: unknown) => [value, await ctx.step("echo", () => value), await ctx.task(any, value)]);

const withDefault = task("default", ({ n = 7 }: { n?: number } = {}) => n);
const defaults = workflow("defaults", async (ctx, { word = "none" }: { word?: string } = {}) => {
  ctx.query("word", (form = "plain") => `${word} ${form}`);
  return [word, await ctx.task(withDefault.kind), await ctx.task(withDefault, { n: 1 }), await ctx.signal<string>("go").recv()];
});

const onward = await inMemory({ workflows: [result, step, input, made, caught, echo, defaults], tasks: [given, any, withDefault] });

for (const [name, value, path, reason] of refused) {
  test(`${name} is refused, with its path`, async () => {
    await assert.rejects(onward.start(echo, value), (error: ValueRefused) => {
      assert(error instanceof ValueRefused);
      assert(error.path.startsWith(path), error.path);
      assert.match(error.message, reason);
      assert(error.message.startsWith("the input of workflow `echo` is not JSON at $"), error.message);
      return true;
    });
    for (const [kind, what] of [
      [result, "the result of workflow `result`"],
      [step, "the result of step `makes`"],
      [input, "the input of task `any`"],
      [made, "the result of task `given`"],
    ] as const) {
      const failure = await failureOf(onward.start(kind, name));
      assert(failure.message.includes(what) && failure.message.includes(` at ${path}`), failure.message);
      assert.match(failure.message, reason);
      assert.deepEqual([failure.name, failure.code, failure.retryable], ["ValueRefused", "value_invalid", false]);
    }
    assert.match((await (await onward.start(caught, name)).result()) ?? "", reason);
  });
}

test("arguments that are left out have the defaults of their parameters", async () => {
  const run = await onward.start(defaults.kind);
  await run.waitForStatus("waiting");
  assert.equal(await run.query("word"), "none plain");
  assert.equal(await run.query("word", "long"), "none long");
  await run.signal("go", "on");
  assert.deepEqual(await run.result(), ["none", 7, 1, "on"]);
  const given = await onward.start(defaults, { word: "given" });
  await given.signal("go");
  assert.deepEqual(await given.result(), ["given", 7, 1, null]);
});

test("what JSON has comes back as it was", async () => {
  class Point {
    constructor(readonly x: number, readonly skipped?: string) {}
  }
  const url = { toJSON: () => "https://example.org/" };
  const kept: [unknown, unknown][] = [
    [undefined, null],
    [[1, undefined], [1, null]],
    [null, null],
    ["\u2028 \u{1f600} \" \\ \u0000 é", "\u2028 \u{1f600} \" \\ \u0000 é"],
    [{ a: undefined, b: [[], {}, "", 0, -1.5e-7, true] }, { b: [[], {}, "", 0, -1.5e-7, true] }],
    [JSON.parse('{"__proto__": 1, "constructor": 2}'), JSON.parse('{"__proto__": 1, "constructor": 2}')],
    [new Point(1), { x: 1 }],
    [{ url }, { url: "https://example.org/" }],
    [Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER],
    [Object.create(null), {}],
    [[new Number(5), new String("x"), new Boolean(false)], [5, "x", false]],
  ];
  for (const [value, expected] of kept) {
    assert.deepEqual(await (await onward.start(echo, value)).result(), [expected, expected, expected]);
  }
});
