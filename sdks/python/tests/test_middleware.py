"""Middleware: the deterministic part is code of the run, the other surrounds real attempts."""

import asyncio
import json
import os
import threading
from dataclasses import dataclass
from typing import Any

import pytest
from conftest import opened, paused_message
from test_agents import models as models  # the fixture

from onward import Ctx, Failure, InvalidArguments, Onward, TaskCtx, task, workflow
from onward.agents import Agent, tool
from onward.middleware import AttemptCall, Middleware, NextAttempt, NextRun, RateLimit, Redaction, RunCall, Timed, Timing
from onward.testing import Divergence, Script, replay

needs_model = pytest.mark.skipif("ONWARD_BIN" not in os.environ, reason="`cargo xtask test python` sets ONWARD_BIN")


class Notes(Middleware):
    def __init__(self, name: str, seen: list[str]) -> None:
        self.name = name
        self.seen = seen

    async def run(self, call: RunCall, next: NextRun) -> Any:
        self.seen.append(f"{self.name} run {call.kind} {call.input}")
        try:
            return await next(call)
        finally:
            self.seen.append(f"{self.name} run ended")

    async def attempt(self, call: AttemptCall, next: NextAttempt) -> Any:
        self.seen.append(f"{self.name} {call.kind} {call.name} {call.attempt} {call.input}")
        result = await next(call)
        self.seen.append(f"{self.name} got {result}")
        return result


@dataclass
class Order:
    item: str
    cents: int


def plain(cents: int) -> str:
    assert threading.current_thread() is not threading.main_thread()
    return f"paid {cents}"


@task("double")
async def double(cents: int) -> int:
    return 2 * cents


@workflow("pay")
async def pay(ctx: Ctx, order: Order) -> str:
    doubled = await ctx.task(double, order.cents)
    await ctx.signal("go").recv()
    return await ctx.step("charge", plain, doubled, input=order.item)


async def test_middlewares_surround_runs_and_attempts_in_order_and_a_restart_repeats_no_attempt(directory: str) -> None:
    seen: list[str] = []
    middleware = [Notes("outer", seen), Notes("inner", seen)]
    async with opened(pay, double, store=directory, middleware=middleware, check_replay="off") as onward:
        run = await onward.start(pay, Order("teapot", 5), id="p")
        await run.wait(status="waiting")
    async with opened(pay, double, store=directory, middleware=middleware, check_replay="off") as onward:
        run = onward.run("p", pay)
        await run.signal("go")
        assert await run.result() == "paid 10"
    attempts = [note for note in seen if " run " not in note]
    assert attempts == [
        "outer task double 1 5",
        "inner task double 1 5",
        "inner got 10",
        "outer got 10",
        "outer step charge 1 teapot",
        "inner step charge 1 teapot",
        "inner got paid 10",
        "outer got paid 10",
    ]
    begun = "run pay {'item': 'teapot', 'cents': 5}"
    assert [note for note in seen if begun in note] == [f"outer {begun}", f"inner {begun}"] * 2, "the replay runs it again"
    assert seen[-2:] == ["inner run ended", "outer run ended"]


class Changes(Middleware):
    async def run(self, call: RunCall, next: NextRun) -> Any:
        tenant = await call.ctx.step("tenant", lambda: "acme")
        call.ctx.state["tenant"] = tenant
        call.input *= 10
        try:
            return f"{tenant} {await next(call)}"
        except Failure as failure:
            if failure.code != "harmless":
                raise
            return "harmless"

    async def attempt(self, call: AttemptCall, next: NextAttempt) -> Any:
        if call.kind == "task":
            call.input += 1
        result = await next(call)
        return 2 * result if call.name == "doubled" else result


@workflow("changed")
async def changed(ctx: Ctx, n: int) -> Any:
    doubled = await ctx.step("doubled", lambda: n + 1)
    await ctx.sleep(60)
    if n == 20:
        raise Failure("no", code="harmless")
    return doubled


def test_the_code_sees_what_a_middleware_returns_live_and_replayed() -> None:
    script = Script(changed, 1, middleware=[Changes()])
    outcome = script.run()
    assert outcome.output == "acme 22" and outcome.steps_run == ["tenant", "doubled"]
    script.crash_everywhere()
    assert Script(changed, 2, middleware=[Changes()]).run().output == "harmless"
    replay(changed, "test", outcome.logs[0], middleware=[Changes()])
    with pytest.raises(Divergence, match="tenant"):
        replay(changed, "test", outcome.logs[0])


async def test_a_middleware_changes_the_input_of_a_task() -> None:
    @workflow("w")
    async def code(ctx: Ctx, n: int) -> Any:
        return await ctx.task(double, n)

    async with opened(code, double, middleware=[Changes()]) as onward:
        assert await (await onward.start(code, 1)).result() == "acme 22"  # (10 + 1) * 2


class Clock(Middleware):
    async def run(self, call: RunCall, next: NextRun) -> Any:
        await asyncio.sleep(1)
        return await next(call)


async def test_io_in_the_deterministic_part_pauses_the_run() -> None:
    async with opened(changed, middleware=[Clock()]) as onward:
        assert "ctx.sleep" in await paused_message(onward, await onward.start(changed, 1))


async def test_an_attempt_whose_middleware_fails_is_retried() -> None:
    class Breaks(Middleware):
        async def attempt(self, call: AttemptCall, next: NextAttempt) -> Any:
            if call.attempt == 1:
                raise ValueError("the middleware broke")
            return await next(call)

    @workflow("w")
    async def code(ctx: Ctx) -> str:
        with pytest.raises(Failure, match="the middleware broke"):
            await ctx.step("once", plain, 1)
        return await ctx.step("twice", plain, 2, retry=2)

    async with opened(code, middleware=[Breaks()]) as onward:
        assert await (await onward.start(code)).result() == "paid 2"


async def test_a_refused_attempt_does_not_run_and_is_retried() -> None:
    ran: list[int] = []

    @task("call")
    def call(ctx: TaskCtx, n: int) -> int:
        ran.append(n)
        return n

    @workflow("w")
    async def code(ctx: Ctx) -> int:
        first = await ctx.task(call, 7)
        other = await ctx.task(call, 8)
        with pytest.raises(Failure) as refused:
            await ctx.task(call, 7, retry=1)
        assert refused.value.code == "attempt_rate_limited" and refused.value.retryable
        assert 0 < (refused.value.retry_after_ms or 0) <= 201
        return first + other + await ctx.task(call, 7, retry=5)

    limit = RateLimit(1, per=0.2, key=lambda call: str(call.input) if call.name == "call" else None, wait_max=0)
    async with opened(code, call, middleware=[limit]) as onward:
        assert await (await onward.start(code)).result() == 22
    assert ran == [7, 8, 7]


def test_a_rate_limit_is_a_bucket_for_each_key() -> None:
    now = 100.0
    limit = RateLimit(4, per=1, wait_max=1, clock=lambda: now)
    assert [limit.take("a") for _ in range(7)] == [0, 0, 0, 0, 0.25, 0.5, 0.75]
    assert limit.take("b") == 0
    refusing = RateLimit(1, per=1, wait_max=0, clock=lambda: now)
    assert [refusing.take("a") for _ in range(3)] == [0, None, None]
    now += 1
    assert refusing.take("a") == 0, "a refused attempt takes no turn"
    for second in range(10):
        now += 2
        for key in range(1024):
            refusing.take(f"{second} {key}")
    assert len(refusing._full_at) <= 3 * 1024
    with pytest.raises(InvalidArguments):
        RateLimit(0, per=1)


async def test_redaction_applies_to_results_failures_recorded_inputs_and_outputs() -> None:
    def declined() -> None:
        raise ValueError("card 411122223333 declined")

    @workflow("w")
    async def code(ctx: Ctx) -> Any:
        paid = await ctx.step("pay", lambda: {"Card": 411122223333, "ok": 1.5}, input={"card": "411122223333", "n": 1}, record=True)
        assert paid == {"Card": "[redacted]", "ok": 1.5}
        with pytest.raises(Failure, match="card \\*\\*\\*\\* declined"):
            await ctx.step("fails", declined)
        return ["card 411122223333", paid]

    redaction = Redaction(fields=["card"], text=lambda text: text.replace("411122223333", "****"))
    async with opened(code, middleware=[redaction]) as onward:
        run = await onward.start(code)
        assert await run.result() == ["card ****", {"Card": "[redacted]", "ok": 1.5}]
        log = json.dumps(await run.log())
    # The hash of an input is not its text.
    assert "411122223333" not in log and '"n": 1' in log


async def test_timing_reports_each_attempt_and_records_the_time_of_the_run() -> None:
    timed: list[Timed] = []

    @workflow("w")
    async def code(ctx: Ctx) -> str:
        return await ctx.step("s", plain, 1)

    async with opened(code, middleware=[Timing(timed.append, run_state="took_ms")]) as onward:
        run = await onward.start(code)
        await run.result()
        assert (await run.view()).state["took_ms"] >= 0
    assert [(found.kind, found.name, found.attempt, found.failed) for found in timed] == [("step", "s", 1, None)]


def test_what_is_no_middleware_is_refused() -> None:
    with pytest.raises(InvalidArguments, match="not a middleware"):
        Onward.in_memory(middleware=[Notes])


@tool(effect="pure")
async def weather(city: str) -> str:
    """Tells the weather in a city."""
    return f"sunny in {city}, card 411122223333"


@needs_model
async def test_model_calls_and_tools_pass_middlewares(models: dict[str, Any]) -> None:
    seen: list[AttemptCall] = []
    refused: list[str] = []

    class Sees(Middleware):
        async def attempt(self, call: AttemptCall, next: NextAttempt) -> Any:
            if call.kind == "model_call" and not refused:
                refused.append(call.name)
                raise Failure("not now", retry_after_ms=1)
            seen.append(call)
            return await next(call)

    helper = Agent("helper", model="m", system="Never say 411122223333.", tools=[weather])
    redaction = Redaction(text=lambda text: text.replace("411122223333", "****"))
    async with opened(agents=[helper], models=models, middleware=[redaction, Sees()]) as onward:
        outcome = await (await onward.start("helper", 'weather {"city":"Ulm"} 411122223333')).result()
    assert [call.kind for call in seen][:2] == ["model_call", "tool"] and refused == ["m"]
    assert outcome["text"].startswith("weather says: sunny in Ulm"), outcome
    assert "411122223333" not in json.dumps([call.input for call in seen]) and "411122223333" not in json.dumps(outcome)
    assert seen[1].name == "weather" and seen[1].input == {"city": "Ulm"}
