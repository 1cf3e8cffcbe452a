"""Measures DBOS for Python on PostgreSQL with the program of `bench.py`: `dbos_bench.py URL`."""

import asyncio
import sys
import time
from pathlib import Path

from dbos import DBOS

sys.path.insert(0, str(Path(__file__).parent.parent))

from figures import median, report  # noqa: E402

RESULT = "x" * 198
STEP_TIMES: list[float] = []
URL = sys.argv[1].replace("postgres://", "postgresql://")
DBOS(config={"name": "bench", "system_database_url": URL, "log_level": "ERROR"})


@DBOS.step()
async def text() -> str:
    return RESULT


@DBOS.step()
async def timed_text() -> str:
    STEP_TIMES.append(time.perf_counter())
    return RESULT


@DBOS.workflow()
async def ten_steps(seed: int) -> int:
    total = seed
    for step in range(10):
        total += len(await text()) + step
    return total


@DBOS.workflow()
async def many_steps(count: int) -> int:
    for _ in range(count):
        await timed_text()
    return count


async def throughput(concurrency: int, seconds: float) -> float:
    """Keeps runs of ten steps active, without a warm-up: that of Onward would be shorter than the first runs."""
    begin = time.perf_counter()
    end = begin + seconds

    async def caller() -> int:
        runs = 0
        while time.perf_counter() < end:
            run = await DBOS.start_workflow_async(ten_steps, runs)
            await run.get_result()
            runs += 1
        return runs

    runs = sum(await asyncio.gather(*(caller() for _ in range(concurrency))))
    return runs * 10 / (time.perf_counter() - begin)


async def main() -> None:
    is_quick = "--quick" in sys.argv
    report("dbos.steps_per_s.c512", await throughput(512, 5.0 if is_quick else 20.0), "1/s")
    run = await DBOS.start_workflow_async(many_steps, 200 if is_quick else 1_000)
    await run.get_result()
    report("dbos.step_ms.p50", median([(after - before) * 1_000 for before, after in zip(STEP_TIMES, STEP_TIMES[1:])]), "ms")


if __name__ == "__main__":
    DBOS.launch()
    try:
        asyncio.run(main())
    finally:
        DBOS.destroy()
