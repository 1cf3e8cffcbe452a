"""A schedule: backfilled for past days, and triggered.

`python schedule.py`
"""

import asyncio
import tempfile
from dataclasses import dataclass
from datetime import datetime, timezone

from onward import Ctx, Onward, workflow


@dataclass
class Day:
    day: str


@workflow("report")
async def report(ctx: Ctx, input: Day) -> str:
    return await ctx.step("count", lambda: f"the orders of {input.day}")


def march(day: int, hour: int = 0) -> datetime:
    return datetime(2026, 3, day, hour, tzinfo=timezone.utc)


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with Onward.embedded(directory, workflows=[report]) as onward:
            nightly = await onward.put_schedule(
                "nightly",
                report,
                cron="0 2 * * *",
                zone="Europe/Berlin",
                except_dates="2026-12-24/2027-01-01",
                overlap="buffer_one",
                input=Day("{{ slot.date }}"),  # rendered for each slot
                template=True,
            )

            # What the clock would have started, had the schedule existed.
            await nightly.backfill(march(28), march(31))
            for slot in (march(28, 1), march(29, 1), march(30)):
                run = nightly.run_at(slot)  # 2:00 in Berlin; 3:00 on 29 March, which has no 2:00
                print(f"{run.id}: {await run.result()}")

            # One more, at once, whatever the clock.
            await nightly.pause("holidays")
            triggered = await nightly.trigger(id="by-hand")
            await triggered.run.result()
            print(f"triggered {triggered.run.id}")

            view = await nightly.read()
            print(f"started {view.totals.started}, next: {len(view.next)}")  # none while it is paused
            print(f"next after the holidays: {len((await nightly.resume()).next)}")


if __name__ == "__main__":
    asyncio.run(main())
