"""A program that processes orders, and is killed by the tests. It appends a line to a file for every step that it runs."""

import asyncio
import os
import sys
from pathlib import Path

from onward import Ctx, Onward, current_attempt, task, workflow

DIRECTORY, EFFECTS, COUNT = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])


def record(line: str) -> None:
    with EFFECTS.open("a") as file:
        file.write(line + "\n")


async def charge(order: int, step: int) -> int:
    await asyncio.sleep(0)
    record(f"{order} {step} {current_attempt().idempotency_key}")
    return order * 100 + step


@task("label")
async def label(order: int) -> str:
    return f"label {order}"


@workflow("order")
async def order(ctx: Ctx, number: int) -> list[int]:
    done = [await ctx.step(f"charge {step}", charge, number, step) for step in range(4)]
    await ctx.sleep(0.02)
    assert await ctx.task(label, number, retry=0) == f"label {number}"
    done += await asyncio.gather(*(ctx.step(f"ship {step}", charge, number, step) for step in range(4, 8)))
    return done


async def main() -> None:
    async with Onward.embedded(DIRECTORY, workflows=[order], tasks=[label], threads=1) as onward:
        print("begun", flush=True)
        runs = [await onward.start(order, number, id=f"order-{number}") for number in range(COUNT)]
        for number, run in enumerate(runs):
            assert await run.result() == [number * 100 + step for step in range(8)]
        print("ended", os.getpid(), flush=True)


asyncio.run(main())
