"""Every call of `ctx` does what it promises, with a replay after every commit."""

import asyncio
import enum
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from conftest import opened, result_of

from onward import (
    Call,
    Ctx,
    Decision,
    Failure,
    Memo,
    OnwardError,
    RandomGenerator,
    RetryPolicy,
    RunExists,
    RunFailed,
    TaskCtx,
    current_attempt,
    task,
    workflow,
)
from onward.testing import Script


async def test_steps_of_async_and_plain_functions_return_their_results() -> None:
    @workflow("steps")
    async def steps(ctx: Ctx, number: int) -> list[Any]:
        async def plus(a: int, b: int) -> int:
            await asyncio.sleep(0.001)
            return a + b

        return [
            await ctx.step("async", plus, number, 1),
            await ctx.step("plain", lambda: number * 2),
            await ctx.step("lambda of async", lambda: plus(number, 3)),
            await ctx.step("method", "a b".split),
            await ctx.step("nothing", lambda: None),
        ]

    assert await result_of(steps, 1) == [2, 2, 4, ["a", "b"], None]


async def test_a_step_is_retried_and_keeps_its_idempotency_key() -> None:
    seen: list[tuple[int, str]] = []

    async def flaky() -> str:
        attempt = current_attempt()
        seen.append((attempt.number, attempt.idempotency_key))
        if attempt.number < 3:
            raise ValueError(f"attempt {attempt.number}")
        return "done"

    @workflow("retries")
    async def retries(ctx: Ctx) -> str:
        return await ctx.step("flaky", flaky, retry=RetryPolicy(5, first_delay=0.001))

    assert await result_of(retries) == "done"
    assert [number for number, _ in seen] == [1, 2, 3]
    assert len({key for _, key in seen}) == 1


async def test_a_kind_has_defaults_that_a_call_replaces() -> None:
    attempts = {"default": 0, "own": 0}

    @task("unsteady", retry=RetryPolicy(3, first_delay=0.001), priority=2)
    async def unsteady(ctx: TaskCtx, of: str) -> int:
        attempts[of] += 1
        if attempts[of] < 3:
            raise ConnectionError("busy")
        return ctx.attempt

    @workflow("unsteady-run", deadline=timedelta(days=2))
    async def unsteady_run(ctx: Ctx) -> list[Any]:
        try:
            await ctx.task(unsteady, "own", retry=1)
        except Failure as failure:
            return [await ctx.task(unsteady, "default"), failure.message]
        raise AssertionError

    async with opened(unsteady_run, unsteady) as onward:
        run = await onward.start(unsteady_run)
        assert await run.result() == [3, "busy"]
    with pytest.raises(TypeError, match="unexpected option 'retries'"):
        task("wrong", retries=3)(lambda: None)  # type: ignore[call-arg]


async def test_a_failed_step_raises_a_failure_with_type_message_and_stack() -> None:
    class CardDeclined(Exception):
        pass

    def charge() -> None:
        raise CardDeclined("no money")

    @workflow("failing")
    async def failing(ctx: Ctx) -> dict[str, Any]:
        try:
            await ctx.step("charge", charge)
        except Failure as failure:
            return {"type": failure.type, "message": failure.message, "code": failure.code, "stack": failure.stack}
        raise AssertionError

    found = await result_of(failing)
    assert (found["type"], found["message"], found["code"]) == ("CardDeclined", "no money", "failed")
    assert 'raise CardDeclined("no money")' in found["stack"]
    assert "onward/_host.py" not in found["stack"]


async def test_a_failure_of_a_run_keeps_its_code_data_and_cause() -> None:
    @workflow("declined")
    async def declined(ctx: Ctx) -> None:
        raise Failure("too expensive", code="declined", retryable=False, data={"limit": 5})

    async with opened(declined) as onward:
        run = await onward.start(declined)
        with pytest.raises(RunFailed) as caught:
            await run.result()
        seen = (await run.view()).failure
    assert seen is not None and seen.code == "declined"
    failure = caught.value.failure
    assert failure is not None
    assert (failure.code, failure.message, failure.data, failure.retryable) == ("declined", "too expensive", {"limit": 5}, False)
    assert caught.value.__cause__ is failure
    assert caught.value.code == "run_failed"


async def test_a_step_that_takes_too_long_times_out_and_is_canceled() -> None:
    canceled = asyncio.Event()

    async def slow() -> None:
        try:
            await asyncio.sleep(HOUR)
        except asyncio.CancelledError:
            canceled.set()
            raise

    @workflow("slow")
    async def slow_run(ctx: Ctx) -> str:
        try:
            await ctx.step("slow", slow, timeout=0.05)
        except Failure as failure:
            return failure.code
        return "done"

    async with opened(slow_run) as onward:
        assert await (await onward.start(slow_run)).result() == "timed_out"
        await asyncio.wait_for(canceled.wait(), 60)


HOUR = 3600


async def test_tasks_run_async_and_plain_functions_with_their_context() -> None:
    @task("double")
    async def double(number: int) -> int:
        return number * 2

    @task("upper")
    def upper(text: str) -> str:
        return text.upper()

    @task("with-context")
    def with_context(ctx: TaskCtx, text: str) -> dict[str, Any]:
        ctx.heartbeat({"at": 1})
        return {"attempt": ctx.attempt, "key": bool(ctx.idempotency_key), "canceled": ctx.is_canceled, "text": text}

    @task("no-input")
    async def no_input() -> str:
        return "none"

    @workflow("tasks")
    async def tasks(ctx: Ctx) -> list[Any]:
        calls: list[Call[Any]] = [ctx.task(double, 4), ctx.task(upper, "a"), ctx.task(with_context, "b"), ctx.task(no_input)]
        return [await call for call in calls] + [await ctx.task("double", 5, effect="pure", priority=3)]

    found = await result_of(tasks, definitions=(double, upper, with_context, no_input))
    assert found == [8, "A", {"attempt": 1, "key": True, "canceled": False, "text": "b"}, "none", 10]


async def test_a_task_is_retried_and_then_fails_with_its_failure() -> None:
    attempts = []

    @task("flaky")
    async def flaky(ctx: TaskCtx, _: None) -> None:
        attempts.append(ctx.attempt)
        raise LookupError("gone")

    @workflow("w")
    async def w(ctx: Ctx) -> str:
        try:
            await ctx.task(flaky, None, retry=RetryPolicy(2, first_delay=0.001))
        except Failure as failure:
            return f"{failure.type} {failure.message}"
        return ""

    assert await result_of(w, definitions=(flaky,)) == "LookupError gone"
    assert attempts == [1, 2]


async def test_time_randomness_and_uuids_are_the_same_in_every_replay() -> None:
    @workflow("values")
    async def values(ctx: Ctx) -> list[Any]:
        before = [ctx.now().isoformat(), str(ctx.uuid()), ctx.random(), ctx.rng().randint(1, 10), ctx.version("change", 1, 3)]
        await ctx.sleep(0.01)
        await ctx.sleep_until(ctx.now() + timedelta(milliseconds=10))
        return [*before, ctx.now().isoformat(), ctx.random_bits()]

    now, made, number, dice, version, later, bits = await result_of(values)
    assert datetime.fromisoformat(now).tzinfo == timezone.utc
    assert datetime.fromisoformat(later) - datetime.fromisoformat(now) >= timedelta(milliseconds=20)
    uuid.UUID(made)
    assert 0 <= number < 1 and 1 <= dice <= 10 and version == 3 and 0 <= bits < 2**64


def test_numbers_of_a_seed_never_change() -> None:
    """The numbers are those of the tests of onward-core and of the npm package."""
    generator = RandomGenerator(1_234_567)
    assert [generator.bits() for _ in range(2)] == [6457827717110365317, 3203168211198807973]
    generator = RandomGenerator(42)
    assert [generator.integer(-3, 7) for _ in range(8)] == [0, -2, 5, 1, -3, -1, 2, 5]
    assert generator.float() == 0.3399310389170206
    assert [generator.chance(0.25) for _ in range(8)] == [False, True, False, False, False, False, True, True]
    assert generator.choice("abc") == "a"
    items = list(range(8))
    generator.shuffle(items)
    assert items == [2, 5, 3, 4, 1, 0, 6, 7]
    for refused in (lambda: generator.integer(3, 3), lambda: generator.chance(1.5), lambda: RandomGenerator(-1)):
        with pytest.raises(ValueError):
            refused()
    with pytest.raises(IndexError):
        generator.choice([])


async def test_a_generator_draws_the_same_numbers_in_every_replay() -> None:
    @workflow("draws")
    async def draws(ctx: Ctx) -> list[float]:
        generator = ctx.random_generator()
        first = generator.integer(0, 2**64)
        await ctx.sleep(0.005)
        return [first, generator.float(), await ctx.step("draws", lambda: 1), generator.integer(0, 6)]

    first, second, _, third = await result_of(draws)
    assert 0 <= first < 2**64 and 0 <= second < 1 and 0 <= third < 6


async def test_signals_are_received_polled_drained_and_matched() -> None:
    @workflow("signals")
    async def signals(ctx: Ctx) -> list[Any]:
        box = ctx.signal("a", int)
        first = await box.recv()
        while box.count() < 3:
            await ctx.sleep(0.005)
        found = [first, box.has(), box.try_recv(), box.drain(), box.try_recv(), await box.recv(timeout=0.01)]
        pattern = await ctx.signals("user.*", str).recv()
        return [*found, pattern.name, pattern.value]

    async with opened(signals) as onward:
        run = await onward.start(signals)
        for number in range(4):
            await run.signal("a", number, id=f"s-{number}")
            await run.signal("a", number, id=f"s-{number}")  # once
        await run.signal("user.ada", "hello")
        assert await run.result() == [0, True, 1, [2, 3], None, None, "user.ada", "hello"]


async def test_a_run_sends_signals_to_another_run() -> None:
    @workflow("receiver")
    async def receiver(ctx: Ctx) -> Any:
        return await ctx.signal("news").recv()

    @workflow("sender")
    async def sender(ctx: Ctx, to: str) -> None:
        ctx.send_signal(to, "news", {"from": ctx.id})

    async with opened(receiver, sender) as onward:
        run = await onward.start(receiver, id="r")
        await (await onward.start(sender, "r", id="s")).result()
        assert await run.result() == {"from": "s"}


async def test_an_approval_is_decided_and_a_promise_is_resolved() -> None:
    @workflow("asks")
    async def asks(ctx: Ctx) -> list[Any]:
        approval = ctx.approval("refund", "Refund 5?", show={"cents": 500}, within=timedelta(hours=1))
        promise = ctx.promise("payment", int)
        ctx.state["ids"] = {"approval": approval.id, "promise": promise.id}
        decision: Decision = await approval
        late = await ctx.approval("late", "Too late?", within=0.01)
        return [decision.approved, decision.feedback, await promise, late.approved, late.expired]

    async with opened(asks) as onward:
        run = await onward.start(asks)
        ids = None
        while ids is None:
            ids = (await run.view()).state.get("ids")
        await onward.approve(ids["approval"], feedback="fine", decided_by="ada")
        await onward.resolve(ids["promise"], 7)
        assert await run.result() == [True, "fine", 7, False, True]


async def test_state_and_attributes_are_seen_from_outside() -> None:
    @workflow("stateful")
    async def stateful(ctx: Ctx) -> list[Any]:
        state = ctx.state
        state["a"] = 1
        state.set("b", [2])
        state["gone"] = 1
        del state["gone"]
        ctx.attributes["stage"] = "paid"
        ctx.attributes["at"] = ctx.now()
        await ctx.sleep(0.001)
        return [state["a"], state.get("b"), state.get("c", 3), sorted(state), "a" in state]

    async with opened(stateful) as onward:
        run = await onward.start(stateful, id="s", attributes={"customer": 42})
        assert await run.result() == [1, [2], 3, ["a", "b"], True]
        view = await run.view()
        assert view.state == {"a": 1, "b": [2]} and view.status == "completed"
        assert view.output == [1, [2], 3, ["a", "b"], True] and view.failure is None
        assert view.attributes["customer"] == 42 and view.attributes["stage"] == "paid"
        page = await onward.list_runs(kind="stateful")
        assert [found["key"]["id"] for found in page["runs"]] == ["s"]


async def test_a_run_is_canceled_at_its_deadline() -> None:
    @workflow("waits")
    async def waits(ctx: Ctx) -> None:
        await ctx.signal("never").recv()

    async with opened(waits) as onward:
        run = await onward.start(waits, deadline=timedelta(milliseconds=20))
        with pytest.raises(RunFailed, match="its deadline has passed"):
            await run.result()


async def test_a_delayed_run_begins_at_its_time_and_finds_its_signals() -> None:
    @workflow("early")
    async def early(ctx: Ctx) -> list[float]:
        return [ctx.now().timestamp(), ctx.signal("paid").count()]

    async with opened(early) as onward:
        due = datetime.now(timezone.utc) + timedelta(milliseconds=300)
        run = await onward.start(early, at=due)
        await run.signal("paid")
        assert [awaited["kind"] for awaited in (await run.view()).awaiting] == ["start"]
        began, signals = await run.result()
        assert began >= due.timestamp() - 0.001 and signals == 1
        later = await onward.start(early, after=timedelta(hours=1))
        await later.cancel("not needed")
        with pytest.raises(RunFailed, match="not needed"):
            await later.result()
        with pytest.raises(OnwardError, match="start time"):
            await onward.start(early, at=due, after=1)


async def test_a_run_begins_when_its_queue_lets_it_in() -> None:
    @workflow("deploy")
    async def deploy(ctx: Ctx, service: str) -> str:
        await ctx.signal("done").recv()
        return service

    @workflow("parent")
    async def parent(ctx: Ctx) -> str:
        return await ctx.child(deploy, "child", id="c", queue="others", key="shop", priority=1)

    async with opened(deploy, parent) as onward:
        run = await onward.start(deploy, "shop", queue="deploys", key="shop", priority=3)
        await run.signal("done")
        assert await run.result() == "shop"
        outer = await onward.start(parent)
        while True:
            try:
                await onward.run("c").signal("done")
                break
            except OnwardError:
                await asyncio.sleep(0.01)  # it is not started yet
        assert await outer.result() == "child"
        with pytest.raises(OnwardError, match="queue"):
            await onward.start(deploy, "x", key="shop")


async def test_children_return_results_and_failures() -> None:
    @workflow("child")
    async def child(ctx: Ctx, number: int) -> int:
        if number < 0:
            raise ValueError("negative")
        return number + 1

    @workflow("parent")
    async def parent(ctx: Ctx) -> list[Any]:
        first = ctx.child(child, 1, id="first")
        found: list[Any] = [first.run_id, await first]
        try:
            await ctx.child(child, -1)
        except Failure as failure:
            found.append(failure.message)
        spawned = ctx.spawn(child, 5)
        return [*found, await spawned.result()]

    found = await result_of(parent, definitions=(child,))
    assert found[:2] == ["first", 2] and "negative" in found[2] and found[3] == 6


async def test_queries_and_updates_reach_the_code() -> None:
    @workflow("counter")
    async def counter(ctx: Ctx) -> int:
        count = 0

        def add(number: int) -> int:
            nonlocal count
            if number < 0:
                raise ValueError("only up")
            count += number
            return count

        ctx.query("count", lambda: count)
        ctx.update("add", add)
        await ctx.signal("end").recv()
        return count

    async with opened(counter) as onward:
        run = await onward.start(counter)
        assert await run.update("add", 2) == 2
        assert await run.update("add", 3, id="u") == 5
        assert await run.update("add", 3, id="u") == 5
        assert await run.query("count") == 5
        with pytest.raises(OnwardError) as caught:
            await run.update("add", -1)
        assert caught.value.failure is not None and caught.value.failure.type == "ValueError"
        with pytest.raises(OnwardError) as unknown:
            await run.query("other")
        assert unknown.value.code == "query_unknown" or "other" in unknown.value.message
        await run.signal("end")
        assert await run.result() == 5


@workflow("awaiting")
async def awaiting(ctx: Ctx, how: str) -> int:
    total = 0

    async def add(numbers: list[int]) -> int:
        nonlocal total
        if not numbers:
            raise Failure("nothing", code="nothing")
        found = await asyncio.gather(*(ctx.step("weigh", abs, number) for number in numbers))
        if len(found) > 1:
            await ctx.signal("go").recv()
        total += sum(found)
        return total

    async def never() -> None:
        await ctx.sleep(3600)

    ctx.update("add", add)
    ctx.update("never", never)
    await ctx.signal("end").recv()
    if how == "continue":
        await ctx.continue_as_new("finish")
    if how == "finish":
        await ctx.updates_finished()
    return total


async def test_handlers_of_updates_may_await_calls_and_several_are_in_flight() -> None:
    async with opened(awaiting) as onward:
        run = await onward.start(awaiting, "finish")
        waiting = [asyncio.ensure_future(run.update("add", numbers)) for numbers in ([1, 2], [3, 4])]
        assert await run.update("add", [10]) == 10
        with pytest.raises(OnwardError) as caught:
            await run.update("add", [])
        assert caught.value.failure is not None and caught.value.failure.code == "nothing"
        while len([wait for wait in (await run.view()).awaiting if wait["kind"] == "signal"]) < 3:
            await asyncio.sleep(0.01)
        await run.signal("end")
        await run.signal("go")
        await run.signal("go")
        assert sorted(await asyncio.gather(*waiting)) in ([13, 20], [17, 20])
        assert await run.result() == 20


@pytest.mark.parametrize("how", ["leave", "continue"])
async def test_an_update_in_flight_at_the_end_is_abandoned(how: str) -> None:
    async with opened(awaiting) as onward:
        run = await onward.start(awaiting, how)
        waiting = asyncio.ensure_future(run.update("never"))
        while not [wait for wait in (await run.view()).awaiting if wait["kind"] == "timer"]:
            await asyncio.sleep(0.01)
        await run.signal("end")
        with pytest.raises(OnwardError) as caught:
            await waiting
        assert caught.value.failure is not None and caught.value.failure.code == "update_abandoned"
        if how == "continue":
            assert await run.update("add", [5]) == 5
            await run.signal("end")
        assert await run.result() == (5 if how == "continue" else 0)


def test_awaiting_handlers_survive_crashes_everywhere() -> None:
    script = Script(awaiting, "finish").update("add", [1, 2], after=1).update("add", [3], after=2)
    script = script.signal("go", after=3).signal("end", after=4)
    assert script.run().output == 6 and script.run().update(0) == 6 and script.run().update(1) == 3
    script.crash_everywhere()
    script.assert_deterministic()
    script.schedules(10)


async def test_compensations_run_latest_first_when_the_run_fails() -> None:
    undone: list[str] = []

    @workflow("trip")
    async def trip(ctx: Ctx) -> None:
        ctx.on_failure("cancel-flight", undone.append, "flight")

        async def cancel_hotel(name: str) -> None:
            undone.append(name)

        ctx.on_failure("cancel-hotel", cancel_hotel, "hotel")
        await ctx.step("work", lambda: None)
        raise ValueError("no")

    async with opened(trip) as onward:
        with pytest.raises(RunFailed):
            await (await onward.start(trip)).result()
    assert undone == ["hotel", "flight"]


async def test_a_run_continues_as_new_with_another_input() -> None:
    @workflow("days")
    async def days(ctx: Ctx, day: int) -> list[int]:
        await ctx.step("report", lambda: day)
        if day == 3:
            return [day, ctx.generation]
        await ctx.continue_as_new(day + 1)

    found = await result_of(days, 1)
    assert found[0] == 3 and found[1] >= 2


async def test_dataclasses_enums_and_pydantic_models_cross_the_log() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Color(enum.Enum):
        RED = "red"

    @dataclass
    class Item:
        name: str
        color: Color
        tags: tuple[str, ...] = ()

    class Order(pydantic.BaseModel):  # type: ignore[name-defined, misc]
        items: list[Item]
        note: str | None = None

    def load(order: Order) -> list[Item]:
        return order.items

    load.__annotations__ = {"order": Order, "return": list[Item]}

    async def function(ctx: Ctx, order: Order) -> Order:
        items = await ctx.step("load", load, order)
        assert [type(item) for item in items] == [Item] and items[0].tags == ("a",)
        return Order(items=items, note="ok")

    function.__annotations__ = {"ctx": Ctx, "order": Order, "return": Order}
    typed = workflow("typed")(function)
    result = await result_of(typed, Order(items=[Item("pot", Color.RED, ("a",))]))
    assert result == Order(items=[Item("pot", Color.RED, ("a",))], note="ok")


async def test_a_second_start_finds_the_run_and_refuses_another_input() -> None:
    @workflow("w")
    async def w(ctx: Ctx, text: str) -> str:
        return text

    async with opened(w) as onward:
        assert (await onward.start(w, "a", id="x")).id == "x"
        assert await (await onward.start(w, "a", id="x")).result() == "a"
        with pytest.raises(RunExists) as caught:
            await onward.start(w, "b", id="x")
        assert caught.value.code == "run_exists" and caught.value.hint


async def test_standalone_tasks_have_handles() -> None:
    @task("double")
    async def double(number: int) -> int:
        return number * 2

    async with opened(double) as onward:
        started = await onward.start_task(double, 21, id="t-1")
        assert await started.result() == 42
        assert (await onward.task("t-1", double).view())["state"] == "completed"


async def test_events_of_a_run_are_read_and_watched() -> None:
    @workflow("noisy")
    async def noisy(ctx: Ctx) -> str:
        ctx.emit("hello", 1)
        await ctx.step("s", lambda: 1)
        await ctx.signal("go").recv()
        return "end"

    async with opened(noisy) as onward:
        run = await onward.start(noisy)
        frames = []
        async for frame in run.watch():
            frames.append(frame)
            if len(frames) == 1:
                await run.signal("go")
        assert frames
        events = [event["type"] for record in await run.log() for event in record["events"]]
        assert events[0] == "run_started" and events[-1] == "run_completed"


async def test_every_record_is_attached_before_the_end() -> None:
    @workflow("w")
    async def w(ctx: Ctx) -> None:
        for number in range(5):
            await ctx.signal("go").recv()
            await ctx.step("s", abs, number)

    async with opened(w) as onward:
        for attempt in range(20):
            run = await onward.start(w, id=f"a-{attempt}")
            attached = run.attach()
            records = [await anext(attached)]
            for _ in range(5):
                await run.signal("go")
            records += [record async for record in attached]
            assert records == await run.log()
            assert [record async for record in run.attach()] == records, "of a closed run"


async def test_an_equal_call_of_another_run_has_the_recorded_result() -> None:
    ran: list[str] = []

    @task("memo-fetch")
    def fetch(url: str) -> int:
        ran.append(url)
        return len(ran)

    @workflow("memo-pages")
    async def pages(ctx: Ctx, url: str) -> list[int]:
        def measure() -> int:
            ran.append("step")
            return len(ran)

        return [
            await ctx.task(fetch, url, memo=timedelta(hours=1)),
            await ctx.task(fetch, "other", memo=Memo(3600, key=f"page/{url}")),
            await ctx.step("measure", measure, input=url, memo=3600),
        ]

    async with opened(pages, fetch) as onward:
        runs = [await onward.start(pages, "a") for _ in range(2)]
        assert [await run.result() for run in runs] == [[1, 2, 3], [1, 2, 3]]
        assert await onward.invalidate_memos(prefix="page/") == 1
        assert await onward.invalidate_memos("page/a") == 0
        run = await onward.start(pages, "a")
        assert await run.result() == [1, 4, 3]
        with pytest.raises(OnwardError, match="either a `key` or a `prefix`"):
            await onward.invalidate_memos()
