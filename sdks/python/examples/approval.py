"""An approval with a deadline: decided exactly once, or expired.

`python approval.py`
"""

import asyncio
import tempfile
from datetime import timedelta

from onward import Ctx, Onward, OnwardError, RunHandle, workflow


async def pay(cents: int) -> str:
    return f"paid {cents} cents"


@workflow("refund")
async def refund(ctx: Ctx, cents: int) -> str:
    title = f"Refund {cents} cents?"
    decision = await ctx.approval("refund", title, show=cents, deciders=["ada", "grace"], within=timedelta(seconds=2))
    if decision.approved:
        return f"{await ctx.step('pay', pay, cents)} by {decision.decided_by}"
    if decision.expired:
        return "no decision in time"
    return f"refused by {decision.decided_by}: {decision.feedback}"


async def question(run: RunHandle[str]) -> str:
    """Waits until the run has requested its approval and returns the id."""
    view = await run.wait(status="waiting")
    return str(view.awaiting[0]["id"])


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with Onward.embedded(directory, workflows=[refund]) as onward:
            run = await onward.start(refund, 500, id="refund-1")
            approval = await question(run)
            print(f"asked: {approval}")
            await onward.approve(approval, feedback="fine", decided_by="ada", id="click of ada")
            print(await run.result())
            try:
                await onward.disapprove(approval, feedback="too much", decided_by="grace", id="click of grace")
            except OnwardError as error:
                print(f"grace came too late: error[{error.code}]: {error}")

            run = await onward.start(refund, 900, id="refund-2")
            try:
                await onward.approve(await question(run), decided_by="mallory")
            except OnwardError as error:
                print(f"mallory may not: error[{error.code}]: {error}")
            print(await run.result())


if __name__ == "__main__":
    asyncio.run(main())
