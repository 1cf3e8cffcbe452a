"""Start policies: what callers send, and the runs that they get."""

import asyncio
from typing import Any

import pytest

from onward import Batch, Ctx, Debounce, Onward, OnwardError, RunFailed, RunNotFound, Singleton, workflow


@workflow("report")
async def report(ctx: Ctx, input: Any) -> Any:
    return {"of": input}


@workflow("slow")
async def slow(ctx: Ctx, input: int) -> int:
    return await ctx.signal("end", int).recv()


def engine() -> Onward:
    return Onward.in_memory(workflows=[report, slow], check_replay="every")


async def test_a_singleton_answers_with_the_open_run_or_replaces_it() -> None:
    async with engine() as onward:
        first = await onward.start_with_policy(slow, 1, Singleton("u7"))
        assert (first.outcome, first.due_at, first.repeated) == ("started", None, False)
        second = await onward.start_with_policy(slow, 2, Singleton("u7"))
        assert (second.outcome, second.run.id) == ("skipped", first.run.id)
        third = await onward.start_with_policy(slow, 3, Singleton("u7", on_conflict="cancel"))
        assert (third.outcome, third.due_at) == ("held", None)
        with pytest.raises(RunFailed) as failed:
            await first.run.result()
        assert failed.value.failure.code == "canceled"
        result = asyncio.ensure_future(third.run.result())
        while True:
            try:
                await third.run.signal("end", 9)
                break
            except RunNotFound:
                await asyncio.sleep(0.005)
        assert await result == 9


async def test_a_debounced_run_has_the_last_input_and_a_repeat_counts_once() -> None:
    async with engine() as onward:
        policy = Debounce("k", window=0.2, max_wait=5)
        first = await onward.start_with_policy(report, "one", policy, request_id="q")
        again = await onward.start_with_policy(report, "one", policy, request_id="q")
        assert (again.repeated, again.run.id, again.due_at) == (True, first.run.id, first.due_at)
        assert first.due_at is not None and first.due_at.utcoffset() is not None
        second = await onward.start_with_policy(report, "two", policy)
        assert (second.outcome, second.run.id) == ("held", first.run.id)
        assert await second.run.result() == {"of": "two"}


async def test_a_batch_has_the_list_of_its_inputs() -> None:
    async with engine() as onward:
        policy = Batch("k", size_max=2, window=3_600)
        first = await onward.start_with_policy(report, {"n": 1}, policy, attributes={"team": "ops"})
        second = await onward.start_with_policy(report, {"n": 2}, policy, attributes={"team": "ops"})
        assert (first.outcome, second.outcome, second.run.id) == ("held", "started", first.run.id)
        assert await first.run.result() == {"of": [{"n": 1}, {"n": 2}]}


async def test_a_policy_outside_of_its_limits_is_refused() -> None:
    async with engine() as onward:
        for policy in (Singleton(""), Debounce("k", window=0), Batch("k", size_max=0, window=1)):
            with pytest.raises(OnwardError) as refused:
                await onward.start_with_policy(report, 1, policy)
            assert refused.value.code == "start_policy_invalid"
        with pytest.raises(OnwardError):
            await onward.start_with_policy(report, 1, "singleton")  # type: ignore[arg-type]
