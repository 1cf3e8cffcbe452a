"""Signals: a mailbox per run. Wait for one, poll for one, or let the first of several win.

`python signals.py`
"""

import asyncio
import tempfile
from datetime import timedelta
from typing import Any

from onward import Call, Ctx, Onward, RunHandle, workflow


async def write_chapter(number: int, topic: str) -> str:
    print(f"writing chapter {number} about {topic}")
    return f"{number}. {topic}"


@workflow("write")
async def write(ctx: Ctx, topic: str) -> list[str]:
    book: list[str] = []
    while True:
        # Steering: a poll of the mailbox. Its result is recorded before the next step starts, so a replay gets the same.
        for wish in ctx.signal("steer", str).drain():
            topic = wish
        book.append(await ctx.step("write", write_chapter, len(book) + 1, topic))
        ctx.state["chapters"] = len(book)  # callers can read it while the run waits

        # The lower index in the log wins, now and on every replay.
        review = ctx.signal("review", str).recv()
        timer = ctx.sleep(timedelta(minutes=10))
        calls: list[Call[Any]] = [review, timer]
        done, losers = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        for loser in losers:
            loser.cancel()
        if review not in done or review.result() == "done":
            return book


async def wait(run: RunHandle[list[str]], chapters: int) -> None:
    """Waits until the run has written so many chapters and waits for a review."""
    await run.wait(state=("chapters", chapters))
    await run.wait(status="waiting")


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with Onward.embedded(directory, workflows=[write]) as onward:
            # Sent with the start, in one write: it is in the mailbox before the code runs.
            run = await onward.start(write, "cats", id="book", signal={"name": "steer", "value": "dogs"})
            await wait(run, 1)
            await run.signal("steer", "birds")
            await run.signal("review", "more")
            await wait(run, 2)
            # A repeat with the same id is the same signal: a webhook may be delivered twice.
            first = await run.signal("review", "done", id="webhook-1")
            again = await run.signal("review", "done", id="webhook-1")
            print(f"same index: {first['index'] == again['index']}, repeated: {again['repeated']}")

            print(f"book: {await run.result()}")
            print(f"chapters: {(await run.view()).state['chapters']}")


if __name__ == "__main__":
    asyncio.run(main())
