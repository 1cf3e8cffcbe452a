/** The examples, which print what they do. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { runProgram, scriptedModel } from "./kit.js";

const examples: Record<string, string[]> = {
  "hello": ["the run says: Hello, Ada!", "result: Hello, Ada!", "once more: Hello, Ada!", "#5 run_completed"],
  "crash-and-resume": [
    "process 1: booking a flight",
    "process 1: key of the hotel booking",
    "process 1: booking a hotel",
    "process 1 ended: SIGKILL",
    "process 2: key of the hotel booking",
    "process 2: booking a hotel",
    "process 2: booking a train",
    "process 2: result: flight to Lisbon, hotel to Lisbon, train to Lisbon",
  ],
  "saga": ["all booked", "canceled the hotel in Venice", "canceled the flight in Venice", "error[no_cars]: no roads here"],
  "middleware": [
    "the code sees the card `[redacted]`",
    "mailed ada about card **** 1111",
    "ada paid 2100 cents",
    "the third charge waited: true",
    "the log has the card: false",
    "attempts measured: 4",
  ],
  "fan-out": ["1 of 20 checks failed", "first: city-1: 6 letters, last: city-20: 7 letters", "in parallel: true"],
  "approval": ["paid 500 cents by ada", "error[signal_lost]", "error[not_a_decider]", "no decision in time"],
  "signals": ["repeated: true", 'book: ["1. dogs","2. birds"]', "chapters: 2"],
  "children": ["resized slow at double pace", "album: 200 bytes, then 100", "album-1 album completed", "photo-broken photo failed"],
  "schedule": [
    "nightly@2026-03-28T01:00:00Z: the orders of 2026-03-28",
    "nightly@2026-03-29T01:00:00Z: the orders of 2026-03-29",
    "nightly@2026-03-30T00:00:00Z: the orders of 2026-03-30",
    "triggered nightly@now:by-hand",
    "started 4, next: 0",
    "next after the holidays: 5",
  ],
  "versions": ["invoice-Monday: v1 with discount version 1: 119", "invoice-Tuesday: v1 with discount version 2: 107", "v2: 96"],
  "agents/hello": ["done after 1 turn: You said: Good morning!", "once more: You said: Good morning!"],
  "agents/tools": ["(looking out of a window in Ulm)", "weather says: 18 degrees and sunny in Ulm"],
  "agents/approval": [
    'first: Call the tool `refund`? {"tool":"refund","arguments":{"order":"A-17","cents":1900}}',
    "(paying 1900 cents back for A-17)",
    "first: refund says: refunded 1900 cents",
    "second: refund says: error: a person has declined this call: over the limit",
  ],
  "agents/research": ["About ferries: library says: three books about ferries"],
};

/** Texts that an example prints once: what is recorded does not run again. */
const once: Record<string, string> = { "hello": "the run says", "agents/approval": "(paying", "crash-and-resume": "booking a flight" };

test("every example prints what it shows", async () => {
  process.env["SCRIPTED_MODEL_URL"] = await scriptedModel();
  delete process.env["OPENAI_API_KEY"];
  for (const [name, expected] of Object.entries(examples)) {
    const { code, stdout, stderr } = await runProgram(`../.examples/${name}.js`);
    assert.deepEqual([code, stderr], [0, ""], `${name}: ${stderr}\n${stdout}`);
    let lines = stdout.split("\n");
    for (const text of expected) {
      const found = lines.findIndex((line) => line.includes(text));
      assert(found >= 0, `${name} did not print \`${text}\` in its place:\n${stdout}`);
      lines = lines.slice(found + 1);
    }
    const text = once[name];
    if (text !== undefined) assert.equal(stdout.split(text).length, 2, stdout);
  }
});
