"""OpenAI Agents SDK: every call of a model and of a tool is a step."""

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from agents import Agent, FunctionTool, ModelProvider, OpenAIChatCompletionsModel, RunConfig, Runner, SQLiteSession, function_tool
from agents.mcp import MCPServer
from checks import (
    check_a_tool_in_workflow_code_uses_ctx,
    check_tools_run_side_by_side,
    check_watchers_receive_a_streamed_answer,
)
from conftest import opened, paused_message
from mcp.types import CallToolResult, Tool
from openai import AsyncOpenAI
from scripted import URL, calls, fails, forget, last_messages, request_count, says, steps

from onward import Ctx, RunFailed, workflow
from onward.contrib import openai_agents

openai_agents.install()


@pytest.fixture(autouse=True)
def script() -> Iterator[None]:
    forget()
    yield


def model() -> OpenAIChatCompletionsModel:
    return OpenAIChatCompletionsModel("scripted", openai_client=AsyncOpenAI(base_url=URL + "/v1", api_key="k", max_retries=0))


def agent(*tools: FunctionTool, **options: Any) -> Agent[Any]:
    return Agent(**{"name": "guide", "model": model(), "tools": list(tools), **options})


def weather(ran: list[str]) -> FunctionTool:
    @function_tool(name_override="weather")
    async def tool(city: str) -> str:
        """Returns the weather."""
        ran.append(city)
        return f"rain in {city}"

    return tool


def answering(guide: Agent[Any], **options: Any) -> Any:
    @workflow("answer")
    async def answer(ctx: Ctx, question: str) -> str:
        return str((await Runner.run(guide, question, **options)).final_output)

    return answer


async def test_calls_of_models_and_tools_are_steps_that_a_replay_does_not_repeat() -> None:
    ran: list[str] = []
    calls(("weather", {"city": "Oslo"}))
    says("It rains.")
    answer = answering(agent(weather(ran)))
    async with opened(answer) as onward:
        run = await onward.start(answer, "How is it in Oslo?")
        assert await run.result() == "It rains."
        assert await steps(run) == ["model scripted", "tool weather", "model scripted"]
    assert ran == ["Oslo"]
    assert request_count() == 2
    assert [message["role"] for message in last_messages()] == ["user", "assistant", "tool"]
    assert last_messages()[-1]["content"] == "rain in Oslo"


async def test_tools_of_one_turn_run_side_by_side() -> None:
    both = asyncio.Barrier(2)

    @function_tool
    async def meet(name: str) -> str:
        """Waits for the other call."""
        await both.wait()
        return name

    await check_tools_run_side_by_side(answering(agent(meet)))


async def test_a_plain_function_is_a_tool_and_its_error_goes_to_the_model() -> None:
    @function_tool
    def broken(city: str) -> str:
        """Fails."""
        raise ValueError(f"no {city}")

    calls(("broken", {"city": "Oslo"}))
    says("sorry")
    answer = answering(agent(broken))
    async with opened(answer) as onward:
        run = await onward.start(answer, "go")
        assert await run.result() == "sorry"
    assert "An error occurred while running the tool" in last_messages()[-1]["content"]


async def test_agents_that_are_handed_to_or_called_as_tools_are_durable_too() -> None:
    ran: list[str] = []
    clerk = agent(weather(ran), name="clerk")
    expert = agent(weather(ran), name="expert")
    tool = expert.as_tool(tool_name="ask_expert", tool_description="Asks.")
    guide = agent(tool, handoffs=[clerk])
    clerk.handoffs = [guide]  # a cycle
    calls(("ask_expert", {"input": "Oslo?"}))
    calls(("weather", {"city": "Oslo"}))
    says("It rains in Oslo.")
    calls(("transfer_to_clerk", {}))
    calls(("weather", {"city": "Bergen"}))
    says("done")
    answer = answering(guide)
    async with opened(answer) as onward:
        run = await onward.start(answer, "go")
        assert await run.result() == "done"
        turn = ["model scripted", "tool weather", "model scripted"]
        assert await steps(run) == ["model scripted", *turn, "model scripted", *turn]
    assert ran == ["Oslo", "Bergen"]
    assert request_count() == 6


async def test_tools_of_an_mcp_server_are_listed_and_called_in_steps() -> None:
    done: list[str] = []

    class Server(MCPServer):
        @property
        def name(self) -> str:
            return "city"

        async def connect(self) -> None: ...

        async def cleanup(self) -> None: ...

        async def list_tools(self, run_context: Any = None, agent: Any = None) -> list[Tool]:
            done.append(f"list {uuid.uuid1().version}")  # refused in workflow code
            return [Tool.model_validate({"name": "weather", "inputSchema": {"type": "object", "properties": {}}})]

        async def call_tool(self, tool_name: str, arguments: Any, meta: Any = None) -> CallToolResult:
            done.append(tool_name)
            return CallToolResult.model_validate({"content": [{"type": "text", "text": "rain"}]})

        async def list_prompts(self) -> Any: ...

        async def get_prompt(self, name: str, arguments: Any = None) -> Any: ...

    calls(("weather", {}))
    says("It rains.")
    answer = answering(agent(mcp_servers=[Server()]))
    async with opened(answer) as onward:
        run = await onward.start(answer, "go")
        assert await run.result() == "It rains."
        found = await steps(run)
    assert found == ["mcp city tools", "model scripted", "mcp city weather", "mcp city tools", "model scripted"]
    assert done == ["list 1", "weather", "list 1"]
    assert last_messages()[-1]["content"] == [{"type": "text", "text": "rain"}]


async def test_a_model_is_found_by_name_in_a_step() -> None:
    class Provider(ModelProvider):
        def get_model(self, model_name: str | None) -> OpenAIChatCompletionsModel:
            uuid.uuid1()  # refused in workflow code
            return model()

    says("hello")
    answer = answering(agent(model="some-model"), run_config=RunConfig(model_provider=Provider()))
    async with opened(answer) as onward:
        run = await onward.start(answer, "go")
        assert await run.result() == "hello"
        assert await steps(run) == ["model some-model"]


async def test_watchers_receive_a_streamed_answer_before_it_is_recorded() -> None:
    guide = agent()

    @workflow("answer")
    async def answer(ctx: Ctx, question: str) -> str:
        await ctx.signal("go").recv()
        result = Runner.run_streamed(guide, question)
        async for _ in result.stream_events():
            pass
        return str(result.final_output)

    await check_watchers_receive_a_streamed_answer(answer)


async def test_a_model_call_is_repeated_if_that_may_help() -> None:
    fails("overloaded")
    says("hello")
    answer = answering(agent())
    async with opened(answer) as onward:
        run = await onward.start(answer, "go")
        assert await run.result() == "hello"
    assert request_count() == 2


async def test_a_model_call_that_is_refused_fails_the_run() -> None:
    fails("key_refused")
    answer = answering(agent())
    async with opened(answer) as onward:
        run = await onward.start(answer, "go")
        with pytest.raises(RunFailed) as caught:
            await run.result()
    assert caught.value.failure is not None and "AuthenticationError" in caught.value.failure.message
    assert request_count() == 1


async def test_a_tool_in_workflow_code_uses_ctx() -> None:
    @workflow("answer")
    async def answer(ctx: Ctx, question: str) -> str:
        @function_tool
        async def ask_person(question: str) -> str:
            """Asks a person."""
            return str(await ctx.signal("reply").recv())

        guide = agent(openai_agents.in_workflow(ask_person))
        return str((await Runner.run(guide, question)).final_output)

    await check_a_tool_in_workflow_code_uses_ctx(answer, steps_of_run=["model scripted"] * 2)


async def test_what_does_io_in_workflow_code_is_refused() -> None:
    @function_tool
    def now() -> str:
        """Returns an id."""
        return str(uuid.uuid4())

    answer = answering(agent(), session=SQLiteSession("s"))
    in_code = answering(agent(openai_agents.in_workflow(now)))
    async with opened(answer) as onward:
        run = await onward.start(answer, "go")
        with pytest.raises(RunFailed, match="session"):
            await run.result()
    calls(("now", {}))
    async with opened(in_code) as onward:
        run = await onward.start(in_code, "go")
        # Plain functions run in threads of the framework.
        assert "ctx.step" in await paused_message(onward, run)


async def test_outside_of_workflows_the_runner_is_that_of_the_framework() -> None:
    says("hello")
    assert (await Runner.run(agent(), "go")).final_output == "hello"
