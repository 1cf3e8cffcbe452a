"""Measures the Python package, with the programs of crates/onward-bench: embedded, and over a server with `--server URL`.

`cargo xtask bench --sdks` builds the package for speed and runs this.
"""

import argparse
import asyncio
import os
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta

from figures import median, report, resident

from onward import Ctx, Onward, workflow

RESULT = "x" * 198

STEP_TIMES: list[float] = []


async def text() -> str:
    """Returns a result of 200 bytes as JSON."""
    return RESULT


async def timed_text() -> str:
    STEP_TIMES.append(time.perf_counter())
    return RESULT


@workflow("ten-steps")
async def ten_steps(ctx: Ctx, seed: int) -> int:
    total = seed
    for step in range(10):
        total += len(await ctx.step("step", text)) + step
    return total


@workflow("many-steps")
async def many_steps(ctx: Ctx, count: int) -> int:
    for _ in range(count):
        await ctx.step("step", timed_text)
    return count


@workflow("wait")
async def wait(ctx: Ctx, number: int) -> int:
    more: int = await ctx.signal("go", int).recv()
    return number + more


WORKFLOWS = [ten_steps, many_steps, wait]


async def throughput(onward: Onward, concurrency: int, seconds: float) -> float:
    """Keeps runs of ten steps active for a while and returns the steps per second."""
    begin = time.perf_counter() + 0.5
    end = begin + seconds

    async def caller() -> int:
        runs = 0
        while (now := time.perf_counter()) < end:
            run = await onward.start(ten_steps, runs)
            await run.result()
            runs += now >= begin
        return runs

    runs = sum(await asyncio.gather(*(caller() for _ in range(concurrency))))
    return runs * 10 / (time.perf_counter() - begin)


async def latency(onward: Onward, count: int) -> float:
    """Returns the median time from one step of a lone run to the next, in milliseconds."""
    STEP_TIMES.clear()
    await (await onward.start(many_steps, count)).result()
    return median([(after - before) * 1_000 for before, after in zip(STEP_TIMES, STEP_TIMES[1:])])


async def suspended(prefix: str, cached: int | None, is_quick: bool) -> None:
    """Reports what each further waiting run adds to the memory of the process: with its code in memory, or only in the store."""
    warm_up, count = (5_000, 20_000) if is_quick else (10_000, 60_000)
    options = {} if cached is None else {"cached_runs_max": count + 1_000, "runs_max": count + 1_000}
    with tempfile.TemporaryDirectory() as directory:
        async with Onward.embedded(directory, workflows=WORKFLOWS, **options) as onward:
            before = 0
            for first in range(0, count, 500):
                if first == warm_up:
                    before = await settled(onward)
                await asyncio.gather(*(onward.start(wait, number) for number in range(first, first + 500)))
            added = await settled(onward) - before
            report(f"{prefix}", added / (count - warm_up), "B")
            await onward.close(timeout=timedelta(0))


async def settled(onward: Onward) -> int:
    """Returns the resident memory once no run has anything to do."""
    while (await onward.request("list_runs", statuses=["pending", "running"], limit=1))["runs"]:
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)
    return resident()


def sync(rounds: int) -> float:
    """Returns the median time of one write of 4 KiB with its sync, into a file that already has its size, in milliseconds."""
    times = []
    with tempfile.TemporaryFile() as file:
        file.write(bytes(256 * 4096))
        file.flush()
        os.fsync(file.fileno())
        for number in range(rounds):
            begin = time.perf_counter()
            os.pwrite(file.fileno(), bytes([7]) * 4096, number % 256 * 4096)
            os.fdatasync(file.fileno())
            times.append((time.perf_counter() - begin) * 1_000)
    return median(times)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true", help="print one line of JSON for each figure")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--raw", action="store_true", help="measure the disk alone")
    parser.add_argument("--server", metavar="URL")
    arguments = parser.parse_args()
    if arguments.raw:
        return report("raw.sync_ms.p50", sync(300 if arguments.quick else 2_000), "ms")
    seconds, count = (3.0, 2_000) if arguments.quick else (8.0, 10_000)
    prefix = "python.server." if arguments.server else "python."
    place: AbstractContextManager[str] = tempfile.TemporaryDirectory() if arguments.server is None else nullcontext("")
    with place as directory:
        options = {"workflows": WORKFLOWS}
        opened = Onward.connect(arguments.server, **options) if arguments.server else Onward.embedded(directory, **options)
        async with opened as onward:
            report(f"{prefix}steps_per_s.c512", await throughput(onward, 512, seconds), "1/s")
            report(f"{prefix}step_ms.p50", await latency(onward, count), "ms")
    if arguments.server is None:
        await suspended("python.suspended_bytes", 1, arguments.quick)
        await suspended("python.evicted_bytes", None, arguments.quick)


if __name__ == "__main__":
    asyncio.run(main())
