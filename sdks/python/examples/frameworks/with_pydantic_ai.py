"""Pydantic AI in a workflow: model requests and tool calls are recorded steps, and a person is asked in between.

`pip install "pydantic-ai-slim[openai]"`, then `python frameworks/with_pydantic_ai.py`
"""

import asyncio
import os
import tempfile
from typing import Any

from pydantic_ai import Agent, RunContext
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from onward import Ctx, Onward, RunHandle, workflow
from onward.contrib.pydantic_ai import OnwardDurability


def model() -> OpenAIChatModel:
    """Returns a model of OpenAI, or the scripted model if there is no key."""
    if "OPENAI_API_KEY" in os.environ:
        return OpenAIChatModel("gpt-5-mini")
    provider = OpenAIProvider(base_url=os.environ["SCRIPTED_MODEL_URL"] + "/v1", api_key="none")
    return OpenAIChatModel("scripted", provider=provider)


clerk = Agent(model(), name="clerk", deps_type=Ctx, capabilities=[OnwardDurability()], instructions="You are brief and kind.")


# Not a step, but workflow code: it may use `ctx`, and waits across restarts.
@clerk.tool(metadata={"onward": False})
async def refund(context: RunContext[Ctx], cents: int) -> str:
    """Pays money back, if a person agrees."""
    decision = await context.deps.approval("refund", f"Pay {cents} cents back?")
    return f"refunded {cents} cents" if decision.approved else "a person has declined"


@workflow("serve")
async def serve(ctx: Ctx, wish: str) -> str:
    return (await clerk.run(wish, deps=ctx)).output


async def asked(run: RunHandle[str]) -> dict[str, Any]:
    """Waits until the run waits for a person: it also waits for its steps."""
    while True:
        for awaited in (await run.view()).awaiting:
            if awaited["kind"] == "approval":
                return awaited
        await asyncio.sleep(0.01)


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:  # a real program keeps its directory
        async with Onward.embedded(directory, workflows=[serve]) as onward:
            run = await onward.start(serve, "A refund of 1900 cents, please.", id="a-17")
            approval = await asked(run)
            print(f"a person is asked: {approval['name']}")
            await onward.approve(approval["id"])
            print(await run.result())


if __name__ == "__main__":
    asyncio.run(main())
