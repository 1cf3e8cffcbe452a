// What the page of a flow requests while it is polled.
import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./bundle.mjs";

const { FlowVersions } = await load("pages/flows/flowVersions.ts");

const version = (version, applied_at, is_current) => ({ flow: "publish", version, applied_at, is_current, open_runs: 0, document: `document of ${version}` });

/** A server with versions of a flow, newest first; counts the requests for documents. */
function server(stored) {
  const state = { stored, open: {}, documents: 0 };
  const listed = () => state.stored.slice(0, 1).map((flow) => ({ ...flow, document: null }));
  const other = { ...version("x", "t9", true), flow: "other", document: null };
  state.requests = {
    flows: async () => ({ flows: [other, ...listed()] }),
    versions: async () => ({ versions: [{ kind: "other", version: "a", open: 9 }, ...Object.entries(state.open).map(([version, open]) => ({ kind: "publish", version, open }))] }),
    documents: async () => {
      state.documents++;
      if (state.stored.length === 0) throw new Error("flow_not_found");
      return { flows: state.stored };
    },
  };
  return state;
}

test("documents are loaded once while no other one is stored, and open runs are counted each time", async () => {
  const of = server([version("b", "t2", true), version("a", "t1", false)]);
  const flow = new FlowVersions("publish");
  assert.deepEqual((await flow.load(of.requests)).flows, of.stored);
  of.open = { a: 3 };
  for (let polls = 0; polls < 3; polls++) {
    const { flows } = await flow.load(of.requests);
    assert.deepEqual(flows.map(({ version, open_runs, document }) => [version, open_runs, document]), [["b", 0, "document of b"], ["a", 3, "document of a"]]);
  }
  assert.equal(of.documents, 1);
});

test("another version, the same one stored again, and the end of the flow are noticed", async () => {
  const of = server([version("a", "t1", true)]);
  const flow = new FlowVersions("publish");
  await flow.load(of.requests);
  of.stored = [version("b", "t2", true), version("a", "t1", false)];
  assert.deepEqual((await flow.load(of.requests)).flows, of.stored);
  of.stored = [{ ...version("b", "t3", true), document: "with a comment" }, version("a", "t1", false)];
  assert.equal((await flow.load(of.requests)).flows[0].document, "with a comment");
  assert.equal(of.documents, 3);
  of.stored = [];
  await assert.rejects(flow.load(of.requests), /flow_not_found/);
});
