"""The conformance program in Python: the workflows, tasks and agents of claims.json, and a client that obeys lines of JSON.

`program.py STORE EFFECTS`: STORE is a directory or the URL of a server. Each execution of a step or task function appends a line
to the file EFFECTS. `CONFORMANCE_OLD` selects the code before a change, `CONFORMANCE_BREAK` breaks a claim on purpose.
"""

import asyncio
import contextlib
import json
import os
import sys
import time
from datetime import timedelta
from typing import Any

from onward import Ctx, Failure, Onward, OnwardError, RandomGenerator, RetryPolicy, TaskCtx, current_attempt, task, workflow
from onward.agents import Agent, AgentCtx, Done, Next, agent, tool

STORE, EFFECTS = sys.argv[1:3]
IS_OLD = "CONFORMANCE_OLD" in os.environ
BROKEN = os.environ.get("CONFORMANCE_BREAK", "")

effects = os.open(EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
workflows: list[Any] = []
tasks: list[Any] = []


def mark(run: str, name: str) -> None:
    line = f"{run} {name}\n".encode()
    os.write(effects, line * 2 if BROKEN == "effect" else line)


async def hold(ctx: Ctx, given: Any) -> None:
    """Waits before the end, so that another program can replay the whole log."""
    if given.get("hold"):
        ctx.state["held"] = True
        await ctx.signal("conformance.end").recv()


def kind(name: str, define: Any = workflow) -> Any:
    def register(code: Any) -> Any:
        async def run(ctx: Any, given: Any) -> Any:
            try:
                output = await code(ctx, given.get("in"))
            except (Exception, asyncio.CancelledError):
                await hold(ctx, given)
                raise
            await hold(ctx, given)
            return output

        workflows.append(define(name)(run))
        return code

    return register


def job(name: str) -> Any:
    def register(code: Any) -> Any:
        tasks.append(task(name)(code))
        return code

    return register


def does(ctx: Ctx, name: str, value: Any = None, **options: Any) -> Any:
    """Calls a step that leaves a line in the file of effects."""
    run = ctx.id

    async def work() -> Any:
        mark(run, name)
        return value

    return ctx.step(name, work, **options)


def explode(message: str) -> None:
    raise ValueError(message)


async def outcome_of(call: Any) -> Any:
    try:
        return await call
    except Failure as failure:
        return [failure.code, failure.message]


async def race(*calls: Any) -> int:
    """Returns the index of the first call that is done, and drops the others."""
    done, pending = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    first = next(index for index, call in enumerate(calls) if call in done)
    for call in calls:
        if call in pending:
            call.cancel()
    return first


# ---- steps ----


@kind("once")
async def once(ctx: Ctx, names: list[str]) -> Any:
    if BROKEN == "divergence":
        await does(ctx, "new")
    return [await does(ctx, name, f"{name}!" if BROKEN == "result" else name) for name in names]


@kind("values")
async def values(ctx: Ctx, value: Any) -> Any:
    return await does(ctx, "echo", value)


@kind("retried")
async def retried(ctx: Ctx, given: dict[str, Any]) -> Any:
    run, policy = ctx.id, RetryPolicy(given["attempts"], first_delay=given["delay"] / 1000)

    def flaky() -> int:
        mark(run, "flaky")
        number = current_attempt().number
        if number < given["succeeds"]:
            raise Failure("never", retryable=False) if given.get("fatal") else ValueError(f"attempt {number}")
        return number

    before = ctx.now()
    found = await outcome_of(ctx.step("flaky", flaky, retry=policy))
    return {"found": found, "waited": ctx.now() - before >= timedelta(milliseconds=given["delay"])}


@kind("slow-step")
async def slow_step(ctx: Ctx, _: Any) -> Any:
    async def slow() -> None:
        mark(ctx.id, "slow")
        await asyncio.sleep(3600)

    return (await outcome_of(ctx.step("slow", slow, timeout=0.03)))[0]


@kind("inputs")
async def inputs(ctx: Ctx, value: Any) -> Any:
    return await does(ctx, "reads", 1, input=value, record=True)


@kind("fails")
async def fails(ctx: Ctx, how: str) -> Any:
    match how:
        case "step":
            await ctx.step("explodes", explode, "out of stock")
        case "code":
            explode("in the code")
        case "own":
            raise Failure("too much", code="declined", retryable=False, data={"limit": 5})
        case "caught":
            return await outcome_of(ctx.step("explodes", explode, "out of stock"))
        case "bad":
            await ctx.step("bad", lambda: {"items": [1, {"price": float("nan")}]})


@kind("large")
async def large(ctx: Ctx, size: int) -> Any:
    return (await outcome_of(ctx.step("large", lambda: "x" * size)))[0]


@kind("gathered")
async def gathered(ctx: Ctx, names: list[str]) -> Any:
    return await asyncio.gather(*(does(ctx, name, name) for name in names))


@kind("settled")
async def settled(ctx: Ctx, _: Any) -> Any:
    calls = [does(ctx, "a", 1), ctx.step("b", explode, "b broke"), does(ctx, "c", 3)]
    found = await asyncio.gather(*calls, return_exceptions=True)
    return [value.message if isinstance(value, Failure) else value for value in found]


@kind("gather-fails")
async def gather_fails(ctx: Ctx, _: Any) -> Any:
    return await outcome_of(asyncio.gather(does(ctx, "a", 1), ctx.step("b", explode, "b broke")))


@kind("many")
async def many(ctx: Ctx, count: int) -> Any:
    total = 0
    for number in range(count):
        total += await does(ctx, f"s{number}", number)
    return total


# ---- signals ----


@kind("receives")
async def receives(ctx: Ctx, given: dict[str, Any]) -> Any:
    found = []
    for turn in range(given["count"]):
        value = await ctx.signal(given["name"]).recv()
        found.append(value)
        await does(ctx, f"turn-{turn}")
    return found


@kind("polls")
async def polls(ctx: Ctx, _: Any) -> Any:
    await ctx.signal("go").recv()
    box = ctx.signal("box")
    found: list[Any] = [box.has(), box.count(), box.try_recv(), box.drain(), box.has(), box.count(), box.try_recv()]
    await does(ctx, "after")
    return found


@kind("pattern")
async def pattern(ctx: Ctx, _: Any) -> Any:
    box = ctx.signals("user.*")
    first = await box.recv()
    await ctx.signal("go").recv()
    rest = [box.has(), box.count(), [[found.name, found.value] for found in box.drain()], box.try_recv()]
    return [[first.name, first.value], *rest]


@kind("times-out")
async def times_out(ctx: Ctx, _: Any) -> Any:
    early = await ctx.signal("late").recv(timeout=0.02)
    ctx.state["early"] = early
    return [early, await ctx.signal("late").recv(timeout=3600)]


@kind("sends")
async def sends(ctx: Ctx, to: str) -> Any:
    ctx.send_signal(to, "news", {"from": "a child"})


@kind("gets-news")
async def gets_news(ctx: Ctx, _: Any) -> Any:
    child = ctx.child("sends", {"in": ctx.id})
    news = await ctx.signal("news").recv()
    await child
    return news


@kind("select")
async def select(ctx: Ctx, given: dict[str, Any]) -> Any:
    signal = ctx.signal("answer").recv()
    first = await race(signal, ctx.sleep(given["ms"] / 1000))
    ctx.state["first"] = first
    answer = await ctx.signal("answer").recv() if first == 1 else signal.result()
    await does(ctx, "after")
    return [first, answer]


@kind("race-arrival")
async def race_arrival(ctx: Ctx, _: Any) -> Any:
    ctx.state["ready"] = True
    first = await race(ctx.signal("x").recv(), ctx.signal("y").recv())
    await ctx.signal("end").recv()
    return first


@kind("race-order")
async def race_order(ctx: Ctx, _: Any) -> Any:
    await ctx.signal("go").recv()
    return await race(ctx.signal("x").recv(), ctx.signal("y").recv())


# ---- time ----


@kind("sleeps")
async def sleeps(ctx: Ctx, ms: int) -> Any:
    before = ctx.now()
    await ctx.sleep(ms / 1000)
    await does(ctx, "between")
    await ctx.sleep_until(ctx.now() + timedelta(milliseconds=ms))
    return ctx.now() - before >= timedelta(milliseconds=2 * ms)


@kind("timers")
async def timers(ctx: Ctx, spans: list[int]) -> Any:
    order = []

    async def wait(ms: int) -> None:
        await ctx.sleep(ms / 1000)
        order.append(ms)

    await asyncio.gather(*(wait(ms) for ms in spans))
    return order


@kind("replays")
async def replays(ctx: Ctx, _: Any) -> Any:
    made = [str(ctx.uuid()), ctx.random(), str(ctx.uuid()), int(ctx.now().timestamp() * 1000)]
    kept = await does(ctx, "keep", made)
    await ctx.signal("go").recv()
    return [kept == made, made[0] != made[2], 0 <= kept[1] < 1]


@kind("draws")
async def draws(ctx: Ctx, seed: int) -> Any:
    seeded, own = RandomGenerator(seed), ctx.random_generator()
    items = [0, 1, 2, 3]
    drawn = [[seeded.integer(-3, 7) for _ in items], seeded.float(), seeded.chance(0.5), seeded.choice("abc"), items]
    seeded.shuffle(items)
    made = [own.integer(0, 1000), own.float()]
    kept = await does(ctx, "keep", made)
    await ctx.signal("go").recv()
    return [*drawn, kept == made]


# ---- cancellation ----


@kind("waits")
async def waits(ctx: Ctx, _: Any) -> Any:
    ctx.state["ready"] = True
    return await ctx.signal("never").recv()


@kind("cleans-up")
async def cleans_up(ctx: Ctx, how: str) -> Any:
    try:
        ctx.state["ready"] = True
        await ctx.signal("never").recv()
    except asyncio.CancelledError:
        await does(ctx, "clean-up")
        if how == "raise":
            raise
    return [ctx.is_canceled, await does(ctx, "after", 1)]


@kind("watches-cancel")
async def watches_cancel(ctx: Ctx, _: Any) -> Any:
    signal, canceled = ctx.signal("never").recv(), ctx.canceled()
    ctx.state["ready"] = True
    first = await race(signal, canceled)
    await does(ctx, "close-valve")
    return first


@kind("two-waits")
async def two_waits(ctx: Ctx, _: Any) -> Any:
    calls = [ctx.sleep(3600), ctx.signal("never").recv()]
    ctx.state["ready"] = True
    # As with `Task.cancel`, the request also interrupts what awaits the calls.
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.wait(calls)
    await does(ctx, "after")
    return [call.done() and call.cancelled() for call in calls]


@kind("parent-waits")
async def parent_waits(ctx: Ctx, _: Any) -> Any:
    child = ctx.child("waits", {}, id=f"{ctx.id}-child")
    ctx.state["ready"] = True
    return await child


# ---- tasks ----


@job("double")
async def double(ctx: TaskCtx, given: dict[str, Any]) -> Any:
    mark(given["run"], "double")
    return 2 * given["n"]


@job("flaky-task")
def flaky_task(ctx: TaskCtx, given: dict[str, Any]) -> Any:
    mark(given["run"], "flaky-task")
    if ctx.attempt < given["succeeds"]:
        raise ValueError("not yet")
    return "done"


@job("key")
async def key(ctx: TaskCtx, _: Any) -> Any:
    return ctx.idempotency_key


@job("beats")
async def beats(ctx: TaskCtx, given: dict[str, Any]) -> Any:
    for number in range(3):
        ctx.heartbeat({"done": number})
        await asyncio.sleep(0.002)
    mark(given["run"], "beats")
    return ctx.is_canceled


@job("hangs")
async def hangs(ctx: TaskCtx, _: Any) -> Any:
    await asyncio.sleep(3600)


@kind("task")
async def one_task(ctx: Ctx, given: dict[str, Any]) -> Any:
    sent = {**given.get("input", {}), "run": ctx.id}
    policy = RetryPolicy(given.get("attempts", 1), first_delay=0.001)
    timeout = given["timeout"] / 1000 if "timeout" in given else None
    call = ctx.task(given["kind"], sent, retry=policy, timeout=timeout, idempotency_key=given.get("key"), heartbeat=60)
    return await outcome_of(call)


@kind("many-tasks")
async def many_tasks(ctx: Ctx, count: int) -> Any:
    return await asyncio.gather(*(ctx.task("double", {"run": ctx.id, "n": n}, effect="pure") for n in range(count)))


@kind("cancels-task")
async def cancels_task(ctx: Ctx, _: Any) -> Any:
    call = ctx.task("hangs", {})
    await ctx.sleep(0.01)
    canceled = await call.cancel_work()
    try:
        return [canceled, await call]
    except Failure as failure:
        return [canceled, failure.code]
    except asyncio.CancelledError:
        return [canceled, "canceled"]


# ---- approvals, promises ----


@kind("approval")
async def approval(ctx: Ctx, within: int) -> Any:
    call = ctx.approval("ship", "Ship it?", show={"to": "Basel"}, within=within / 1000)
    ctx.state["id"] = call.id
    decision = await call
    return [decision.approved, decision.feedback, decision.decided_by, decision.expired]


@kind("promise")
async def promise(ctx: Ctx, within: int) -> Any:
    call = ctx.promise("parcel", within=within / 1000)
    ctx.state["id"] = call.id
    return await outcome_of(call)


# ---- state, attributes, emissions ----


@kind("state")
async def state(ctx: Ctx, _: Any) -> Any:
    ctx.state["a"] = {"deep": [1, 2]}
    ctx.state["b"] = 2
    ctx.state["b"] = 3
    ctx.state["gone"] = True
    del ctx.state["gone"]
    await does(ctx, "middle")
    return [ctx.state["a"], ctx.state.get("b"), ctx.state.get("gone"), sorted(ctx.state.keys())]


@kind("attributes")
async def attributes(ctx: Ctx, value: str) -> Any:
    ctx.attributes["stage"] = value
    ctx.attributes["count"] = 3
    ctx.attributes["gone"] = True
    del ctx.attributes["gone"]
    ctx.state["ready"] = True
    return await ctx.signal("end").recv()


@kind("emits")
async def emits(ctx: Ctx, count: int) -> Any:
    for number in range(count):
        ctx.emit("progress", {"number": number})
        await does(ctx, f"s{number}")
    return count


# ---- children ----


@kind("child")
async def child(ctx: Ctx, number: int) -> Any:
    if number < 0:
        raise Failure("negative", code="negative")
    return [await does(ctx, "add", number + 1), ctx.nesting]


@kind("parent")
async def parent(ctx: Ctx, numbers: list[int]) -> Any:
    calls = [ctx.child("child", {"in": number}, id=f"{ctx.id}-{number}") for number in numbers]
    return await asyncio.gather(*(outcome_of(call) for call in calls))


@kind("nested")
async def nested(ctx: Ctx, depth: int) -> Any:
    if depth == 0:
        return ctx.nesting
    return await ctx.child("nested", {"in": depth - 1})


@kind("listens")
async def listens(ctx: Ctx, _: Any) -> Any:
    return await ctx.signal("pace").recv()


@kind("signals-child")
async def signals_child(ctx: Ctx, pace: str) -> Any:
    call = ctx.child("listens", {})
    ctx.send_signal(call.run_id, "pace", pace)
    return await call


@kind("spawns")
async def spawns(ctx: Ctx, number: int) -> Any:
    spawned = ctx.spawn("child", {"in": number})
    await ctx.sleep(0.005)
    again = ctx.spawned(spawned.run_id)
    return [await again.result(), await again.result()]


@kind("reports")
async def reports(ctx: Ctx, text: str) -> Any:
    ctx.message_parent(text)
    return await ctx.signal("message").recv()


@kind("converses")
async def converses(ctx: Ctx, text: str) -> Any:
    spawned = ctx.spawn("reports", {"in": text})
    heard = await ctx.signal("message").recv()
    spawned.message("back")
    return [heard, await spawned.result()]


# ---- versions, determinism ----


@kind("version")
async def version(ctx: Ctx, _: Any) -> Any:
    await does(ctx, "before")
    chosen = 0 if IS_OLD else ctx.version("change", 0, 2)
    if chosen == 2:
        await does(ctx, "new")
    await does(ctx, "after")
    return chosen


@kind("diverges")
async def diverges(ctx: Ctx, _: Any) -> Any:
    await does(ctx, "first")
    await does(ctx, "old" if IS_OLD else "new")


@kind("looks-at-clock")
async def looks_at_clock(ctx: Ctx, _: Any) -> Any:
    return time.time()


# ---- queries, updates ----


@kind("counter")
async def counter(ctx: Ctx, start: int) -> Any:
    total = start

    def add(number: int) -> int:
        nonlocal total
        if number < 0:
            raise Failure("negative", code="negative")
        total += number
        return total

    ctx.query("total", lambda: total)
    ctx.query("plus", lambda number: total + number)
    if start == 100:
        await ctx.signal("open").recv()
    ctx.update("add", add)
    ctx.state["ready"] = True
    await ctx.signal("end").recv()
    return total


@kind("awaits-in-updates")
async def awaits_in_updates(ctx: Ctx, how: str) -> Any:
    total = 5
    begun = False

    async def add(number: int) -> int:
        nonlocal total
        if number < 0:
            raise Failure("negative", code="negative")
        await does(ctx, f"add-{number}")
        await ctx.sleep(0.001)
        total += number
        return total

    async def wait(name: str) -> Any:
        nonlocal begun
        begun = True
        return await ctx.signal(name).recv()

    ctx.update("add", add)
    ctx.update("wait", wait)
    ctx.state["ready"] = True
    if how == "abandon":
        while not begun:
            await ctx.sleep(0.01)
        return "over"
    await ctx.signal("end").recv()
    await ctx.updates_finished()
    return total


# ---- compensation, continue-as-new ----


@kind("saga")
async def saga(ctx: Ctx, how: str) -> Any:
    run = ctx.id
    for name in ("flight", "hotel"):
        await does(ctx, f"book-{name}")
        ctx.on_failure(f"cancel-{name}", mark, run, f"cancel-{name}")
    ctx.state["ready"] = True
    if how == "fail":
        raise Failure("no car", code="no_car")
    if how == "wait":
        await ctx.signal("never").recv()
    return "booked"


@kind("continues")
async def continues(ctx: Ctx, left: int) -> Any:
    await does(ctx, f"work-{left}")
    if left > 0:
        await ctx.continue_as_new({"in": left - 1})
    return ctx.generation


@kind("keeps-signals")
async def keeps_signals(ctx: Ctx, given: Any) -> Any:
    if given is None:
        first = await ctx.signal("item").recv()
        await ctx.signal("go").recv()
        await ctx.continue_as_new({"in": first})
    return [given, await ctx.signal("item").recv()]


# ---- agents ----


@kind("turns", agent)
async def turns(ctx: AgentCtx, count: int) -> Any:
    async def turn(number: int) -> Any:
        await does(ctx, f"turn-{number}")
        ctx.append("system", f"turn {number}")
        return Next(number + 1) if number + 1 < count else Done([number + 1, ctx.entry_count()])

    return await ctx.turns(0, turn)


@kind("turns-wait", agent)
async def turns_wait(ctx: AgentCtx, count: int) -> Any:
    async def turn(heard: list[str]) -> Any:
        heard = [*heard, *ctx.signal("message").drain()]
        await does(ctx, f"heard-{len(heard)}")
        return Done(heard) if len(heard) >= count else Next(heard, "message")

    return await ctx.turns([], turn)


@kind("checkpoints", agent)
async def checkpoints(ctx: AgentCtx, count: int) -> Any:
    number = ctx.checkpointed() or 0
    await does(ctx, f"part-{number}")
    if number < count:
        await ctx.checkpoint(number + 1)
    return number


@kind("entries", agent)
async def entries(ctx: AgentCtx, _: Any) -> Any:
    first = ctx.append("user", "hello")
    once = ctx.append("system", {"n": 1}, key="only")
    again = ctx.append("system", {"n": 1}, key="only")
    ctx.state["ready"] = True
    await ctx.signal("go").recv()
    taken = ctx.take_in()
    roles = [entry["role"] for entry in await ctx.messages()]
    return [first != once, once == again, len(taken), ctx.entry_count(), roles]


@kind("asks-model", agent)
async def asks_model(ctx: AgentCtx, text: str) -> Any:
    ctx.append("user", text)
    reply = await ctx.llm("scripted", system="Be brief.")
    ctx.append("assistant", reply)
    await does(ctx, "after")
    return [reply.text, ctx.entry_count()]


@tool("lookup", effect="pure")
async def lookup(ctx: TaskCtx, word: str) -> str:
    """Looks up a word."""
    mark(word, "lookup")
    return f"{word} is a word"


@tool("pay", needs_approval=True)
async def pay(ctx: TaskCtx, word: str) -> str:
    """Pays."""
    mark(word, "pay")
    return f"paid {word}"


@kind("uses-tool", agent)
async def uses_tool(ctx: AgentCtx, text: str) -> Any:
    ctx.append("user", text)

    async def turn(count: int) -> Any:
        reply = await ctx.llm("scripted", tools=[lookup])
        ctx.append("assistant", reply)
        outcomes = await asyncio.gather(*(ctx.tool(call) for call in reply.calls))
        for outcome in outcomes:
            ctx.append("tool", outcome)
        return Next(count + 1) if outcomes else Done([count + 1, reply.text])

    return await ctx.turns(0, turn)


AGENTS = [
    Agent("talker", model="scripted", system="You help.", tools=[lookup]),
    Agent("payer", model="scripted", tools=[pay]),
]


# ---- the client ----


async def act(onward: Onward, verb: str, args: dict[str, Any]) -> Any:
    if verb == "signal" and BROKEN == "lost":
        return None
    if verb == "start":
        return (await onward.start(args.pop("kind"), args.pop("input"), **args)).id
    if verb in ("approve", "disapprove", "resolve", "reject"):
        await getattr(onward, verb)(**args)
    elif verb == "start_task":
        return await (await onward.start_task(args.pop("kind"), args.pop("input"), **args)).result()
    elif verb in ("view", "log", "list_runs"):
        return await onward.request(verb, **args)
    elif verb == "until":
        return await onward.request("wait", run=args["run"], status=["paused"])
    else:
        run = onward.run(args.pop("run"))
        if verb == "wait":
            await run.wait(state=(args["key"], args["value"]))
        elif verb in ("query", "update", "result", "signal", "message", "append", "cancel", "terminate", "pause", "resume"):
            found = await getattr(run, verb)(**args)
            return found if verb in ("query", "update", "result") else None
        else:
            raise Failure(f"unknown verb {verb}")


async def answer(onward: Onward, line: str) -> None:
    asked = json.loads(line)
    try:
        reply: dict[str, Any] = {"value": await act(onward, asked["verb"], asked["args"])}
    except OnwardError as error:
        reply = {"error": error.code, "message": error.message}
        if error.failure is not None:
            failure = error.failure
            reply["failure"] = {name: getattr(failure, name) for name in ("code", "message", "retryable", "details")}
    print(json.dumps({"id": asked["id"], **reply}), flush=True)


async def main() -> None:
    options: dict[str, Any] = {"workflows": workflows, "tasks": tasks, "agents": AGENTS, "tools": [lookup]}
    options |= {"threads": 1, "check_replay": "every", "lease_ms": 3000}
    if model := os.environ.get("CONFORMANCE_MODEL"):
        provider = {"api_format": "openai", "base_url": f"{model}/v1"}
        options["models"] = {"providers": {"p": provider}, "models": {"scripted": {"provider": "p"}}}
    async with Onward(STORE, **options) as onward:
        reader = asyncio.StreamReader(limit=2**24)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        print('{"ready": true}', flush=True)
        running = set()
        while line := await reader.readline():
            running.add(started := asyncio.ensure_future(answer(onward, line.decode())))
            started.add_done_callback(running.discard)


with contextlib.suppress(KeyboardInterrupt):
    asyncio.run(main())
