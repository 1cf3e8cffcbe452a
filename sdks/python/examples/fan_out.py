"""Fan-out: many tasks on a queue and many steps in this process, in parallel; results in the order of the calls.

`python fan_out.py`
"""

import asyncio
import tempfile
import time

from onward import Ctx, Failure, Onward, task, workflow


@task("count")
async def count(city: str) -> int:
    await asyncio.sleep(0.1)  # in sequence, 20 of these would take two seconds
    return len(city)


def line_of(city: str, letters: int) -> str:
    return f"{city}: {letters} letters"


def check(city: str) -> None:
    if city.endswith("13"):
        raise Failure("unlucky", retryable=False)


def print_summary(bad: int, total: int) -> None:
    print(f"{bad} of {total} checks failed")


@workflow("report")
async def report(ctx: Ctx, cities: list[str]) -> list[str]:
    # Tasks: queued in one commit, executed by any worker that registered the kind, retried by the engine.
    counts = await asyncio.gather(*(ctx.task(count, city, retry=3) for city in cities))

    # Steps: run in this process, in parallel.
    pairs = zip(cities, counts)
    lines = await asyncio.gather(*(ctx.step("format", line_of, city, letters) for city, letters in pairs))

    # Calls that may fail without failing the run: every result is returned.
    checks = await asyncio.gather(*(ctx.step("check", check, city) for city in cities), return_exceptions=True)
    bad = sum(isinstance(result, Failure) for result in checks)
    # Prints belong in steps: code in the workflow itself runs again on every replay.
    await ctx.step("print", print_summary, bad, len(cities))
    return lines


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with Onward.embedded(directory, workflows=[report], tasks=[count]) as onward:
            cities = [f"city-{number}" for number in range(1, 21)]
            started = time.monotonic()
            lines = await (await onward.start(report, cities)).result()
            is_fast = time.monotonic() - started < 1.9
            print(f"first: {lines[0]}, last: {lines[-1]}")
            print(f"{len(lines)} tasks of 100 ms ran in parallel: {is_fast}")


if __name__ == "__main__":
    asyncio.run(main())
