"""A process that is killed: an agent with one tool, which blocks for ever in the process that starts it first.

Arguments: the framework, the directory, and a file that has one line for each execution of the tool.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI
from scripted import URL

from onward import Ctx, Onward, workflow

FRAMEWORK, DIRECTORY, EFFECTS = sys.argv[1], sys.argv[2], Path(sys.argv[3])
CLIENT = AsyncOpenAI(base_url=URL + "/v1", api_key="k", max_retries=0)


async def look_up(key: str) -> str:
    """Looks up a key."""
    lines = EFFECTS.read_text().splitlines()
    with EFFECTS.open("a") as file:
        file.write(f"{key}\n")
    if key not in lines:
        print("in the tool", flush=True)
        await asyncio.Event().wait()
    return f"value of {key}"


def openai_agents() -> Any:
    from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool

    from onward.contrib import openai_agents

    openai_agents.install()
    model = OpenAIChatCompletionsModel("scripted", openai_client=CLIENT)
    agent = Agent(name="guide", model=model, tools=[function_tool(look_up)])

    async def answer(question: str) -> str:
        result = Runner.run_streamed(agent, question)
        async for _ in result.stream_events():
            pass
        return str(result.final_output)

    return answer


def pydantic_ai() -> Any:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    from onward.contrib.pydantic_ai import OnwardDurability

    model = OpenAIChatModel("scripted", provider=OpenAIProvider(openai_client=CLIENT))
    agent = Agent(model, name="guide", capabilities=[OnwardDurability()], tools=[look_up])

    async def answer(question: str) -> str:
        return (await agent.run(question)).output

    return answer


ASK = {"openai_agents": openai_agents, "pydantic_ai": pydantic_ai}[FRAMEWORK]()


@workflow("answer")
async def answer(ctx: Ctx, question: str) -> str:
    return str(await ASK(question))


async def main() -> None:
    async with Onward.embedded(DIRECTORY, workflows=[answer]) as onward:
        run = await onward.start(answer, "go", id="one")
        async with asyncio.TaskGroup() as group:
            group.create_task(show_answer(run))
            result = await run.result()
        print(f"result: {result}", flush=True)


async def show_answer(run: Any) -> None:
    async for frame in run.watch():
        if "emitted" in frame["content"] and frame["content"]["emitted"]["value"]["json"]["type"] == "text":
            print("in the answer", flush=True)


asyncio.run(main())
