"""Changing code while runs are open: `ctx.version` for a change inside a workflow, `version` and `previous` for a rewrite.

`python versions.py`
"""

import asyncio
import tempfile

from onward import Ctx, Onward, Workflow, workflow


def add_tax(net: int, percent: int) -> int:
    return net * (100 + percent) // 100


def discount(net: int) -> int:
    return net - 10


@workflow("invoice", version="v1")
async def monday(ctx: Ctx, net: int) -> str:
    """The code as deployed on Monday."""
    gross = await ctx.step("tax", add_tax, net, 19)
    await ctx.signal("approved").recv()
    return f"v1: {gross}"


@workflow("invoice", version="v1")
async def tuesday(ctx: Ctx, net: int) -> str:
    """The code on Tuesday, with a discount before the tax. A run that has passed this point continues without it."""
    version = ctx.version("discount", 1, 2)
    if version >= 2:
        net = await ctx.step("discount", discount, net)
    gross = await ctx.step("tax", add_tax, net, 19)
    await ctx.signal("approved").recv()
    return f"v1 with discount version {version}: {gross}"


@workflow("invoice", version="v2")
async def wednesday(ctx: Ctx, net: int) -> str:
    """A rewrite on Wednesday. Runs that began with v1 stay on v1."""
    gross = await ctx.step("tax-and-discount", add_tax, net - 10, 7)
    return f"v2: {gross}"


async def main() -> None:
    days: dict[str, list[Workflow[int, str]]] = {
        "Monday": [monday],
        "Tuesday": [tuesday],
        "Wednesday": [wednesday, tuesday],
    }
    with tempfile.TemporaryDirectory() as directory:
        for day, deployed in days.items():
            print(f"{day}:")
            async with Onward.embedded(directory, workflows=deployed) as onward:
                run = await onward.start(deployed[0], 100, id=f"invoice-{day}")
                view = await run.wait(status=["waiting", "completed"])
                print(f"{run.id} is pinned to {view.details['head']['version']}")
                if day == "Wednesday":
                    for earlier in ("invoice-Monday", "invoice-Tuesday"):
                        await onward.run(earlier).signal("approved", True)
                    for started in days:
                        print(f"invoice-{started}: {await onward.run(f'invoice-{started}', wednesday).result()}")


if __name__ == "__main__":
    asyncio.run(main())
