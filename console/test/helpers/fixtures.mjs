// Owns the workflows of tests, and what hostile input looks like.
import { approval, child, setAttribute, setState, signal, step, task, timer } from "./worker.mjs";

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export const ORDER_SCHEMA = {
  $schema: "https://json-schema.org/draft/2020-12/schema",
  type: "object",
  required: ["item", "quantity"],
  properties: {
    item: { type: "string", description: "What is ordered." },
    quantity: { type: "integer", minimum: 1, maximum: 100 },
    express: { type: "boolean" },
    color: { $ref: "#/$defs/Color" },
    gift: { anyOf: [{ $ref: "#/$defs/Gift" }, { type: "null" }] },
  },
  $defs: {
    Color: { type: "string", enum: ["white", "blue"] },
    Gift: { type: "object", required: ["text"], properties: { text: { type: "string", maxLength: 500 } } },
  },
};

/** The answer to an approval: what a form can draw, and a value that it cannot. */
const ANSWER_SCHEMA = {
  type: "object",
  required: ["amount", "account", "urgent", "lines"],
  properties: {
    amount: { type: "integer", title: "Amount in cents", description: "What the bank transfers." },
    account: { enum: ["main", "savings"], title: "Account" },
    urgent: { type: "boolean", title: "Transfer today" },
    note: { type: "string", title: "Note", pattern: "^[A-Z]" },
    lines: { type: "array", title: "Invoice lines", minItems: 1, items: { type: "number" } },
    payee: { type: "object", title: "Payee", required: ["name"], properties: { name: { type: "string", minLength: 1 }, city: { type: "string" } } },
    more: { title: "Anything else" },
  },
};

export const workflows = {
  *order(input) {
    const checked = yield step("check stock", async () => ({ item: input?.item, left: 7 }));
    yield setState("stock", checked);
    const paid = yield signal("payment");
    yield setState("paid", paid);
    const decision = yield approval("ship", `Ship ${input?.item}?`, { description: "The customer has paid.\nThe parcel leaves today.", show: { item: input?.item, cents: 4200, to: { street: "Elm Street 1", city: "Bremen" } } });
    if (!decision.approved) throw Object.assign(new Error("not shipped"), {});
    return `shipped, ${decision.feedback ?? "no feedback"}`;
  },
  *slow(input) {
    yield step("prepare", () => pause(50));
    yield step("work", () => pause(input?.ms ?? 2000));
    return "done";
  },
  *quick(input) {
    return input;
  },
  *broken() {
    yield step("charge card", async () => {
      throw new Error("card declined");
    });
  },
  *refund(input) {
    const decision = yield approval("refund", input?.title ?? "Refund 42.00 to Ada?", input?.options ?? { show: { cents: 4200, account: 9007199254740993n.toString() }, deciders: [], deadline_ms: 3_600_000 });
    return decision.approved ? "refunded" : "kept";
  },
  *payment(input) {
    const decision = yield approval("payment", input.title, { description: "The invoice is due on Friday.", answer_schema: ANSWER_SCHEMA, deciders: [] });
    return decision.answer?.json ?? "rejected";
  },
  *waiter() {
    yield timer(3_600_000);
  },
  *family(input) {
    const results = [];
    for (const name of input?.names ?? ["a", "b"]) results.push(yield child("quick", `${input?.id ?? "family"}/${name}`, name));
    return results;
  },
  *resizing(input) {
    return yield task("resize", input, { queue: null });
  },
  *hostile(input) {
    yield setAttribute("note", { text: input.text.slice(0, 200) });
    yield setState(input.text.slice(0, 200), input);
    yield step(input.text.slice(0, 200), async () => ({ [input.text]: input.text }));
    yield approval(input.text.slice(0, 200), input.text, { description: input.text, show: { [input.text]: [input.text] }, deciders: [input.text.slice(0, 200)] });
  },
};

export const tasks = {
  async resize(input, { progress }) {
    progress({ done: 50 });
    await pause(300);
    return { resized: input };
  },
  async expensive(input) {
    const tokens = { input: 1200, cached_read: 300, cached_write: 0, output: 250, reasoning: 0 };
    return { value: "ok", spent: [{ model: input?.model ?? "large-1", provider: "scripted", tokens, cost: input?.cost ?? "0.0125" }] };
  },
};

/** Texts that run a script or load something wherever they are taken for markup. */
export const HOSTILE = [
  `<script>window.hit=1;fetch("https://evil.example/a")</script>`,
  `"><img src=x onerror="window.hit=2">`,
  `<svg/onload=window.hit=3>`,
  `<iframe srcdoc="<script>parent.hit=4</script>"></iframe>`,
  `<a href="javascript:window.hit=5">click</a>`,
  `<style>@import "https://evil.example/b.css";</style>`,
  `<link rel=stylesheet href="https://evil.example/c.css">`,
  `<img src="https://evil.example/d.png">`,
  `<base href="https://evil.example/">`,
  `<meta http-equiv=refresh content="0;url=https://evil.example/">`,
  `'"><details open ontoggle=window.hit=6>`,
  `</title><script>window.hit=7</script>`,
  `{{constructor.constructor('window.hit=8')()}}`,
  `\${window.hit=9}`,
  `__proto__`,
  `javascript:window.hit=10`,
  `data:text/html,<script>window.hit=11</script>`,
  `<math><mtext></form><form><mglyph><style></math><img src onerror=window.hit=12>`,
  `\u202Etxt.exe\u202C`,
  `![x](https://evil.example/e.png)`,
];
