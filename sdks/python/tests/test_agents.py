"""Agents against the scripted model server, which stands beside the program of `ONWARD_BIN`."""

import asyncio
import enum
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import pytest
from conftest import opened

from onward import InvalidArguments, Onward, TaskCtx
from onward.agents import Agent, AgentCtx, AgentTool, Done, Next, agent, tool

needs_model = pytest.mark.skipif("ONWARD_BIN" not in os.environ, reason="`cargo xtask test python` sets ONWARD_BIN")


@pytest.fixture(scope="module")
def models() -> Iterator[dict[str, Any]]:
    program = Path(os.environ["ONWARD_BIN"]).with_name("scripted-model")
    with subprocess.Popen([str(program), "0"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        provider = {"api_format": "openai", "base_url": f"{url}/v1"}
        yield {"providers": {"local": provider}, "models": {"m": {"provider": "local", "name": "scripted"}}}
        process.kill()


class Unit(enum.Enum):
    CELSIUS = "c"
    KELVIN = "k"


@dataclass
class Place:
    city: str
    country: Optional[str] = None


def test_the_schema_of_a_tool_derives_from_its_type_hints() -> None:
    @tool(effect="pure", timeout=5)
    def weather(
        ctx: TaskCtx, place: Place, unit: Unit = Unit.CELSIUS, days: Annotated[int, "how many"] = 1, mode: Literal["a", "b"] = "a"
    ) -> str:
        """Tells the weather."""
        return f"{place.city} {unit.name} {days} {mode}"

    settings = weather.settings()
    assert (settings["name"], settings["description"], settings["class"]) == ("weather", "Tells the weather.", "pure")
    assert settings["timeout_ms"] == 5000
    assert json.loads(settings["input"]) == {
        "type": "object",
        "properties": {
            "place": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "country": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
                "required": ["city"],
                "additionalProperties": False,
            },
            "unit": {"enum": ["c", "k"], "default": "c"},
            "days": {"type": "integer", "description": "how many", "default": 1},
            "mode": {"enum": ["a", "b"], "default": "a"},
        },
        "required": ["place"],
        "additionalProperties": False,
    }
    assert weather.call(None, {"place": {"city": "Ulm"}, "unit": "k"}) == "Ulm KELVIN 1 a"


def test_tools_that_a_model_cannot_call_are_refused() -> None:
    def undocumented(city: str) -> str:
        return city

    def variadic(*cities: str) -> str:
        """Takes any."""
        return cities[0]

    for function, problem in ((undocumented, "no description"), (variadic, "without a name")):
        with pytest.raises(InvalidArguments, match=problem):
            tool()(function)


@tool(effect="pure")
async def weather(city: str) -> str:
    """Tells the weather in a city."""
    if city == "Atlantis":
        raise LookupError("it sank")
    return f"sunny in {city}"


@needs_model
async def test_the_ready_made_agent_calls_tools_and_streams(models: dict[str, Any], directory: str) -> None:
    support = Agent("support", model="m", system="You help.", tools=[weather])
    async with opened(store=directory, agents=[support], models=models) as onward:
        run = await onward.start("support", 'What does the tool weather say of {"city": "Ulm"}?', id="s")
        result = await run.result()
        assert result["stop"] == "done" and "sunny in Ulm" in result["text"]
        page = await run.entries()
        assert [entry["role"] for entry in page["entries"]] == ["user", "assistant", "tool", "assistant"]
        failing = await onward.start("support", 'What does the tool weather say of {"city": "Atlantis"}?')
        assert "it sank" in (await failing.result())["text"]
        wrong = await onward.start("support", 'What does the tool weather say of {"town": "Ulm"}?')
        assert "error" in (await wrong.result())["text"]


@needs_model
async def test_a_conversation_goes_on_with_messages_and_streams_text(models: dict[str, Any]) -> None:
    chat = Agent("chat", model="m", converse=True)
    async with opened(agents=[chat], models=models) as onward:
        run = await onward.start("chat", "Good morning!", id="c")
        frames: list[Any] = []

        async def read() -> None:
            async for frame in run.stream():
                frames.append(frame)

        reading = asyncio.create_task(read())
        while len((await run.entries())["entries"]) < 2:
            await asyncio.sleep(0.01)
        await run.message("And good night!", id="m-1")
        await run.message("And good night!", id="m-1")
        while len((await run.entries())["entries"]) < 4:
            await asyncio.sleep(0.01)
        texts = [json.dumps(entry["content"]) for entry in (await run.entries())["entries"]]
        assert "Good morning" in texts[0] and "good night" in texts[2] and "good night" in texts[3]
        await run.terminate()
        await reading
        assert "morning" in json.dumps(frames)


@needs_model
async def test_an_agent_calls_another_agent_as_a_tool(models: dict[str, Any]) -> None:
    scholar = Agent("scholar", model="m")
    boss = Agent("boss", model="m", agent_tools=[AgentTool("researcher", "Looks things up", "scholar")])
    async with opened(agents=[boss, scholar], models=models) as onward:
        run = await onward.start("boss", 'What does the tool researcher say of {"task": "ships"}?', id="b")
        result = await run.result()
        assert result["stop"] == "done"
        children = await onward.request("list_children", run="b")
        assert "scholar" in json.dumps(children)


@needs_model
async def test_turns_resume_after_a_restart_and_repeat_no_finished_call(models: dict[str, Any], directory: str) -> None:
    called: list[str] = []

    @tool(effect="at_most_once")
    async def note(text: str) -> str:
        """Writes a note."""
        called.append(text)
        return f"noted {text}"

    @agent("secretary")
    async def secretary(ctx: AgentCtx, count: int) -> list[str]:
        async def turn(done: list[str]) -> Next[list[str]] | Done[list[str]]:
            ctx.append("user", f'Please use note {{"text": "n{len(done)}"}}', key=f"turn {len(done)}")
            reply = await ctx.llm("m", tools=[note])
            ctx.append("assistant", reply)
            for call in reply.calls:
                ctx.append("tool", await ctx.tool(call))
            answer = await ctx.llm("m", tools=[note])
            ctx.append("assistant", answer)
            done = [*done, answer.text]
            if len(done) == count:
                return Done(done)
            return Next(done, wait_for="go" if len(done) == 2 else None)

        nothing: list[str] = []
        return await ctx.turns(nothing, turn)

    options: dict[str, Any] = {"workflows": [secretary], "tools": [note], "models": models}
    async with Onward.embedded(directory, **options) as onward:
        run = await onward.start(secretary, 3, id="x")
        while len(called) < 2 or (await run.view()).status != "waiting":
            await asyncio.sleep(0.01)
    async with Onward.embedded(directory, **options) as onward:
        run = onward.run("x", secretary)
        await run.signal("go")
        result = await run.result()
        assert len(result) == 3 and all(f"noted n{number}" in text for number, text in enumerate(result))
    assert called == ["n0", "n1", "n2"]
