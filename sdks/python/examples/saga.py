"""Compensation: completed steps are undone, latest first, when the run fails.

`python saga.py`
"""

import asyncio
import tempfile

from onward import Ctx, Failure, Onward, RunFailed, workflow


async def book(what: str, city: str) -> str:
    if what == "car" and city == "Venice":
        raise Failure("no roads here", code="no_cars", retryable=False)
    print(f"booked a {what} in {city}")
    return f"{what} in {city}"


async def cancel(booking: str) -> None:
    print(f"canceled the {booking}")


@workflow("trip")
async def trip(ctx: Ctx, city: str) -> str:
    flight = await ctx.step("book-flight", book, "flight", city)
    # Registered after the booking is recorded, so only real bookings are canceled.
    ctx.on_failure("cancel-flight", cancel, flight)

    hotel = await ctx.step("book-hotel", book, "hotel", city)
    ctx.on_failure("cancel-hotel", cancel, hotel)

    car = await ctx.step("book-car", book, "car", city)
    return f"all booked, down to the {car}"


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with Onward.embedded(directory, workflows=[trip]) as onward:
            for city in ("Lisbon", "Venice"):
                run = await onward.start(trip, city)
                try:
                    print(await run.result())
                except RunFailed as error:
                    code = error.code if error.failure is None else error.failure.code
                    print(f"error[{code}]: {error}")


if __name__ == "__main__":
    asyncio.run(main())
