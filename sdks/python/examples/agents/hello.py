"""The smallest agent: a model, a system prompt, and a durable answer.

`python agents/hello.py`
"""

import asyncio
import tempfile

from model import NAME, models

from onward import Onward
from onward.agents import Agent

hello = Agent("hello", model=NAME, system="You are brief and kind.")


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:  # a real program keeps its directory
        async with Onward.embedded(directory, agents=[hello], models=models()) as onward:
            run = await onward.start("hello", "Good morning!", id="morning")
            outcome = await run.result()
            print(f"{outcome['stop']} after {outcome['turns']} turn: {outcome['text']}")

            # The same id is the same run: the model is not called again.
            again = await onward.start("hello", "Good morning!", id="morning")
            print(f"once more: {(await again.result())['text']}")


if __name__ == "__main__":
    asyncio.run(main())
