"""The test kit finds what it must, and fails where it must."""

import itertools
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from onward import Ctx, Failure, OnwardError, task, workflow
from onward.testing import Divergence, Script, replay


@dataclass
class Receipt:
    text: str


async def mail(receipt: str) -> None:
    raise AssertionError("the script answers this step")


@task("pay")
async def pay(cents: int) -> str:
    return f"really paid {cents}"


@workflow("refund")
async def refund(ctx: Ctx, cents: int) -> Receipt:
    decision = await ctx.approval("refund", f"Refund {cents}?", within=timedelta(days=2))
    if not decision.approved:
        return Receipt(f"kept: {decision.feedback}")
    receipt = await ctx.task(pay, cents, retry=3)
    await ctx.step("mail", mail, receipt)
    await ctx.sleep(timedelta(days=30))
    return Receipt(receipt)


def paid() -> Script[Receipt]:
    return Script(refund, 500).approve("refund").task(pay, lambda cents: f"paid {cents}").step("mail", None)


def test_a_script_runs_in_virtual_time_with_scripted_answers() -> None:
    outcome = paid().run()
    assert outcome.output == Receipt("paid 500")
    assert timedelta(days=30) <= outcome.elapsed < timedelta(days=31)
    assert outcome.steps_scripted == ["mail"] and outcome.steps_run == []
    assert Script(refund, 500).reject("refund", "no").run().output == Receipt("kept: no")
    late = Script(refund, 500).approve("refund", after=timedelta(days=3)).run()
    assert late.output.text.startswith("kept") and late.elapsed == timedelta(days=2)


def test_scripts_crash_everywhere_and_in_random_orders() -> None:
    script = paid()
    for outcome in (script.crash_everywhere(), script.assert_deterministic(), script.schedules(5), script.schedule(7)):
        assert outcome.output == Receipt("paid 500")


def test_attempts_tasks_and_failures_are_scripted() -> None:
    script = Script(refund, 5).approve("refund").task(pay, Failure("busy")).task(pay, "second").step("mail", None)
    assert script.run().output == Receipt("second")
    real = Script(refund, 5).approve("refund").task(pay).step("mail", None)
    assert real.run().output == Receipt("really paid 5")
    failed = Script(refund, 5).approve("refund").task(pay, "x").step("mail", Failure("no mail", code="down")).run()
    assert failed.failure is not None and failed.failure.code == "down"
    with pytest.raises(Failure, match="no mail"):
        assert failed.output


async def test_an_open_run_says_what_it_waits_for_even_in_an_event_loop() -> None:
    outcome = Script(refund, 5).approve("refund").run()
    assert outcome.is_open and "pay" in outcome.waits_for[0]
    with pytest.raises(AssertionError, match="waits for"):
        assert outcome.output


def test_signals_updates_promises_children_cancel_and_generations() -> None:
    @workflow("plan")
    async def plan(ctx: Ctx, month: int) -> list[Any]:
        plans = ["basic"]

        def change(name: str) -> str:
            if name == "silver":
                raise ValueError("no such plan")
            plans.append(name)
            return plans[-2]

        ctx.update("plan", change)
        note = await ctx.signal("note").recv()
        paid = await ctx.promise("paid")
        child = await ctx.child("book", {"month": month})
        await ctx.sleep(timedelta(days=30))
        if month < 3:
            await ctx.continue_as_new(month + 1)
        return [note, paid, child, plans]

    script = Script(plan, 3).signal("note", "hi", after=5).resolve("paid", 7).child("book", lambda book: book["month"])
    script.update("plan", "gold", after=timedelta(days=1)).update("plan", "silver", after=timedelta(days=2))
    outcome = script.run()
    assert outcome.output == ["hi", 7, 3, ["basic", "gold"]]
    assert outcome.update(0) == "basic"
    with pytest.raises(Failure, match="no such plan"):
        outcome.update(1)
    again = Script(plan, 1).signal("note").resolve("paid", 1).child("book", 1).generations(2).run()
    assert len(again.logs) == 2
    canceled = Script(plan, 3).cancel("enough", after=timedelta(days=1)).run()
    assert canceled.is_canceled and canceled.elapsed == timedelta(days=1)


def test_the_kit_fails_for_code_that_is_not_deterministic() -> None:
    numbers = itertools.count()

    @workflow("random")
    async def changing(ctx: Ctx) -> None:
        await ctx.step(f"step {next(numbers)}", lambda: None)

    for check in ("crash_everywhere", "assert_deterministic", "run"):
        with pytest.raises(OnwardError) as caught:
            getattr(Script(changing), check)()
        assert caught.value.code == "check_failed" and "step" in caught.value.message


def test_the_kit_fails_for_a_result_that_depends_on_the_order() -> None:
    @workflow("race")
    async def race(ctx: Ctx) -> str:
        name, _ = await ctx.select(a=ctx.task("a"), b=ctx.task("b"))
        return name

    script = Script(race).task("a", 1).task("b", 2)
    with pytest.raises(OnwardError) as caught:
        script.schedules(50)
    assert ".schedule(" in caught.value.message


def test_a_recorded_log_is_replayed_against_the_code_of_today() -> None:
    (log,) = paid().run().logs
    replay(refund, "test", log)

    @workflow("refund")
    async def changed(ctx: Ctx, cents: int) -> None:
        await ctx.task(pay, cents)

    with pytest.raises(Divergence) as caught:
        replay(changed, "test", log)
    assert "refund" in str(caught.value) and "pay" in str(caught.value)
