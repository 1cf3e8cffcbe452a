"""A dangerous tool waits for a person, who sees the exact arguments of the call.

`python agents/approval.py`
"""

import asyncio
import json
import tempfile
from typing import Any

from model import NAME, models

from onward import Onward, RunHandle
from onward.agents import Agent, tool


# If the worker dies during a payment, its outcome is unknown, and it is not tried again.
@tool(effect="at_most_once", needs_approval=True)
async def refund(order: str, cents: int) -> str:
    """Pays money back."""
    print(f"  (paying {cents} cents back for {order})")
    return f"refunded {cents} cents"


cashier = Agent("cashier", model=NAME, tools=[refund])


async def question(run: RunHandle[Any]) -> str:
    """Waits until the run asks, and returns the id of its approval: a run also waits while its model answers."""
    while True:
        for awaited in (await run.view()).awaiting:
            if awaited["kind"] == "approval":
                return str(awaited["id"])
        await asyncio.sleep(0.01)


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with Onward.embedded(directory, agents=[cashier], models=models()) as onward:
            for name, is_approved in (("first", True), ("second", False)):
                request = 'Please use refund {"order": "A-17", "cents": 1900}'
                run = await onward.start("cashier", request, id=name)
                approval = await question(run)
                for wait in (await onward.request("list_approvals"))["waits"]:
                    print(f"{name}: {wait['title']} {json.dumps(wait['show']['json'])}")
                if is_approved:
                    await onward.approve(approval)
                else:
                    await onward.disapprove(approval, feedback="over the limit")
                print(f"{name}: {(await run.result())['text']}")


if __name__ == "__main__":
    asyncio.run(main())
