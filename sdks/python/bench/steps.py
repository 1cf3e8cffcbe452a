"""Measures durable steps: `python steps.py DIRECTORY [URL]` prints one JSON object.

With a URL, the server there keeps the runs; otherwise the directory does.
"""

import asyncio
import gc
import json
import os
import statistics
import sys
import time
from pathlib import Path

from onward import Ctx, Onward, workflow

STEPS = 10

#: Workflow code may not read a clock; this one measures, and was there before the guard.
CLOCK = time.perf_counter


async def work(number: int) -> int:
    return number


@workflow("ten")
async def ten(ctx: Ctx, number: int) -> int:
    for step in range(STEPS):
        number = await ctx.step("work", work, number + step)
    return number


@workflow("timed")
async def timed(ctx: Ctx, count: int) -> None:
    for _ in range(count):
        TIMES.append(CLOCK())
        await ctx.step("work", work, 1)
    TIMES.append(CLOCK())


@workflow("suspended")
async def suspended(ctx: Ctx, number: int) -> None:
    await ctx.step("work", work, number)
    await ctx.signal("never").recv()


TIMES: list[float] = []


async def throughput(onward: Onward, seconds: float) -> float:
    """Returns steps per second with 512 runs at a time."""
    done = 0
    end = time.perf_counter() + seconds

    async def one_after_the_other() -> None:
        nonlocal done
        while time.perf_counter() < end:
            await (await onward.start(ten, 1)).result()
            done += STEPS

    began = time.perf_counter()
    await asyncio.gather(*(one_after_the_other() for _ in range(512)))
    return done / (time.perf_counter() - began)


async def lone_step_ms(onward: Onward) -> float:
    """Returns the median time of a step of a run that is alone."""
    await (await onward.start(timed, 500)).result()
    return statistics.median(after - before for before, after in zip(TIMES, TIMES[1:], strict=False)) * 1000


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def suspended_bytes(onward: Onward, warm_up: int, count: int) -> float:
    """Returns the memory that each further run takes that waits for a signal."""

    async def suspend(begin: int, end: int) -> None:
        for first in range(begin, end, 500):
            await asyncio.gather(*(onward.start(suspended, number) for number in range(first, first + 500)))

    async def settle() -> None:
        while (await onward.list_runs(statuses=["pending", "running"], limit=1))["runs"]:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        gc.collect()

    await suspend(0, warm_up)
    await settle()
    before = resident_bytes()
    await suspend(warm_up, warm_up + count)
    await settle()
    return (resident_bytes() - before) / count


async def main() -> None:
    directory, url = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    options = {"workflows": [ten, timed, suspended], "check_replay": "off"}
    figures = {}
    async with Onward.connect(url, **options) if url else Onward.embedded(directory + "/steps", **options) as onward:
        await throughput(onward, 1)
        figures["python.steps_per_s.c512"] = round(await throughput(onward, 5))
        figures["python.step_ms.p50"] = round(await lone_step_ms(onward), 3)
    if not url:
        # As for Rust: the worker keeps 1,000 waiting runs in memory, and loads the others when something arrives for them.
        async with Onward.embedded(directory + "/suspended", **options) as onward:
            figures["python.suspended_bytes"] = round(await suspended_bytes(onward, 5_000, 15_000))
        options |= {"cached_runs_max": 50_000, "runs_max": 50_000}
        async with Onward.embedded(directory + "/cached", **options) as onward:
            figures["python.cached_bytes"] = round(await suspended_bytes(onward, 5_000, 10_000))
    print(json.dumps(figures))


asyncio.run(main())
