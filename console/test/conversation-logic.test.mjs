// Tests the logic of the conversation page without a browser.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { load } from "./bundle.mjs";

const talk = await load(
  "pages/conversation/content.ts", "pages/conversation/fold.ts", "pages/conversation/tree.ts", "pages/conversation/compare.ts",
  "pages/conversation/draft.ts", "pages/conversation/prompt.ts", "pages/conversation/money.ts", "pages/conversation/treeLayout.ts", "pages/conversation/toolRuns.ts",
);

const at = (seconds) => new Date(Date.UTC(2026, 10, 18, 12, 0, 0) + seconds * 1000).toISOString();
const logged = (generation, index, event, seconds = generation * 100 + index) => ({ generation, index, at: at(seconds), commit: null, event });
const json = (value) => ({ json: value });
const text = (words) => ({ type: "text", text: words });
const started = (generation, leaf, mailbox = []) => logged(generation, 0, { type: "run_started", kind: "support", generation, input: json("hi"), mailbox, checkpoint: leaf === undefined ? null : { leaf, depth: 1, state: json(1), awaits: null, prelude: null } });
const entry = (generation, index, id, parent, role, content, more = {}) => logged(generation, index, { type: "entry_appended", call_id: String(index), id, parent, role, content: json(content), ...more });
const reply = (blocks, more = {}) => ({ blocks, stop: "end", usage: { input: 10, cached_read: 0, cached_write: 0, output: 5, reasoning: 0 }, response_id: "r", model: "small-1", ...more });

/** A conversation of two turns with one tool, and a branch from the first answer. */
function sample() {
  const conversation = new talk.Conversation();
  const events = [
    started(0),
    entry(0, 1, "e1", null, "user", "Is there a bell?"),
    logged(0, 2, { type: "entry_appended", call_id: "1", id: "s1", parent: null, role: "settings", is_aside: true, content: json({ request: { model: "small", system: "Be brief.", messages: [], tools: [{ name: "stock", description: "Looks", input: { type: "object" } }], max_tokens: 100 } }) }),
    logged(0, 3, { type: "task_scheduled", call_id: "2", kind: "llm.small", input: json({ leaf: "e1", settings: { generation: 0, id: "s1" } }), options: {}, input_hash: "" }),
    logged(0, 4, { type: "task_attempt_ended", call_id: "2", attempt: 1, began_at: at(3), claim: 1, generation: 0, spend: [{ model: "small", provider: "p", cost: "0.0001", tokens: { input: 10, cached_read: 0, cached_write: 0, output: 5, reasoning: 2 } }] }),
    logged(0, 5, { type: "task_completed", call_id: "2", attempts: 1, output: json(reply([text("Let me look."), { type: "tool_call", id: "c1", name: "stock", arguments: '{"item":  "bell"}' }], { stop: "tool_calls" })) }),
    logged(0, 6, { type: "entry_appended", call_id: "3", id: "e2", parent: "e1", role: "assistant", content: json(null), quote: { index: 5, item: 0 } }),
    logged(0, 7, { type: "task_scheduled", call_id: "4.0.0", kind: "tool.shop.stock", input: json({ arguments: { item: "bell" }, result_bytes_max: 10 }), options: {}, input_hash: "" }),
    logged(0, 8, { type: "task_completed", call_id: "4.0.0", attempts: 1, output: json({ blocks: [text("7 bells")] }) }),
    entry(0, 9, "e3", "e2", "tool", { blocks: [{ type: "tool_result", call_id: "c1", blocks: [text("7 bells")] }] }),
    logged(0, 10, { type: "run_continued", input: json(null), checkpoint: { leaf: "e3", depth: 3, awaits: null, state: json({ turns: 1 }), prelude: null } }),
    started(1, "e3"),
    logged(1, 1, { type: "task_scheduled", call_id: "0", kind: "llm.small", input: json({ leaf: "e3", settings: { generation: 0, id: "s1" } }), options: {}, input_hash: "" }),
    logged(1, 2, { type: "task_completed", call_id: "0", attempts: 1, output: json(reply([text("Yes, seven.")])) }),
    logged(1, 3, { type: "entry_appended", call_id: "1", id: "e4", parent: "e3", role: "assistant", content: json(null), quote: { index: 2, item: 0 } }),
    logged(1, 4, { type: "branch_requested", from: "e1", depth: 1, input: json(null), checkpoint: {}, entry: null }),
    started(2, "e1"),
    entry(2, 1, "f2", "e1", "user", "A lamp, I mean."),
    entry(2, 2, "f3", "f2", "assistant", reply([text("No lamps.")])),
  ];
  events.forEach((event) => conversation.add(event));
  return { conversation, tree: new talk.EntryTree(conversation.entries, conversation.leaf), events };
}

describe("conversation", () => {
  test("entries have the content that they quote, and the call that it comes from", () => {
    const { conversation } = sample();
    const answer = conversation.entries.get("e2");
    assert.equal(talk.textOf(talk.blocksOf(answer.content)), "Let me look.");
    assert.equal(answer.call.model, "small");
    assert.deepEqual(talk.costOf(answer.call), { cost: "0.0001", tokens: { input: 10, cached_read: 0, cached_write: 0, output: 5, reasoning: 2 }, unknown: 0, attempts: 1 });
    assert.equal(talk.replyInfo(answer.content).stop, "tool_calls");
    assert.equal(conversation.checkpoints.length, 1);
    assert.ok(conversation.isAgent);
  });

  test("a tool call finds its task by name and arguments", () => {
    const { conversation } = sample();
    const [task] = talk.toolRunsOf(conversation, conversation.entries.get("e2"), "stock", '{"item":  "bell"}', 0);
    assert.deepEqual([task.type, task.status, task.callId], ["task", "completed", "4.0.0"]);
    assert.deepEqual(talk.toolRunsOf(conversation, conversation.entries.get("e2"), "stock", '{"item": "lamp"}', 0), []);
  });

  test("the same events again change nothing", () => {
    const { conversation, events } = sample();
    const before = JSON.stringify([conversation.entries.size, conversation.calls, conversation.tools, conversation.leaf]);
    events.forEach((event) => assert.equal(conversation.add(event), false));
    assert.equal(JSON.stringify([conversation.entries.size, conversation.calls, conversation.tools, conversation.leaf]), before);
  });

  test("a retry copies the log and counts nothing twice", () => {
    const conversation = new talk.Conversation();
    const { events } = sample();
    const first = events.filter((event) => event.generation === 0 && event.index < 10);
    first.forEach((event) => conversation.add(event));
    first.forEach((event) => conversation.add({ ...event, generation: 1 }));
    assert.equal(conversation.calls.length, 1);
    assert.equal(conversation.calls[0].spend.length, 1);
    assert.equal(conversation.entries.size, 3);
    assert.equal(conversation.leaf, "e3");
  });

  test("an abandoned segment marks its entries and the leaf goes back", () => {
    const conversation = new talk.Conversation();
    [started(0), entry(0, 1, "a", null, "user", "x"), entry(0, 2, "b", "a", "assistant", "y"),
      logged(0, 3, { type: "segment_abandoned", from: 2, to: 2, attempt: 1, withdrawn: [], divergence: {} })].forEach((event) => conversation.add(event));
    assert.equal(conversation.entries.get("b").isAbandoned, true);
    assert.equal(conversation.leaf, "a");
    conversation.add(entry(0, 4, "b", "a", "assistant", "y"));
    assert.equal(conversation.entries.get("b").isAbandoned, false);
    assert.equal(conversation.leaf, "b");
  });

  test("messages wait until the agent reads them; an appended entry has its role", () => {
    const conversation = new talk.Conversation();
    conversation.add(started(0, undefined, [{ name: "message", payload: json("first"), sender: null, signal_id: null }]));
    conversation.add(logged(0, 1, { type: "signal_received", name: "onward.entry", payload: json({ role: "tool", content: { json: "left Bremen" } }), sender: null, signal_id: null }));
    assert.deepEqual(conversation.waiting.map((one) => [one.name, one.role, one.content.json]), [["message", null, "first"], ["onward.entry", "tool", "left Bremen"]]);
    conversation.add(logged(0, 2, { type: "signal_consumed", call_id: "0", name: "message", index: 0 }));
    conversation.add(logged(0, 3, { type: "entry_appended", call_id: "1", id: "m", parent: null, role: "user", content: json(null), quote: { index: 0, item: 0 } }));
    assert.equal(conversation.waiting.length, 1);
    assert.equal(conversation.entries.get("m").content.json, "first");
  });
});

describe("tree", () => {
  test("branches: the current one first, and where the others part", () => {
    const { tree } = sample();
    assert.deepEqual(tree.branches().map((one) => [one.leaf, one.length, one.partsAfter, one.isCurrent]), [["f3", 3, null, true], ["e4", 4, "e1", false]]);
    assert.deepEqual(tree.path("e4").map((one) => one.id), ["e1", "e2", "e3", "e4"]);
    assert.deepEqual(tree.siblingsOf(tree.entries.get("f2")).map((one) => one.id), ["e2", "f2"]);
    assert.equal(tree.leafBelow("e2"), "e4");
    assert.equal(tree.leafBelow("e1"), "f3");
  });

  test("the map has a column per branch and one node for a stretch without a choice", () => {
    const { tree } = sample();
    const map = talk.treeMap(tree);
    assert.deepEqual(map.nodes.map((node) => [node.entry.id, node.column, node.row, node.count]), [["e1", 0, 0, 1], ["f2", 0, 1, 1], ["f3", 0, 2, 1], ["e2", 1, 1, 1], ["e4", 1, 2, 2]]);
    assert.deepEqual(map.edges.map((edge) => `${edge.from.entry.id}-${edge.to.entry.id}`), ["e1-f2", "f2-f3", "e1-e2", "e2-e4"]);
    assert.deepEqual([map.columns, map.rows, map.left], [2, 3, 0]);
  });

  test("a leaf in the middle of another branch is a branch of its own", () => {
    const { conversation } = sample();
    const tree = new talk.EntryTree(conversation.entries, "e2");
    assert.deepEqual(tree.branches().map((one) => [one.leaf, one.isCurrent]), [["e2", true], ["f3", false], ["e4", false]]);
  });

  test("a missing or looping parent ends the path", () => {
    const node = (id, parent) => ({ id, parent, role: "user", content: json("x"), generation: 0, index: 1, at: at(0), isAbandoned: false, key: null, call: null });
    const tree = new talk.EntryTree(new Map([["b", node("b", "a")], ["c", node("c", "d")], ["d", node("d", "c")]]), "b");
    assert.deepEqual(tree.path("b").map((one) => one.id), ["b"]);
    assert.equal(tree.path("c").length, 2);
  });
});

describe("what the model saw", () => {
  test("settings, tools and the conversation up to the call", () => {
    const { conversation, tree } = sample();
    const prompt = talk.promptOf(conversation, tree, conversation.calls[1]);
    assert.deepEqual([prompt.model, prompt.system, prompt.tools.map((tool) => tool.name), prompt.options, prompt.isPartial], ["small", "Be brief.", ["stock"], { max_tokens: 100 }, false]);
    assert.deepEqual(prompt.messages.map((message) => [message.role, message.entry]), [["user", "e1"], ["assistant", "e2"], ["tool", "e3"]]);
  });

  const of = (entries, settings = { request: { model: "m", tools: [{ name: "t", description: "", input: {} }] } }, leaf = entries.at(-1)[0]) => {
    const conversation = new talk.Conversation();
    conversation.add(started(0));
    entries.forEach(([id, role, content], index) => conversation.add(entry(0, index + 1, id, entries[index - 1]?.[0] ?? null, role, content)));
    conversation.settings.set("s", json(settings));
    const tree = new talk.EntryTree(conversation.entries, leaf);
    return talk.promptOf(conversation, tree, { leaf, settings: { generation: 0, id: "s" }, model: "m" });
  };

  test("a summary stands for what it covers, and comes first", () => {
    const prompt = of([["a", "user", "1"], ["b", "assistant", "2"], ["c", "user", "3"], ["d", "summary", { text: "short", covers: "b" }], ["e", "user", "4"]]);
    assert.deepEqual(prompt.messages.map((message) => talk.textOf(message.blocks)), ["Summary of the conversation so far:\nshort", "3", "4"]);
    assert.equal(prompt.covered, 2);
  });

  test("calls without a result get one, results without a call become reports, blank messages are left out", () => {
    const call = { blocks: [{ type: "tool_call", id: "x", name: "t", arguments: "{}" }] };
    const prompt = of([["a", "user", "1"], ["b", "assistant", call], ["c", "user", "  "], ["d", "user", "go on"], ["e", "tool", "parcel left"], ["f", "system", "late rule"]]);
    assert.deepEqual(prompt.messages.map((message) => message.role), ["user", "assistant", "tool", "user", "user"]);
    assert.equal(prompt.messages[2].blocks[0].blocks[0].text, "there is no result of this call");
    assert.equal(talk.textOf(prompt.messages[4].blocks), "A tool reports:\nparcel left");
    assert.equal(prompt.system, "late rule");
  });

  test("without tools, calls become texts; a question and a limit are applied", () => {
    const entries = [["a", "user", "x".repeat(50)], ["b", "assistant", { blocks: [{ type: "tool_call", id: "x", name: "t", arguments: "{}" }] }], ["c", "tool", { blocks: [{ type: "tool_result", call_id: "x", blocks: [text("ok")] }] }]];
    const prompt = of(entries, { request: { model: "m" }, ask: "Summarize.", truncate_at: 40 });
    assert.deepEqual(prompt.messages.map((message) => message.role), ["user", "assistant", "user", "user"]);
    assert.equal(talk.textOf(prompt.messages[0].blocks), `${"x".repeat(30)}\n[10 characters are left out here]\n${"x".repeat(10)}`);
    assert.equal(talk.textOf(prompt.messages[1].blocks), "(I called the tool `t` with {})");
    assert.equal(talk.textOf(prompt.messages[2].blocks), "(The tool `t` answered: ok)");
    assert.equal(talk.textOf(prompt.messages[3].blocks), "Summarize.");
  });
});

describe("content", () => {
  test("texts, objects, bytes and unknown shapes", () => {
    assert.equal(talk.textOf(talk.blocksOf(json("a"))), "a");
    assert.equal(talk.textOf(talk.blocksOf(json({ text: "b", id: 1 }))), "b");
    assert.equal(talk.textOf(talk.blocksOf(json({ x: 1 }))), '{"x":1}');
    assert.deepEqual(talk.blocksOf(json(null)), []);
    assert.equal(talk.textOf(talk.blocksOf({ base64: btoa("plain"), type: "text/plain" })), "plain");
    assert.equal(talk.blocksOf({ base64: "AAAA", type: "image/png" })[0].type, "attachment");
    assert.equal(talk.textOf(talk.blocksOf(json({ blocks: [{ type: "new_kind" }] }))), '{"blocks":[{"type":"new_kind"}]}');
    assert.equal(talk.blocksOf(json({ blocks: [{ type: "attachment", media_type: "image/png", source: { a: "1" } }] }))[0].type, "text");
  });

  test("only plain images are shown, and only http addresses are links", () => {
    assert.equal(talk.imageType("image/PNG; x=1"), "image/png");
    for (const type of ["image/svg+xml", "text/html", "application/pdf", "", "image/svg+xml; image/png"]) assert.equal(talk.imageType(type), null);
    assert.equal(talk.safeUrl("https://example.com/a"), "https://example.com/a");
    for (const url of ["javascript:alert(1)", "data:text/html,x", "//x", " ", "JaVaScRiPt:1", "file:///etc"]) assert.equal(talk.safeUrl(url), null);
  });

  test("money is exact", () => {
    assert.equal(talk.addMoney("0.1", "0.2"), "0.3");
    assert.equal(talk.addMoney("0.000000000001", "1"), "1.000000000001");
    assert.equal(talk.sumMoney([null, "1.5", "2.5"]), "4");
    assert.equal(talk.sumMoney([null]), null);
  });
});

describe("live answers", () => {
  test("pieces become text, reasoning and calls; a new attempt starts again", () => {
    const drafts = new Map();
    const frame = (type, more) => talk.addFrame(drafts, { type, task: "a~1~2", attempt: 1, ...more });
    frame("begin", { model: "small-1", response_id: "r" });
    frame("reasoning", { text: "hm" });
    frame("text", { text: "Hel" });
    frame("text", { text: "lo" });
    frame("tool_call_begin", { call: 0, id: "c", name: "stock" });
    frame("tool_call_arguments", { call: 0, text: '{"a"' });
    frame("tool_call_arguments", { call: 9, text: "lost" });
    const draft = drafts.get("a~1~2");
    assert.deepEqual([draft.model, draft.reasoning, draft.text, draft.calls], ["small-1", "hm", "Hello", [{ id: "c", name: "stock", arguments: '{"a"' }]]);
    frame("attempt_failed", { code: "model_overloaded", message: "busy", next_delay_ms: 1000 });
    assert.equal(draft.failure.nextDelayMs, 1000);
    frame("attempt_reset", { attempt: 2 });
    assert.equal(drafts.size, 0);
    frame("text", { text: "x", attempt: 2 });
    frame("task_end", { outcome: "completed" });
    assert.equal(drafts.get("a~1~2").isOver, true);
    talk.addFrame(drafts, { type: "stream_reset", generation: 1, leaf: null });
    assert.equal(drafts.size, 0);
    assert.deepEqual(talk.taskCall("x~y~3~2.1.0"), { generation: 3, callId: "2.1.0" });
  });
});

describe("comparison", () => {
  test("what two branches share, and the rest in pairs of the same sort", () => {
    const { tree } = sample();
    const { shared, pairs } = talk.compareBranches(tree.path("e4"), tree.path("f3"));
    assert.deepEqual(shared.map((one) => one.id), ["e1"]);
    assert.deepEqual(pairs.map((pair) => [pair.left?.id ?? null, pair.right?.id ?? null]).at(-1), ["e4", "f3"]);
    assert.ok(pairs.at(-1).text.left.some((piece) => !piece.isSame));
  });
});
