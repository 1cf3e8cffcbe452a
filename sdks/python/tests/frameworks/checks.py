"""What every framework must do. Each check takes a workflow that passes its input to an agent and returns the answer."""

from typing import Any

from conftest import opened
from scripted import Watcher, calls, last_messages, request_count, says, steps


async def check_tools_run_side_by_side(answer: Any) -> None:
    """Needs a tool `meet`, which returns its argument `name` when it was called twice."""
    calls(("meet", {"name": "a"}), ("meet", {"name": "b"}))
    says("met")
    async with opened(answer) as onward:
        assert await (await onward.start(answer, "go")).result() == "met"
    assert [message["content"] for message in last_messages()[-2:]] == ["a", "b"]


async def check_watchers_receive_a_streamed_answer(answer: Any) -> None:
    """Needs a workflow that waits for the signal `go`."""
    text = "It rains, and it will rain for some days."
    says(text, chunk_delay_ms=20)
    async with opened(answer) as onward:
        run = await onward.start(answer, "How is it?")
        async with Watcher(run) as watcher:
            await run.signal("go")
            assert await run.result() == text
    assert watcher.text() == text
    assert watcher.before_result is not None and watcher.before_result > 1
    assert request_count() == 1


async def check_a_tool_in_workflow_code_uses_ctx(answer: Any, *, steps_of_run: list[str]) -> None:
    """Needs a tool `ask_person`, which receives the signal `reply`."""
    calls(("ask_person", {"question": "May I?"}))
    says("I may.")
    async with opened(answer) as onward:
        run = await onward.start(answer, "go")
        await run.wait(status="waiting")
        await run.signal("reply", "You may.")
        assert await run.result() == "I may."
        assert await steps(run) == steps_of_run
    assert last_messages()[-1]["content"] == "You may."
