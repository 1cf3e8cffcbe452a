"""Schemas of inputs, outputs, signals, updates and their answers, from types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from conftest import opened

from onward import Ctx, OnwardError, RunFailed, task, workflow


@dataclass
class Payment:
    cents: int


@workflow("paid", schemas=True, signals={"payment": Payment}, updates={"add": {"type": "integer", "minimum": 1}})
async def paid(ctx: Ctx, order: str) -> int:
    total = 0

    def add(by: int) -> int:
        nonlocal total
        total += by
        return total

    ctx.update("add", add)
    payment: Payment = await ctx.signal("payment", Payment).recv()
    return payment.cents + total


@workflow("answers", update_answers={"add": {"type": "integer", "maximum": 9}, "pay": Payment})
async def answers(ctx: Ctx) -> str:
    async def pay(cents: Any) -> Any:
        return {"cents": await ctx.step("weigh", lambda: cents)}

    ctx.update("add", lambda by: by + 1)
    ctx.update("pay", pay)
    end: str = await ctx.signal("end", str).recv()
    return end


@task("wrong", schemas=True)
def wrong(of: str) -> int:
    return of  # type: ignore[return-value]


@workflow("wrong-output", schemas=True)
async def wrong_output(ctx: Ctx, _: str) -> int:
    return "seven"  # type: ignore[return-value]


async def test_what_callers_send_is_checked_where_it_enters() -> None:
    async with opened(paid) as onward:
        with pytest.raises(OnwardError) as refused:
            await onward.start("paid", 7)
        assert refused.value.code == "input_invalid"
        run = await onward.start(paid, "a")
        with pytest.raises(OnwardError) as refused:
            await run.signal("payment", {"cents": "many"})
        assert refused.value.code == "signal_invalid" and "/cents" in str(refused.value)
        with pytest.raises(OnwardError) as refused:
            await run.update("add", 0)
        assert refused.value.code == "update_invalid"
        assert await run.update("add", 5) == 5
        await run.signal("payment", Payment(2))
        assert await run.result() == 7


async def test_an_output_that_does_not_fit_fails_the_run_or_task() -> None:
    async with opened(wrong_output, wrong) as onward:
        run = await onward.start(wrong_output, "a")
        with pytest.raises(RunFailed) as failed:
            await run.result()
        assert failure(failed.value).code == "output_invalid"
        done: Any = await onward.start_task(wrong, "text")
        with pytest.raises(RunFailed) as failed:
            await done.result()
        assert failure(failed.value).code == "output_invalid"


async def test_an_answer_of_an_update_that_does_not_fit_fails_the_update_and_the_run_continues() -> None:
    async with opened(answers) as onward:
        run: Any = await onward.start(answers)
        assert await run.update("add", 5) == 6
        assert await run.update("pay", 5) == {"cents": 5}
        for name, input in [("add", 20), ("pay", "many")]:
            with pytest.raises(OnwardError) as failed:
                await run.update(name, input)
            assert failure(failed.value).code == "output_invalid" and f"`{name}`" in str(failed.value)
        await run.signal("end", "done")
        assert await run.result() == "done"


def failure(error: Any) -> Any:
    assert error.failure is not None
    return error.failure
