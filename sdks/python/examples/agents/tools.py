"""An agent function of one's own, turn by turn, with tools that are typed functions.

`python agents/tools.py`
"""

import asyncio
import tempfile

from model import NAME, models

from onward import Onward
from onward.agents import AgentCtx, Done, Next, agent, tool


@tool(effect="pure")
async def weather(city: str) -> str:
    """Tells the weather in a city."""
    print(f"  (looking out of a window in {city})")
    return f"18 degrees and sunny in {city}"


@agent("assistant")
async def assistant(ctx: AgentCtx, question: str) -> str:
    ctx.append("user", question)

    # Every turn ends in a checkpoint. After a crash the function starts again, is replayed, and continues in the open turn.
    async def turn(_: None) -> Next[None] | Done[str]:
        reply = await ctx.llm(NAME, tools=[weather])
        ctx.append("assistant", reply)
        if not reply.calls:
            return Done(reply.text)
        for outcome in await asyncio.gather(*(ctx.tool(call) for call in reply.calls)):
            ctx.append("tool", outcome)
        return Next(None)

    return await ctx.turns(None, turn)


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with Onward.embedded(directory, workflows=[assistant], tools=[weather], models=models()) as onward:
            run = await onward.start(assistant, 'What does the tool weather say of {"city": "Ulm"}?')
            print(await run.result())


if __name__ == "__main__":
    asyncio.run(main())
