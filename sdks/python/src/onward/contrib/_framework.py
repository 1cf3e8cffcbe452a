"""What the modules for AI frameworks share: steps of the run whose code is running, and partial answers for its readers."""

from __future__ import annotations

from asyncio import _get_running_loop
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from .._ctx import Ctx
from .._definitions import RetryPolicy
from .._errors import Failure, OnwardError, Stopped
from .._loop import TurnLoop
from .._run import Run

#: Attempts of a model call, and what may be given instead.
RETRY = 3
Retry = int | RetryPolicy | None
Span = timedelta | float | None

#: HTTP status codes after which a further attempt may succeed, as in the clients of model providers.
RETRYABLE = {408, 409, 429}


def current_run() -> Run | None:
    """Returns the run whose code is running, or `None` outside of workflow code."""
    loop = _get_running_loop()
    return loop.run if isinstance(loop, TurnLoop) else None


async def run_step(run: Run, name: str, function: Callable[[], Awaitable[Any]], retry: Retry, timeout: Span) -> Any:
    """Calls a function in a step of the run; failures of requests say whether they may be retried."""

    async def call() -> Any:
        try:
            return await function()
        except Failure:
            raise
        except Exception as error:
            raise request_failure(error) from error

    return await Ctx(run).step(name, call, retry=retry, timeout=timeout)


def request_failure(error: Exception) -> Exception:
    """Returns an exception as a failure with what is known of its HTTP response."""
    status = getattr(error, "status_code", None)
    if not isinstance(status, int):
        return error
    response = getattr(error, "response", None)
    seconds = getattr(response, "headers", {}).get("retry-after", "")
    return Failure(
        f"{type(error).__name__}: {error}",
        retryable=status in RETRYABLE or status >= 500,
        retry_after_ms=int(seconds) * 1000 if seconds.isdigit() else None,
        data={"status": status},
    )


class Deltas:
    """Sends parts of an answer to the readers of a run, while the step runs that receives them.

    The values are those of the streams of agents (docs/guide/streams.md).
    """

    def __init__(self, run: Run, name: str) -> None:
        self.run = run
        self.name = name

    def send(self, type: str, **fields: Any) -> None:
        value = {"type": type} | {name: field for name, field in fields.items() if field is not None}
        # The run may have been closed; the answer is not lost, because the step runs again elsewhere.
        with suppress(OnwardError, Stopped):
            Ctx(self.run).emit(self.name, value)

    def text(self, text: str) -> None:
        if text:
            self.send("text", text=text)

    def reasoning(self, text: str) -> None:
        if text:
            self.send("reasoning", text=text)

    def tool_call_begin(self, id: str | None, name: str | None) -> None:
        self.send("tool_call_begin", id=id, name=name)

    def tool_call_arguments(self, id: str | None, text: str) -> None:
        if text:
            self.send("tool_call_arguments", id=id, text=text)
