"""The smallest durable function: a step, a sleep, a step.

`python hello.py`
"""

import asyncio
import tempfile
from datetime import timedelta

from onward import Ctx, Onward, workflow


async def compose(name: str) -> str:
    """Runs inside a step, so it may do I/O: call a service, write a file."""
    return f"Hello, {name}!"


async def say(greeting: str) -> None:
    print(f"the run says: {greeting}")


@workflow("greet")
async def greet(ctx: Ctx, name: str) -> str:
    greeting = await ctx.step("compose", compose, name)
    await ctx.sleep(timedelta(seconds=1))  # a day costs no more than a second: no thread, no memory
    await ctx.step("say", say, greeting)
    return greeting


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:  # a real program keeps its directory
        async with Onward.embedded(directory, workflows=[greet]) as onward:
            run = await onward.start(greet, "Ada", id="greet-ada")
            print(f"started {run.id}")
            print(f"result: {await run.result()}")

            # The same id with the same input is the same run: no step runs again.
            again = await onward.start(greet, "Ada", id="greet-ada")
            print(f"once more: {await again.result()}")

            for record in await run.log():
                for offset, event in enumerate(record["events"]):
                    print(f"#{record['index'] + offset} {event['type']}")


if __name__ == "__main__":
    asyncio.run(main())
