"""Middleware: a rate limit by customer, redaction of what is recorded, and timing, around every run and attempt.

`python middleware.py`
"""

import asyncio
import json
import tempfile
import time
from typing import Any

from onward import Ctx, Onward, task, workflow
from onward.middleware import AttemptCall, Middleware, NextAttempt, NextRun, RateLimit, Redaction, RunCall, Timed, Timing


@task("charge")
async def charge(order: dict[str, Any]) -> dict[str, Any]:
    return {"cents": order["cents"], "card": "4111 1111 1111 1111"}


def mail(customer: str) -> str:
    return f"mailed {customer} about card 4111 1111 1111 1111"


@workflow("bill")
async def bill(ctx: Ctx, customer: str) -> list[str]:
    total, seen = 0, ""
    for cents in (500, 700, 900):
        receipt = await ctx.task(charge, {"customer": customer, "cents": cents})
        total += receipt["cents"]
        seen = f"the code sees the card `{receipt['card']}`"
    return [seen, await ctx.step("mail", mail, customer), f"{customer} paid {total} cents"]


class House(Middleware):
    """One of your own: it gives every run an attribute, and prints failures of attempts."""

    async def run(self, call: RunCall, next: NextRun) -> Any:
        call.ctx.attributes.set("team", "billing")  # code of the workflow: deterministic
        return await next(call)

    async def attempt(self, call: AttemptCall, next: NextAttempt) -> Any:
        try:
            return await next(call)
        except Exception as error:
            print(f"`{call.name}` failed: {error}")
            raise


def by_customer(call: AttemptCall) -> "str | None":
    return str(call.input["customer"]) if call.name == "charge" else None


async def main() -> None:
    timed: list[Timed] = []
    middleware = [
        # The first one is the outermost: it measures the waits of the rate limit, too.
        Timing(timed.append, run_state="took_ms"),
        House(),
        Redaction(fields=["card"], text=lambda text: text.replace("4111 1111 1111 1111", "**** 1111")),
        RateLimit(2, per=0.4, key=by_customer),
    ]
    with tempfile.TemporaryDirectory() as directory:
        async with Onward.embedded(directory, workflows=[bill], tasks=[charge], middleware=middleware) as onward:
            began = time.monotonic()
            run = await onward.start(bill, "ada")
            print("\n".join(await run.result()))
            print(f"the third charge waited: {time.monotonic() - began >= 0.15}")
            print(f"the log has the card: {'4111 1111' in json.dumps(await run.log())}")
            print(f"attempts measured: {len(timed)}")


if __name__ == "__main__":
    asyncio.run(main())
