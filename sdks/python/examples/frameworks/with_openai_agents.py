"""OpenAI Agents SDK in a workflow: model calls and tool calls are recorded steps, and a watcher sees the answer while it is written.

`pip install openai-agents`, then `python frameworks/with_openai_agents.py`
"""

import asyncio
import os
import tempfile
from typing import Any

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool
from openai import AsyncOpenAI

from onward import Ctx, Onward, RunHandle, workflow
from onward.contrib import openai_agents

openai_agents.install()


def model() -> Any:
    """Returns a model of OpenAI, or the scripted model if there is no key."""
    if "OPENAI_API_KEY" in os.environ:
        return "gpt-5-mini"
    client = AsyncOpenAI(base_url=os.environ["SCRIPTED_MODEL_URL"] + "/v1", api_key="none")
    return OpenAIChatCompletionsModel("scripted", openai_client=client)


@function_tool
async def look_outside(city: str) -> str:
    """Returns the weather in a city."""
    print("(looking out of a window)")
    return "18 degrees and sunny"


guide = Agent(name="guide", instructions="You are brief and kind.", tools=[look_outside], model=model())


@workflow("answer")
async def answer(ctx: Ctx, question: str) -> str:
    result = Runner.run_streamed(guide, question)
    async for _ in result.stream_events():
        pass
    return str(result.final_output)


async def show(run: RunHandle[str]) -> None:
    async for frame in run.watch():
        emitted = frame["content"].get("emitted")
        if emitted and emitted["value"]["json"]["type"] == "tool_call_begin":
            print(f"the model calls {emitted['value']['json']['name']}")


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:  # a real program keeps its directory
        async with Onward.embedded(directory, workflows=[answer]) as onward:
            run = await onward.start(answer, "Please look_outside in Ulm.", id="ulm")
            watching = asyncio.create_task(show(run))
            print(await run.result())
            await watching


if __name__ == "__main__":
    asyncio.run(main())
