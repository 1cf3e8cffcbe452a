"""Pydantic AI: every request of a model and every call of a tool is a step."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from checks import (
    check_a_tool_in_workflow_code_uses_ctx,
    check_tools_run_side_by_side,
    check_watchers_receive_a_streamed_answer,
)
from conftest import opened
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from openai import AsyncOpenAI
from scripted import URL, calls, fails, forget, last_messages, request_count, says, steps

from onward import Ctx, RunFailed, workflow
from onward.contrib.pydantic_ai import OnwardDurability


@pytest.fixture(autouse=True)
def script() -> Iterator[None]:
    forget()
    yield


def agent(emit: str | None = None, **options: Any) -> Agent[Any, Any]:
    client = AsyncOpenAI(base_url=URL + "/v1", api_key="k", max_retries=0)
    model = OpenAIChatModel("scripted", provider=OpenAIProvider(openai_client=client))
    return Agent(model, name="guide", capabilities=[OnwardDurability(emit=emit)], **options)


def answering(guide: Agent[Any, Any]) -> Any:
    @workflow("answer")
    async def answer(ctx: Ctx, question: str) -> Any:
        return (await guide.run(question)).output

    return answer


async def test_requests_of_models_and_calls_of_tools_are_steps_that_a_replay_does_not_repeat() -> None:
    ran: list[str] = []
    guide = agent()

    @guide.tool_plain
    async def weather(city: str) -> str:
        ran.append(city)
        return f"rain in {city}"

    calls(("weather", {"city": "Oslo"}))
    says("It rains.")
    answer = answering(guide)
    async with opened(answer) as onward:
        run = await onward.start(answer, "How is it in Oslo?")
        assert await run.result() == "It rains."
        assert await steps(run) == [
            "guide__model.request",
            "guide__function_toolset__<agent>.call_tool:weather",
            "guide__model.request",
        ]
    assert ran == ["Oslo"]
    assert request_count() == 2
    assert last_messages()[-1]["content"] == "rain in Oslo"


async def test_messages_are_the_same_in_every_replay() -> None:
    guide = agent()

    @guide.tool_plain
    def weather(city: str) -> str:
        return "rain"

    @workflow("answer")
    async def answer(ctx: Ctx, question: str) -> Any:
        result = await guide.run(question)
        messages = result.all_messages_json().decode()

        async def keep() -> None:
            pass

        # The input is compared in every replay.
        await ctx.step("keep", keep, input=messages)
        return messages

    calls(("weather", {"city": "Oslo"}))
    says("It rains.")
    async with opened(answer) as onward:
        run = await onward.start(answer, "How is it in Oslo?")
        assert "run_id" in await run.result()
    assert request_count() == 2


async def test_tools_of_one_turn_run_side_by_side() -> None:
    both = asyncio.Barrier(2)
    guide = agent()

    @guide.tool_plain
    async def meet(name: str) -> str:
        await both.wait()
        return name

    await check_tools_run_side_by_side(answering(guide))


async def test_typed_output_and_retries_that_a_tool_asks_for() -> None:
    class Answer(BaseModel):
        city: str
        days: int

    asked: list[str] = []
    guide = agent(output_type=Answer)

    @guide.tool_plain
    async def find(name: str) -> str:
        asked.append(name)
        if len(asked) == 1:
            raise ModelRetry("use the whole name")
        return "found"

    calls(("find", {"name": "O"}))
    calls(("find", {"name": "Oslo"}))
    calls(("final_result", {"city": "Oslo", "days": 3}))
    answer = answering(guide)
    async with opened(answer) as onward:
        assert await (await onward.start(answer, "go")).result() == {"city": "Oslo", "days": 3}
    assert asked == ["O", "Oslo"]
    assert request_count() == 3


async def test_watchers_receive_a_streamed_answer_before_it_is_recorded() -> None:
    guide = agent(emit="model")

    @workflow("answer")
    async def answer(ctx: Ctx, question: str) -> Any:
        await ctx.signal("go").recv()
        return (await guide.run(question)).output

    await check_watchers_receive_a_streamed_answer(answer)


async def test_a_request_is_repeated_if_that_may_help_and_fails_the_run_if_not() -> None:
    fails("overloaded")
    says("hello")
    answer = answering(agent())
    async with opened(answer) as onward:
        assert await (await onward.start(answer, "go")).result() == "hello"
        assert request_count() == 2
        fails("key_refused")
        with pytest.raises(RunFailed) as caught:
            await (await onward.start(answer, "go")).result()
    assert caught.value.failure is not None and "ModelAuthenticationError" in caught.value.failure.message
    assert request_count() == 3


async def test_a_tool_in_workflow_code_uses_ctx() -> None:
    guide = agent(deps_type=Ctx)

    @guide.tool(metadata={"onward": False})
    async def ask_person(context: RunContext[Ctx], question: str) -> str:
        return str(await context.deps.signal("reply").recv())

    @workflow("answer")
    async def answer(ctx: Ctx, question: str) -> Any:
        return (await guide.run(question, deps=ctx)).output

    await check_a_tool_in_workflow_code_uses_ctx(answer, steps_of_run=["guide__model.request"] * 2)


async def test_outside_of_workflows_the_agent_is_that_of_the_framework() -> None:
    says("hello")
    assert (await agent().run("go")).output == "hello"
