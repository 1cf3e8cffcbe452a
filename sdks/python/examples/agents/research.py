"""Several agents: an editor, and researchers that work in parallel, all within one budget.

`python agents/research.py`
"""

import asyncio
import json
import tempfile
from typing import Any

from model import NAME, models

from onward import Onward
from onward.agents import Agent, AgentCtx, Done, Next, agent, tool


@tool(effect="pure")
async def library(topic: str) -> str:
    """Finds books about a topic."""
    return f"three books about {topic}"


researcher = Agent("researcher", model=NAME, tools=[library], max_turns=5)


@agent("editor")
async def editor(ctx: AgentCtx, topics: list[str]) -> str:
    """Starts a researcher for each topic and writes a report of their results. A failed researcher is a gap in the report."""

    async def turn(_: None) -> Next[None] | Done[str]:
        # An equal share for each researcher and for the report; unspent tokens return.
        share = ctx.budget_left()["tokens"] // (len(topics) + 1)
        questions = (f"Ask the library {json.dumps({'topic': topic})}" for topic in topics)
        children = (ctx.child("researcher", question, budget={"tokens": share}) for question in questions)
        results: list[Any] = await asyncio.gather(*children, return_exceptions=True)
        for topic, result in zip(topics, results):
            note = f"nothing ({result})" if isinstance(result, Exception) else result["text"]
            ctx.append("user", f"About {topic}: {note}")
        report = await ctx.llm(NAME, system="Write a report of what was found.")
        ctx.append("assistant", report)
        return Done(report.text)

    return await ctx.turns(None, turn)


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with Onward.embedded(directory, workflows=[editor], agents=[researcher], models=models()) as onward:
            budget = {"tokens": 20_000, "seconds": 600}
            run = await onward.start(editor, ["rivers", "bridges", "ferries"], id="report", budget=budget)
            print(await run.result())
            head = (await run.view()).details["head"]
            print(f"the editor's own calls: {head['spend']['attempts']}")


if __name__ == "__main__":
    asyncio.run(main())
