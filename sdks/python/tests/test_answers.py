"""Structured answers of approvals: typed in the code, checked where they enter."""

from dataclasses import dataclass
from typing import Any, Literal

import pytest
from conftest import opened

from onward import Ctx, Failure, Onward, OnwardError, workflow
from onward.testing import Script


@dataclass
class Payment:
    cents: int
    account: Literal["main", "savings"]
    note: str = ""


@workflow("pay")
async def pay(ctx: Ctx) -> str:
    approval = ctx.approval("pay", "Pay?", answer=Payment)
    ctx.state["id"] = approval.id
    decision = await approval
    if not decision.approved:
        assert decision.answer is None
        return f"rejected: {decision.feedback}"
    assert isinstance(decision.answer, Payment)
    return f"{decision.answer.cents} from {decision.answer.account}{decision.answer.note}"


@workflow("count")
async def count(ctx: Ctx) -> int:
    approval = ctx.approval("count", "How many?", answer={"type": "integer", "minimum": 1})
    ctx.state["id"] = approval.id
    return int((await approval).answer)


async def asked(onward: Onward, run: str) -> str:
    found = None
    while found is None:
        found = (await onward.run(run).view()).state.get("id")
    return str(found)


async def refusal(onward: Onward, approval: str, answer: Any) -> OnwardError:
    with pytest.raises(OnwardError) as caught:
        await onward.approve(approval, answer=answer)
    return caught.value


async def test_an_answer_has_the_type_and_one_that_does_not_fit_is_refused() -> None:
    async with opened(pay, count) as onward:
        run = await onward.start(pay, id="r")
        approval = await asked(onward, "r")
        waits = (await onward.request("list_approvals"))["waits"]
        assert waits[0]["answer_schema"]["json"]["required"] == ["cents", "account"]
        for wrong in (None, 7, {"cents": "7", "account": "main"}, {"cents": 7, "account": "mine"}):
            assert (await refusal(onward, approval, wrong)).code == "answer_invalid"
        assert "/account" in str(await refusal(onward, approval, {"cents": 7, "account": "mine"}))
        await onward.approve(approval, answer=Payment(7, "main", "!"))
        assert await run.result() == "7 from main!"
        counted = await onward.start(count, id="c")
        assert (await refusal(onward, await asked(onward, "c"), 0)).code == "answer_invalid"
        await onward.approve(await asked(onward, "c"), answer=3)
        assert await counted.result() == 3


async def test_a_rejection_has_no_answer() -> None:
    async with opened(pay) as onward:
        run = await onward.start(pay, id="r")
        await onward.disapprove(await asked(onward, "r"), feedback="too early")
        assert await run.result() == "rejected: too early"


def test_a_script_answers_with_a_value_that_fits() -> None:
    assert Script(pay).approve("pay", answer={"cents": 5, "account": "savings"}).run().output == "5 from savings"
    for script in (Script(pay).approve("pay", answer={"cents": 5}), Script(pay).approve("pay")):
        failure = script.run().failure
        assert isinstance(failure, Failure) and failure.code == "answer_invalid"
