"""Combinators of asyncio in workflow code: the order is that of the log, and the same in every replay."""

import asyncio
import sys
from typing import Any

import pytest
from conftest import opened, paused_message, result_of

from onward import Ctx, Failure, RunFailed, workflow

needs_3_11 = pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio.TaskGroup and asyncio.timeout came with 3.11")


async def number(value: int) -> int:
    await asyncio.sleep(0)
    return value


async def fail(message: str) -> int:
    raise ValueError(message)


async def test_gather_returns_results_in_the_order_of_its_arguments() -> None:
    @workflow("w")
    async def w(ctx: Ctx) -> list[int]:
        sleeps = [asyncio.create_task(after(ctx, ms)) for ms in (30, 10, 20)]
        return await asyncio.gather(*sleeps, ctx.step("s", number, 5))

    assert await result_of(w) == [30, 10, 20, 5]


async def after(ctx: Ctx, ms: int) -> int:
    await ctx.sleep(ms / 1000)
    return ms


async def test_answers_arrive_one_at_a_time_in_the_order_of_the_log() -> None:
    order: list[list[str]] = []

    @workflow("w")
    async def w(ctx: Ctx) -> list[str]:
        found: list[str] = []
        order.append(found)

        async def listen(name: str) -> None:
            await ctx.signal(name).recv()
            found.append(name)
            await asyncio.sleep(0)  # to quiescence before the next answer
            found.append(name.upper())

        await asyncio.gather(*(listen(name) for name in "abc"))
        return found

    async with opened(w) as onward:
        run = await onward.start(w)
        await run.wait(status="waiting")
        for name in "cab":
            await run.signal(name)
        assert await run.result() == ["c", "C", "a", "A", "b", "B"]
    # Every replay has a prefix of the same order.
    assert len(order) > 1
    assert all(found == ["c", "C", "a", "A", "b", "B"][: len(found)] for found in order)


async def test_wait_finds_the_first_and_the_loser_can_be_cancelled() -> None:
    @workflow("w")
    async def w(ctx: Ctx) -> str:
        payment, timeout = ctx.signal("payment").recv(), ctx.sleep(3600)
        done, pending = await asyncio.wait({payment, timeout}, return_when=asyncio.FIRST_COMPLETED)
        assert done == {payment} and pending == {timeout}
        timeout.cancel()
        return str(payment.result())

    async with opened(w) as onward:
        run = await onward.start(w)
        await run.signal("payment", "paid")
        assert await run.result() == "paid"
        kinds = [event["type"] for record in await run.log() for event in record["events"]]
        assert any("cancel" in kind or "dropped" in kind for kind in kinds), kinds


async def test_select_returns_the_first_and_gives_the_others_up() -> None:
    @workflow("w")
    async def w(ctx: Ctx) -> list[Any]:
        found: list[Any] = []
        found.append(await ctx.select(timeout=ctx.sleep(0.01), payment=ctx.signal("payment").recv()))
        await ctx.signal("go").recv()
        # The dropped `recv` did not take the signal.
        found.append(await ctx.select(timeout=ctx.sleep(3600), payment=ctx.signal("payment").recv()))
        try:
            await ctx.select(step=ctx.step("fail", fail, "no"), never=ctx.signal("never").recv())
        except Failure as failure:
            found.append(failure.message)
        return found

    async with opened(w) as onward:
        run = await onward.start(w)
        while not any(found["name"] == "go" for found in (await run.view()).awaiting):
            await asyncio.sleep(0.005)
        await run.signal("payment", 5)
        await run.signal("go")
        assert await run.result() == [["timeout", None], ["payment", 5], "no"]


async def test_sets_of_calls_and_tasks_have_the_same_order_in_every_replay() -> None:
    orders: list[list[int]] = []

    @workflow("w")
    async def w(ctx: Ctx) -> list[int]:
        tasks = {asyncio.create_task(after(ctx, ms)) for ms in range(1, 40)}
        found = []
        order: list[int] = []
        orders.append(order)
        for task in tasks:
            order.append(task.number)  # type: ignore[attr-defined]
        while tasks:
            done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            found += [task.result() for task in done]
        return found

    assert sorted(await result_of(w, check_replay="doubling")) == list(range(1, 40))
    assert len(orders) > 1 and all(order == sorted(orders[0]) for order in orders)


async def test_as_completed_wait_for_queues_events_and_locks_work() -> None:
    @workflow("w")
    async def w(ctx: Ctx) -> list[Any]:
        found: list[Any] = []
        for next_one in asyncio.as_completed([after(ctx, 20), after(ctx, 5)]):
            found.append(await next_one)
        queue: asyncio.Queue[int] = asyncio.Queue()
        ready = asyncio.Event()
        lock = asyncio.Lock()

        async def produce() -> None:
            async with lock:
                await queue.put(await ctx.step("n", number, 7))
            ready.set()

        producing = asyncio.create_task(produce())
        await ready.wait()
        found.append(await queue.get())
        await producing
        try:
            await asyncio.wait_for(ctx.signal("never").recv(), 0.01)
        except asyncio.TimeoutError:
            found.append("timeout")
        found.append(await asyncio.wait_for(ctx.step("in time", number, 8), 3600))
        return found

    assert await result_of(w) == [5, 20, 7, "timeout", 8]


@needs_3_11
async def test_a_task_group_takes_calls_and_cancels_its_tasks_when_one_fails() -> None:
    @workflow("w")
    async def w(ctx: Ctx) -> list[Any]:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(ctx.step("a", number, 1))
            second = group.create_task(after(ctx, 5))
        found: list[Any] = [first.result(), second.result()]
        canceled = []

        async def waits() -> None:
            try:
                await ctx.signal("never").recv()
            except asyncio.CancelledError:
                canceled.append(True)
                raise

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(waits())
                group.create_task(ctx.step("b", fail, "no"))
        except Exception as group:  # `except*` is no syntax of 3.10
            found.append(str(group.exceptions[0]))  # type: ignore[attr-defined]
        return [*found, canceled]

    assert await result_of(w) == [1, 5, "ValueError: no", [True]]


@needs_3_11
async def test_a_timeout_is_a_durable_timer() -> None:
    @workflow("w")
    async def w(ctx: Ctx) -> list[Any]:
        found: list[Any] = []
        try:
            async with asyncio.timeout(0.01):
                await ctx.signal("never").recv()
        except TimeoutError:
            found.append("timeout")
        async with asyncio.timeout(3600):
            found.append(await ctx.step("s", number, 1))
        return found

    async with opened(w) as onward:
        run = await onward.start(w)
        assert await run.result() == ["timeout", 1]
        kinds = [event["type"] for record in await run.log() for event in record["events"]]
        assert kinds.count("timer_started") == 2


async def test_code_that_diverges_from_the_log_is_paused_with_both_calls(directory: str) -> None:
    def version(step: str) -> Any:
        @workflow("w")
        async def w(ctx: Ctx) -> None:
            await ctx.step(step, number, 1)
            await ctx.signal("go").recv()

        return w

    old, new = version("old"), version("new")
    async with opened(old, store=directory) as onward:
        run = await onward.start(old, id="x")
        await run.wait(status="waiting")
    async with opened(new, store=directory) as onward:
        run = onward.run("x")
        await run.signal("go")
        message = await paused_message(onward, run)
    assert "old" in message and "new" in message


async def test_random_order_is_found_by_the_replay_check() -> None:
    flips = iter([True, False] * 100)

    @workflow("w")
    async def w(ctx: Ctx) -> None:
        await ctx.step("a" if next(flips) else "b", number, 1)
        await ctx.step("c", number, 1)
        await ctx.signal("never").recv()

    async with opened(w) as onward:
        message = await paused_message(onward, await onward.start(w))
    assert "`a`" in message or "`b`" in message or "a" in message


REFUSED = {
    "time.time": "ctx.now()",
    "time.monotonic": "ctx.now()",
    "time.sleep": "ctx.sleep(..)",
    "datetime.now": "ctx.now()",
    "datetime.utcnow": "ctx.now()",
    "date.today": "ctx.now()",
    "random.random": "ctx.random()",
    "random.choice": "ctx.random()",
    "uuid.uuid4": "ctx.uuid()",
    "os.urandom": "ctx.random()",
    "secrets.token_hex": "ctx.random()",
    "asyncio.sleep": "ctx.sleep(..)",
    "asyncio.to_thread": "ctx.step",
    "asyncio.open_connection": "ctx.step",
    "asyncio.create_subprocess_exec": "ctx.step",
    "foreign future": "ctx.step",
    "threads": "signal",
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_differs_between_replays_is_refused_with_the_replacement(name: str) -> None:
    import datetime
    import os
    import random
    import secrets
    import time
    import uuid

    foreign = asyncio.get_running_loop().create_future()
    uses: dict[str, Any] = {
        "time.time": time.time,
        "time.monotonic": time.monotonic,
        "time.sleep": lambda: time.sleep(0),
        "datetime.now": lambda: datetime.datetime.now(),
        "datetime.utcnow": lambda: datetime.datetime.utcnow(),
        "date.today": lambda: datetime.date.today(),
        "random.random": lambda: random.random(),
        "random.choice": lambda: random.choice([1, 2]),
        "uuid.uuid4": lambda: uuid.uuid4(),
        "os.urandom": lambda: os.urandom(1),
        "secrets.token_hex": lambda: secrets.token_hex(),
        "asyncio.sleep": lambda: asyncio.sleep(0.001),
        "asyncio.to_thread": lambda: asyncio.to_thread(len, ""),
        "asyncio.open_connection": lambda: asyncio.open_connection("localhost", 1),
        "asyncio.create_subprocess_exec": lambda: asyncio.create_subprocess_exec("true"),
        "foreign future": lambda: foreign,
        "threads": lambda: asyncio.get_running_loop().call_soon_threadsafe(len, ""),
    }

    @workflow("w")
    async def w(ctx: Ctx) -> None:
        await ctx.step("before", number, 1)
        use = getattr(time, name.split(".")[1]) if name in ("time.time", "time.monotonic") else uses[name]
        found = use()
        if asyncio.isfuture(found) or asyncio.iscoroutine(found):
            await found

    async with opened(w) as onward:
        message = await paused_message(onward, await onward.start(w))
    assert REFUSED[name] in message, message
    time.time()  # works outside
    random.random()
    datetime.datetime.now()


async def test_a_loop_that_never_waits_is_paused() -> None:
    @workflow("w")
    async def w(ctx: Ctx) -> None:
        while True:
            await asyncio.sleep(0)

    async with opened(w) as onward:
        message = await paused_message(onward, await onward.start(w))
    assert "without waiting" in message


async def test_code_that_waits_for_nothing_is_paused() -> None:
    @workflow("w")
    async def w(ctx: Ctx) -> None:
        await asyncio.get_running_loop().create_future()

    async with opened(w) as onward:
        assert await paused_message(onward, await onward.start(w))


async def test_logging_works_in_workflow_code() -> None:
    import logging

    @workflow("w")
    async def w(ctx: Ctx) -> int:
        logging.getLogger("test").warning("hello from %s", ctx.id)
        return 1

    assert await result_of(w) == 1


# ---- cancellation ----


async def test_cancel_raises_cancelled_error_and_lets_the_code_clean_up() -> None:
    cleaned: list[str] = []

    @workflow("w")
    async def w(ctx: Ctx) -> None:
        try:
            await ctx.signal("never").recv()
        except asyncio.CancelledError:
            assert ctx.is_canceled
            await ctx.step("clean", lambda: cleaned.append("up"))
            raise

    async with opened(w) as onward:
        run = await onward.start(w)
        await run.wait(status="waiting")
        await run.cancel("enough")
        with pytest.raises(RunFailed):
            await run.result()
        assert (await run.view()).status == "canceled"
    assert cleaned == ["up"]


@needs_3_11
async def test_cancel_reaches_code_that_waits_in_a_task_group() -> None:
    @workflow("w")
    async def w(ctx: Ctx) -> list[str]:
        found: list[str] = []

        async def waits(name: str) -> None:
            try:
                await ctx.signal(name).recv()
            except asyncio.CancelledError:
                found.append(name)
                raise

        try:
            async with asyncio.TaskGroup() as group:
                for name in "abc":
                    group.create_task(waits(name))
        except asyncio.CancelledError:
            found.append("group")
        return [*found, str(await ctx.step("after", number, 1))]

    async with opened(w) as onward:
        run = await onward.start(w)
        await run.wait(status="waiting")
        await run.cancel()
        assert await run.result() == ["a", "b", "c", "group", "1"]


async def test_canceled_is_awaited_like_any_other_call() -> None:
    @workflow("w")
    async def w(ctx: Ctx) -> str:
        canceled, reading = ctx.canceled(), ctx.signal("reading").recv()
        done, _ = await asyncio.wait([canceled, reading], return_when=asyncio.FIRST_COMPLETED)
        reading.cancel()
        await ctx.step("close valve", number, 1)
        return "closed" if canceled in done else "read"

    async with opened(w) as onward:
        run = await onward.start(w)
        await run.wait(status="waiting")
        await run.cancel()
        assert await run.result() == "closed"


async def test_a_task_that_is_cancelled_by_the_code_fails_with_canceled() -> None:
    from onward import task

    began = asyncio.Event()

    @task("slow")
    async def slow() -> None:
        began.set()
        await asyncio.sleep(3600)

    @workflow("w")
    async def w(ctx: Ctx) -> str:
        call = ctx.task(slow)
        await ctx.signal("stop").recv()
        await call.cancel_work()
        try:
            await call
        except Failure as failure:
            return failure.code
        return "done"

    async with opened(w, slow) as onward:
        run = await onward.start(w)
        await began.wait()
        await run.signal("stop")
        assert await run.result() == "canceled"
