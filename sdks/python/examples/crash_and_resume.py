"""A process is killed with SIGKILL in the middle of its second step; the next process resumes the run.

`python crash_and_resume.py` starts itself twice over one directory and kills the first process.
"""

import asyncio
import subprocess
import sys
import tempfile

from onward import Ctx, Onward, current_attempt, workflow


async def book(what: str, city: str) -> str:
    print(f"booking a {what} to {city}", flush=True)
    return f"{what} to {city}"


async def book_hotel(city: str) -> str:
    print(f"key of the hotel booking: {current_attempt().idempotency_key}", flush=True)
    booked = await book("hotel", city)
    await asyncio.sleep(0.5)  # the first process dies here
    return booked


@workflow("trip")
async def trip(ctx: Ctx, city: str) -> str:
    flight = await ctx.step("flight", book, "flight", city)
    hotel = await ctx.step("hotel", book_hotel, city)
    train = await ctx.step("train", book, "train", city)
    return f"{flight}, {hotel}, {train}"


async def work(directory: str) -> None:
    """Opens the directory, starts or finds the run, and waits for its result; both processes do the same."""
    async with Onward.embedded(directory, workflows=[trip]) as onward:
        run = await onward.start(trip, "Lisbon", id="trip-7")
        print(f"result: {await run.result()}", flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        for process in (1, 2):
            command = [sys.executable, __file__, directory]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
                assert child.stdout is not None
                for line in child.stdout:
                    print(f"process {process}: {line}", end="")
                    if process == 1 and line.startswith("booking a hotel"):
                        child.kill()  # SIGKILL: no handler, no `finally`
            print(f"process {process} ended: {child.returncode}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(work(sys.argv[1]))
    else:
        main()
