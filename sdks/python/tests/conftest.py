"""Shared parts of the tests."""

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from onward import Onward

#: A limit that guards against hangs.
HANG_S = 120


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs tests that are async functions, each in a loop of its own."""
    function = pyfuncitem.obj
    if not inspect.iscoroutinefunction(function):
        return None
    names = inspect.signature(function).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names}

    async def bounded() -> None:
        await asyncio.wait_for(function(**arguments), HANG_S)

    asyncio.run(bounded())
    return True


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(tmp_path / "data")


@asynccontextmanager
async def opened(*definitions: Any, store: str | None = None, **options: Any) -> AsyncIterator[Onward]:
    """Opens an `Onward` with workflows and tasks, in memory unless there is a directory."""
    from onward import Task, Workflow

    options.setdefault("check_replay", "every")
    workflows = [found for found in definitions if isinstance(found, Workflow)]
    tasks = [found for found in definitions if isinstance(found, Task)]
    make: Callable[..., Onward] = functools.partial(Onward.embedded, store) if store else Onward.in_memory
    async with make(workflows=workflows, tasks=tasks, threads=1, **options) as onward:
        yield onward


async def result_of(workflow: Any, *input: Any, definitions: tuple[Any, ...] = (), **options: Any) -> Any:
    """Runs a workflow in memory and returns its result."""
    async with opened(workflow, *definitions, **options) as onward:
        return await (await onward.start(workflow, *input)).result()


async def paused_message(onward: Onward, run: Any) -> str:
    """Waits until a run is paused and returns why."""
    view = await run.wait(status="paused")
    assert view.pause is not None, view
    return str(view.pause["message"])
