/**
 * The conformance program in TypeScript: the workflows, tasks and agents of claims.json, and a client that obeys lines of JSON.
 *
 * `program.js STORE EFFECTS`: STORE is a directory or the URL of a server. Each execution of a step or task function appends a
 * line to the file EFFECTS. `CONFORMANCE_OLD` selects the code before a change.
 */

import { openSync, writeSync } from "node:fs";
import { createInterface } from "node:readline";
import {
  Agent,
  AgentCtx,
  Ctx,
  Failure,
  Onward,
  OnwardError,
  RandomGenerator,
  RunFailed,
  agent,
  fatal,
  task,
  tool,
  workflow,
  type AnyTask,
  type AnyWorkflow,
  type StepOptions,
  type TaskCtx,
  type Turn,
} from "onward";

// eslint-disable-next-line @typescript-eslint/no-explicit-any -- inputs of claims have any type
type Any = any;
type Given = { in?: Any; hold?: boolean } | null;

const [store = "", file = ""] = process.argv.slice(2);
const isOld = process.env["CONFORMANCE_OLD"] !== undefined;
const effects = openSync(file, "a");
const workflows: AnyWorkflow[] = [];
const tasks: AnyTask[] = [];

function mark(run: string, name: string): void {
  writeSync(effects, `${run} ${name}\n`);
}

/** Waits before the end, so that another program can replay the whole log. */
async function hold(ctx: Ctx, given: Given): Promise<void> {
  if (given?.hold !== true) return;
  ctx.state.set("held", true);
  await ctx.signal("conformance.end").recv();
}

function held<C extends Ctx>(code: (ctx: C, input: Any) => Promise<unknown>): (ctx: C, given: Given) => Promise<unknown> {
  return async (ctx, given) => {
    let output: unknown;
    try {
      output = await code(ctx, given?.in ?? null);
    } catch (error) {
      await hold(ctx, given);
      throw error;
    }
    await hold(ctx, given);
    return output;
  };
}

function kind(name: string, code: (ctx: Ctx, input: Any) => Promise<unknown>): void {
  workflows.push(workflow(name, held(code)));
}

function agentKind(name: string, code: (ctx: AgentCtx, input: Any) => Promise<unknown>): void {
  workflows.push(agent(name, held(code)));
}

function job(name: string, code: (input: Any, task: TaskCtx) => unknown): void {
  tasks.push(task(name, code));
}

/** Calls a step that leaves a line in the file of effects. */
function does<T>(ctx: Ctx, name: string, value?: T, options?: StepOptions): Promise<T> {
  const run = ctx.runId;
  const work = async (): Promise<T> => {
    mark(run, name);
    return value as T;
  };
  return ctx.step(name, work, options) as Promise<T>;
}

function explode(message: string): never {
  throw new RangeError(message);
}

async function outcomeOf(call: Promise<unknown>): Promise<unknown> {
  try {
    return await call;
  } catch (error) {
    if (error instanceof Failure) return [error.code, error.message];
    throw error;
  }
}

/** Returns the index of the first call that is done, and drops the others. */
async function race(ctx: Ctx, ...calls: Promise<unknown>[]): Promise<number> {
  return Number((await ctx.select(Object.fromEntries(calls.entries()))).key);
}

const never = (): Promise<never> => new Promise(() => {});
const orNull = (value: unknown): unknown => value ?? null;

// ---- steps

kind("once", async (ctx, names: string[]) => {
  const found = [];
  for (const name of names) found.push(await does(ctx, name, name));
  return found;
});

kind("values", (ctx, value) => does(ctx, "echo", value));

kind("retried", async (ctx, given) => {
  const run = ctx.runId;
  const before = ctx.now().getTime();
  const retry = { attempts: given.attempts, firstDelay: { milliseconds: given.delay } };
  const flaky = ctx.step(
    "flaky",
    (step) => {
      mark(run, "flaky");
      if (step.attempt < given.succeeds) throw given.fatal ? fatal("never") : new Error(`attempt ${step.attempt}`);
      return step.attempt;
    },
    { retry },
  );
  return { found: await outcomeOf(flaky), waited: ctx.now().getTime() - before >= given.delay };
});

kind("slow-step", async (ctx) => {
  const run = ctx.runId;
  const slow = (): Promise<never> => {
    mark(run, "slow");
    return never();
  };
  return ((await outcomeOf(ctx.step("slow", slow, { timeout: { milliseconds: 30 } }))) as Any)[0];
});

kind("inputs", (ctx, value) => does(ctx, "reads", 1, { input: value, record: true }));

kind("fails", async (ctx, how: string) => {
  switch (how) {
    case "step":
      return ctx.step("explodes", () => explode("out of stock"));
    case "code":
      return explode("in the code");
    case "own":
      throw new Failure("too much", { code: "declined", retryable: false, data: { limit: 5 } });
    case "caught":
      return outcomeOf(ctx.step("explodes", () => explode("out of stock")));
    case "bad":
      return ctx.step("bad", () => ({ items: [1, { price: NaN }] }));
  }
  return undefined;
});

kind("large", async (ctx, size: number) => ((await outcomeOf(ctx.step("large", () => "x".repeat(size)))) as Any)[0]);

kind("gathered", (ctx, names: string[]) => Promise.all(names.map((name) => does(ctx, name, name))));

kind("settled", async (ctx) => {
  const found = await Promise.allSettled([does(ctx, "a", 1), ctx.step("b", () => explode("b broke")), does(ctx, "c", 3)]);
  return found.map((each) => (each.status === "fulfilled" ? each.value : (each.reason as Failure).message));
});

kind("gather-fails", (ctx) => outcomeOf(Promise.all([does(ctx, "a", 1), ctx.step("b", () => explode("b broke"))])));

kind("many", async (ctx, count: number) => {
  let total = 0;
  for (let number = 0; number < count; number++) total += await does(ctx, `s${number}`, number);
  return total;
});

// ---- signals

kind("receives", async (ctx, given) => {
  const found = [];
  for (let turn = 0; turn < given.count; turn++) {
    found.push(await ctx.signal(given.name).recv());
    await does(ctx, `turn-${turn}`);
  }
  return found;
});

kind("polls", async (ctx) => {
  await ctx.signal("go").recv();
  const box = ctx.signal("box");
  const found = [box.has(), box.count(), orNull(box.tryRecv()), box.drain(), box.has(), box.count(), orNull(box.tryRecv())];
  await does(ctx, "after");
  return found;
});

kind("pattern", async (ctx) => {
  const box = ctx.signals("user.*");
  const first = await box.recv();
  await ctx.signal("go").recv();
  const rest = [box.has(), box.count(), box.drain().map(({ name, value }) => [name, value]), orNull(box.tryRecv())];
  return [[first.name, first.value], ...rest];
});

kind("times-out", async (ctx) => {
  const early = orNull(await ctx.signal("late").recv({ timeout: { milliseconds: 20 } }));
  ctx.state.set("early", early);
  return [early, await ctx.signal("late").recv({ timeout: { hours: 1 } })];
});

kind("sends", async (ctx, to: string) => {
  ctx.sendSignal(to, "news", { from: "a child" });
});

kind("gets-news", async (ctx) => {
  const child = ctx.child("sends", { in: ctx.runId });
  const news = await ctx.signal("news").recv();
  await child;
  return news;
});

kind("select", async (ctx, given) => {
  const signal = ctx.signal("answer").recv();
  const first = await race(ctx, signal, ctx.sleep({ milliseconds: given.ms }));
  ctx.state.set("first", first);
  const answer = await (first === 1 ? ctx.signal("answer").recv() : signal);
  await does(ctx, "after");
  return [first, answer];
});

kind("race-arrival", async (ctx) => {
  ctx.state.set("ready", true);
  const first = await race(ctx, ctx.signal("x").recv(), ctx.signal("y").recv());
  await ctx.signal("end").recv();
  return first;
});

kind("race-order", async (ctx) => {
  await ctx.signal("go").recv();
  return race(ctx, ctx.signal("x").recv(), ctx.signal("y").recv());
});

// ---- time

kind("sleeps", async (ctx, ms: number) => {
  const before = ctx.now().getTime();
  await ctx.sleep({ milliseconds: ms });
  await does(ctx, "between");
  await ctx.sleepUntil(new Date(ctx.now().getTime() + ms));
  return ctx.now().getTime() - before >= 2 * ms;
});

kind("timers", async (ctx, spans: number[]) => {
  const order: number[] = [];
  const wait = async (ms: number): Promise<void> => {
    await ctx.sleep({ milliseconds: ms });
    order.push(ms);
  };
  await Promise.all(spans.map(wait));
  return order;
});

kind("replays", async (ctx) => {
  const made = [ctx.uuid(), ctx.random(), ctx.uuid(), ctx.now().getTime()] as const;
  const kept = await does(ctx, "keep", made);
  await ctx.signal("go").recv();
  return [JSON.stringify(kept) === JSON.stringify(made), made[0] !== made[2], 0 <= kept[1] && kept[1] < 1];
});

kind("draws", async (ctx, seed: number) => {
  const [seeded, own] = [new RandomGenerator(BigInt(seed)), ctx.randomGenerator()];
  const items = [0, 1, 2, 3];
  const integers = items.map(() => seeded.integer(-3, 7));
  const drawn = [integers, seeded.float(), seeded.chance(0.5), seeded.choice(["a", "b", "c"]), items];
  seeded.shuffle(items);
  const made = [own.integer(0, 1000), own.float()];
  const kept = await does(ctx, "keep", made);
  await ctx.signal("go").recv();
  return [...drawn, JSON.stringify(kept) === JSON.stringify(made)];
});

// ---- cancellation

kind("waits", async (ctx) => {
  ctx.state.set("ready", true);
  return ctx.signal("never").recv();
});

kind("cleans-up", async (ctx, how: string) => {
  try {
    ctx.state.set("ready", true);
    await ctx.signal("never").recv();
  } catch (error) {
    await does(ctx, "clean-up");
    if (how === "raise") throw error;
  }
  return [ctx.isCanceled(), await does(ctx, "after", 1)];
});

kind("watches-cancel", async (ctx) => {
  const signal = ctx.signal("never").recv();
  const canceled = ctx.canceled();
  ctx.state.set("ready", true);
  const first = await race(ctx, signal, canceled);
  await does(ctx, "close-valve");
  return first;
});

kind("two-waits", async (ctx) => {
  const calls = [ctx.sleep({ hours: 1 }), ctx.signal("never").recv()];
  ctx.state.set("ready", true);
  const found = await Promise.allSettled(calls);
  await does(ctx, "after");
  return found.map((each) => each.status === "rejected" && (each.reason as Failure).code === "canceled");
});

kind("parent-waits", async (ctx) => {
  const child = ctx.child("waits", {}, { id: `${ctx.runId}-child` });
  ctx.state.set("ready", true);
  return child;
});

// ---- tasks

job("double", (given) => {
  mark(given.run, "double");
  return 2 * given.n;
});

job("flaky-task", (given, task) => {
  mark(given.run, "flaky-task");
  if (task.attempt < given.succeeds) throw new Error("not yet");
  return "done";
});

job("key", (_, task) => task.idempotencyKey);

job("beats", async (given, task) => {
  for (let done = 0; done < 3; done++) {
    task.heartbeat({ done });
    await new Promise((go) => setTimeout(go, 2));
  }
  mark(given.run, "beats");
  return task.isCanceled();
});

job("hangs", (_, task) => new Promise((_, fail) => task.signal.addEventListener("abort", () => fail(task.signal.reason))));

kind("task", (ctx, given) => {
  const options = {
    retry: { attempts: given.attempts ?? 1, firstDelay: { milliseconds: 1 } },
    ...(given.timeout && { timeout: { milliseconds: given.timeout } }),
    ...(given.key && { idempotencyKey: given.key }),
    heartbeat: { minutes: 1 },
  };
  return outcomeOf(ctx.task(given.kind, { ...given.input, run: ctx.runId }, options));
});

kind("many-tasks", (ctx, count: number) => {
  const calls = Array.from({ length: count }, (_, n) => ctx.task("double", { run: ctx.runId, n }, { effect: "pure" }));
  return Promise.all(calls);
});

kind("cancels-task", async (ctx) => {
  const call = ctx.task("hangs", {});
  await ctx.sleep({ milliseconds: 10 });
  const canceled = call.cancel();
  return [canceled, await call.catch((error: Failure) => error.code)];
});

// ---- approvals, promises

kind("approval", async (ctx, within: number) => {
  const call = ctx.approval("ship", { title: "Ship it?", show: { to: "Basel" }, within: { milliseconds: within } });
  ctx.state.set("id", call.id);
  const { approved, feedback, decidedBy, expired } = await call;
  return [approved, feedback ?? null, decidedBy ?? null, expired];
});

kind("promise", (ctx, within: number) => {
  const call = ctx.promise("parcel", { within: { milliseconds: within } });
  ctx.state.set("id", call.id);
  return outcomeOf(call);
});

// ---- state, attributes, emissions

kind("state", async (ctx) => {
  ctx.state.set("a", { deep: [1, 2] });
  ctx.state.set("b", 2);
  ctx.state.set("b", 3);
  ctx.state.set("gone", true);
  ctx.state.clear("gone");
  await does(ctx, "middle");
  return [ctx.state.get("a"), ctx.state.get("b"), orNull(ctx.state.get("gone")), ctx.state.keys().sort()];
});

kind("attributes", async (ctx, value: string) => {
  ctx.setAttribute("stage", value);
  ctx.setAttribute("count", 3);
  ctx.setAttribute("gone", true);
  ctx.clearAttribute("gone");
  ctx.state.set("ready", true);
  return ctx.signal("end").recv();
});

kind("emits", async (ctx, count: number) => {
  for (let number = 0; number < count; number++) {
    ctx.emit("progress", { number });
    await does(ctx, `s${number}`);
  }
  return count;
});

// ---- children

kind("child", async (ctx, number: number) => {
  if (number < 0) throw new Failure("negative", { code: "negative" });
  return [await does(ctx, "add", number + 1), ctx.nesting];
});

kind("parent", (ctx, numbers: number[]) => {
  const calls = numbers.map((number) => ctx.child("child", { in: number }, { id: `${ctx.runId}-${number}` }));
  return Promise.all(calls.map(outcomeOf));
});

kind("nested", async (ctx, depth: number) => (depth === 0 ? ctx.nesting : ctx.child("nested", { in: depth - 1 })));

kind("listens", (ctx) => ctx.signal("pace").recv());

kind("signals-child", (ctx, pace: string) => {
  const call = ctx.child("listens", {});
  call.signal("pace", pace);
  return call;
});

kind("spawns", async (ctx, number: number) => {
  const spawned = ctx.spawn("child", { in: number });
  await ctx.sleep({ milliseconds: 5 });
  const again = ctx.spawned(spawned.runId);
  return [await again.result(), await again.result()];
});

kind("reports", (ctx, text: string) => {
  ctx.parent?.message(text);
  return ctx.signal("message").recv();
});

kind("converses", async (ctx, text: string) => {
  const spawned = ctx.spawn("reports", { in: text });
  const heard = await ctx.signal("message").recv();
  spawned.message("back");
  return [heard, await spawned.result()];
});

// ---- versions, determinism

kind("version", async (ctx) => {
  await does(ctx, "before");
  const chosen = isOld ? 0 : ctx.version("change", 0, 2);
  if (chosen === 2) await does(ctx, "new");
  await does(ctx, "after");
  return chosen;
});

kind("diverges", async (ctx) => {
  await does(ctx, "first");
  await does(ctx, isOld ? "old" : "new");
});

kind("looks-at-clock", async () => Date.now());

// ---- queries, updates

kind("counter", async (ctx, start: number) => {
  let total = start;
  ctx.query("total", () => total);
  ctx.query<number>("plus", (number) => total + number);
  if (start === 100) await ctx.signal("open").recv();
  ctx.update<number>("add", (number) => {
    if (number < 0) throw new Failure("negative", { code: "negative" });
    return (total += number);
  });
  ctx.state.set("ready", true);
  await ctx.signal("end").recv();
  return total;
});

kind("awaits-in-updates", async (ctx, how: string) => {
  let total = 5;
  let begun = false;
  ctx.update<number>("add", async (number) => {
    if (number < 0) throw new Failure("negative", { code: "negative" });
    await does(ctx, `add-${number}`);
    await ctx.sleep({ milliseconds: 1 });
    return (total += number);
  });
  ctx.update<string>("wait", (name) => {
    begun = true;
    return ctx.signal(name).recv();
  });
  ctx.state.set("ready", true);
  if (how === "abandon") {
    while (!begun) await ctx.sleep({ milliseconds: 10 });
    return "over";
  }
  await ctx.signal("end").recv();
  await ctx.updatesFinished();
  return total;
});

// ---- compensation, continue-as-new

kind("saga", async (ctx, how: string) => {
  const run = ctx.runId;
  for (const name of ["flight", "hotel"]) {
    await does(ctx, `book-${name}`);
    ctx.onFailure(`cancel-${name}`, () => mark(run, `cancel-${name}`));
  }
  ctx.state.set("ready", true);
  if (how === "fail") throw new Failure("no car", { code: "no_car" });
  if (how === "wait") await ctx.signal("never").recv();
  return "booked";
});

kind("continues", async (ctx, left: number) => {
  await does(ctx, `work-${left}`);
  return left > 0 ? ctx.continueAsNew({ in: left - 1 }) : ctx.generation;
});

kind("keeps-signals", async (ctx, given) => {
  if (given === null) {
    const first = await ctx.signal("item").recv();
    await ctx.signal("go").recv();
    return ctx.continueAsNew({ in: first });
  }
  return [given, await ctx.signal("item").recv()];
});

// ---- agents

agentKind("turns", (ctx, count: number) =>
  ctx.turns(0, async (number): Promise<Turn<number, number[]>> => {
    await does(ctx, `turn-${number}`);
    ctx.append("system", `turn ${number}`);
    return number + 1 < count ? { next: number + 1 } : { done: [number + 1, ctx.entryCount()] };
  }),
);

agentKind("turns-wait", (ctx, count: number) =>
  ctx.turns([] as string[], async (before): Promise<Turn<string[], string[]>> => {
    const heard = [...before, ...ctx.signal<string>("message").drain()];
    await does(ctx, `heard-${heard.length}`);
    return heard.length >= count ? { done: heard } : { next: heard, waitFor: "message" };
  }),
);

agentKind("checkpoints", async (ctx, count: number) => {
  const number = ctx.checkpointed<number>() ?? 0;
  await does(ctx, `part-${number}`);
  return number < count ? ctx.checkpoint(number + 1) : number;
});

agentKind("entries", async (ctx) => {
  const first = ctx.append("user", "hello");
  const once = ctx.append("system", { n: 1 }, { key: "only" });
  const again = ctx.append("system", { n: 1 }, { key: "only" });
  ctx.state.set("ready", true);
  await ctx.signal("go").recv();
  const taken = ctx.takeIn();
  const roles = (await ctx.messages()).map(({ role }) => role);
  return [first !== once, once === again, taken.length, ctx.entryCount(), roles];
});

agentKind("asks-model", async (ctx, text: string) => {
  ctx.append("user", text);
  const reply = await ctx.llm("scripted", { system: "Be brief." });
  ctx.append("assistant", reply);
  await does(ctx, "after");
  return [reply.text, ctx.entryCount()];
});

const word = { type: "object", properties: { word: { type: "string" } }, required: ["word"], additionalProperties: false };

const lookup = tool("lookup", { description: "Looks up a word.", input: word, effect: "pure" }, (args: Any) => {
  mark(args.word, "lookup");
  return `${args.word} is a word`;
});

const pay = tool("pay", { description: "Pays.", input: word, needsApproval: true }, (args: Any) => {
  mark(args.word, "pay");
  return `paid ${args.word}`;
});

agentKind("uses-tool", (ctx, text: string) => {
  ctx.append("user", text);
  return ctx.turns(0, async (count): Promise<Turn<number, unknown[]>> => {
    const reply = await ctx.llm("scripted", { tools: [lookup] });
    ctx.append("assistant", reply);
    const outcomes = await Promise.all(reply.calls.map((call) => ctx.tool(call)));
    for (const outcome of outcomes) ctx.append("tool", outcome);
    return outcomes.length > 0 ? { next: count + 1 } : { done: [count + 1, reply.text] };
  });
});

const agents = [
  new Agent("talker", { model: "scripted", system: "You help.", tools: [lookup] }),
  new Agent("payer", { model: "scripted", tools: [pay] }),
];

// ---- the client

async function act(onward: Onward, verb: string, args: Any): Promise<unknown> {
  const { run: id, name, value, input, reason, ...others } = args;
  const run = onward.run(id);
  switch (verb) {
    case "start":
      return (await onward.start(args.kind, input, startOptions(args))).id;
    case "result":
      return run.result();
    case "signal":
      return void (await run.signal(name, value, others));
    case "message":
      return void (await run.message(value, others));
    case "append":
      return void (await run.append(args.role, args.content, { id: args.id }));
    case "query":
      return run.query(name, input);
    case "update":
      return run.update(name, input, others);
    case "wait":
      return void (await run.waitForState(args.key, value));
    case "cancel":
    case "terminate":
    case "pause":
      return void (await run[verb](reason));
    case "resume":
      return void (await run.resume());
    case "approve":
    case "disapprove":
      return void (await onward[verb](args.approval, { feedback: args.feedback, decidedBy: args.decided_by, id: args.id }));
    case "resolve":
      return void (await onward.resolve(args.promise, value, { id: args.id }));
    case "reject":
      return void (await onward.reject(args.promise, new Error(args.message), { id: args.id }));
    case "start_task":
      return (await onward.startTask(args.kind, input, { id: args.id })).result();
    case "until":
      return onward.execute("wait", { run: id, status: ["paused"] });
    case "view":
    case "log":
    case "list_runs":
      return onward.execute(verb, args);
    default:
      throw new Error(`unknown verb ${verb}`);
  }
}

function startOptions({ id, signal }: Any): object {
  return { id, ...(signal && { signal: { name: signal.name, payload: signal.value, id: signal.id } }) };
}

async function answer(onward: Onward, line: string): Promise<void> {
  const { id, verb, args } = JSON.parse(line) as { id: number; verb: string; args: Any };
  let reply: object;
  try {
    reply = { value: (await act(onward, verb, args)) ?? null };
  } catch (error) {
    if (!(error instanceof OnwardError)) throw error;
    const { code, message } = error;
    reply = { error: code, message };
    if (error instanceof RunFailed) {
      const { code, message, retryable, details } = error.failure;
      reply = { ...reply, failure: { code, message, retryable, details } };
    }
  }
  process.stdout.write(`${JSON.stringify({ id, ...reply })}\n`);
}

const model = process.env["CONFORMANCE_MODEL"];
const options = {
  workflows,
  tasks,
  agents,
  tools: [lookup],
  threads: 1,
  lease: { seconds: 3 },
  checkReplay: "every" as const,
  models: { providers: { p: { api_format: "openai", base_url: `${model}/v1` } }, models: { scripted: { provider: "p" } } },
};
await using onward = store.includes("://") ? await Onward.connect(store, options) : await Onward.embedded(store, options);
process.stdout.write('{"ready": true}\n');
for await (const line of createInterface(process.stdin)) void answer(onward, line);
