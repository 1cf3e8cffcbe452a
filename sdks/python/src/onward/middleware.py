"""Middleware: code of a worker around runs, and around attempts of steps, tasks, model calls and tools.

`run` surrounds the code of a run: it is workflow code, deterministic, and every replay executes it again. `attempt` surrounds one
real attempt: it may do I/O, wait and read clocks, and no replay executes it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ._errors import Failure, invalid
from ._json import encode, failure_json, loads, milliseconds

if TYPE_CHECKING:
    from ._ctx import Ctx
    from ._tasks import TaskCtx

C = TypeVar("C")

AttemptKind = Literal["step", "task", "model_call", "tool"]


@dataclass
class RunCall:
    """A run whose code is about to begin."""

    #: The context of the code. Calls of a middleware are recorded like those of the code.
    ctx: Ctx
    #: The kind of the run.
    kind: str
    #: The input as JSON; the code gets it with its annotated type.
    input: Any


@dataclass
class AttemptCall:
    """An attempt that is about to begin."""

    kind: AttemptKind
    #: The name of the step, tool or model, or the kind of the task.
    name: str
    #: The id of the run that made the call.
    run: str
    #: 1, 2, ..
    attempt: int
    idempotency_key: str
    #: The input of a task or tool, or the request as it goes to the provider of a model. For a step the option `input`.
    input: Any
    _task: TaskCtx | None = None
    _is_muted: bool = False

    def mute(self) -> None:
        """Drops what this attempt sends to readers of the stream, such as the text of a model while it arrives."""
        self._is_muted = True
        if self._task is not None:
            self._task._is_muted = True


#: The rest of a run or attempt: the middlewares further inside, then the code. Await it once.
NextRun = Callable[[RunCall], Awaitable[Any]]
NextAttempt = Callable[[AttemptCall], Awaitable[Any]]


class Middleware:
    """Code around runs and attempts. Every method has a default that changes nothing.

    The first one of `Onward.embedded(.., middleware=[..])` is the outermost.
    """

    async def run(self, call: RunCall, next: NextRun) -> Any:
        """Surrounds the code of a run. It is a part of the workflow: deterministic, and executed again by every replay."""
        return await next(call)

    async def attempt(self, call: AttemptCall, next: NextAttempt) -> Any:
        """Surrounds one attempt of a step, task, model call or tool. What it returns is recorded, what it raises is retried."""
        return await next(call)

    def recorded_input(self, step: str, input: Any) -> Any:
        """Returns the input of a step as it is recorded for readers. Must be deterministic."""
        return input


def chain(
    methods: Iterable[Callable[[C, Callable[[C], Awaitable[Any]]], Awaitable[Any]]], last: Callable[[C], Awaitable[Any]]
) -> Callable[[C], Awaitable[Any]]:
    """Returns a function that calls the methods in order, and `last` inside of them."""
    for method in reversed(list(methods)):
        last = surround(method, last)
    return last


def surround(
    method: Callable[[C, Callable[[C], Awaitable[Any]]], Awaitable[Any]], inner: Callable[[C], Awaitable[Any]]
) -> Callable[[C], Awaitable[Any]]:
    async def outer(call: C) -> Any:
        return await method(call, inner)

    return outer


def checked(middlewares: Sequence[Middleware]) -> list[Middleware]:
    for found in middlewares:
        if not isinstance(found, Middleware):
            raise invalid(f"{found!r:.60} is not a middleware", "derive its class from `onward.middleware.Middleware`")
    return list(middlewares)


# ---- ready-made ----


class RateLimit(Middleware):
    """Limits how many attempts with the same key begin in a time, in this process.

    An attempt over the limit waits for its turn. If the wait would be longer than `wait_max`, it is refused: it fails with
    `attempt_rate_limited`, which the policy of its call retries after that time. A refused attempt counts as one.
    """

    def __init__(
        self,
        count: int,
        per: timedelta | float,
        *,
        key: Callable[[AttemptCall], str | None] = lambda call: call.name,
        wait_max: timedelta | float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if count < 1:
            raise invalid(f"a rate limit allows at least one attempt, not {count}")
        self._interval = (milliseconds(per) or 0) / 1000 / count
        self._fills_in = self._interval * count
        self._key = key
        self._wait_max = (milliseconds(wait_max) or 0) / 1000
        self._clock = clock
        #: The time at which the bucket of a key is full again.
        self._full_at: dict[str, float] = {}
        self._keys_max = 1024

    def take(self, key: str) -> float | None:
        """Takes a turn and returns the seconds to wait for it, or `None` if it is refused."""
        now = self._clock()
        full_at = max(self._full_at.get(key, now), now) + self._interval
        wait = max(0.0, full_at - now - self._fills_in)
        # Sums of floats are not exact.
        wait = 0.0 if wait < 1e-9 else wait
        if wait > self._wait_max:
            self._refused = wait
            return None
        self._full_at[key] = full_at
        if len(self._full_at) > self._keys_max:
            self._full_at = {key: full_at for key, full_at in self._full_at.items() if full_at > now}
            self._keys_max = max(1024, 2 * len(self._full_at))
        return wait

    async def attempt(self, call: AttemptCall, next: NextAttempt) -> Any:
        key = self._key(call)
        if key is not None:
            wait = self.take(key)
            if wait is None:
                message = f"the rate limit of `{key}` is exceeded; the next attempt may begin in {self._refused:.3f} s"
                raise Failure(message, code="attempt_rate_limited", retry_after_ms=int(self._refused * 1000) + 1)
            if wait > 0:
                await asyncio.sleep(wait)
        return await next(call)


class Redaction(Middleware):
    """Replaces the values of named fields, and parts of texts.

    It applies to results and failures of attempts before they are recorded, to requests before they go to a model, to recorded
    inputs of steps, and to results and failures of runs. The code sees the replaced value, too. Inputs that the code needs are
    recorded as they were sent. Streams of attempts are muted.
    """

    def __init__(
        self,
        *,
        fields: Sequence[str] = (),
        text: Callable[[str], str] | None = None,
        replacement: str = "[redacted]",
    ) -> None:
        self._fields = {field.lower() for field in fields}
        self._text = text or str
        self._replacement = replacement

    async def run(self, call: RunCall, next: NextRun) -> Any:
        return await self._result(next(call))

    async def attempt(self, call: AttemptCall, next: NextAttempt) -> Any:
        call.mute()
        if call.kind == "model_call":
            call.input = self.value(call.input)
        return await self._result(next(call))

    def recorded_input(self, step: str, input: Any) -> Any:
        return self.value(input)

    async def _result(self, result: Awaitable[Any]) -> Any:
        try:
            return self.value(loads(encode(await result)))
        except Exception as error:
            raise self.failure(error) from None

    def value(self, value: Any) -> Any:
        """Returns a JSON value with all replacements."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {
                key: self._replacement if isinstance(key, str) and key.lower() in self._fields else self.value(item)
                for key, item in value.items()
            }
        return value

    def failure(self, error: Exception) -> Failure:
        """Returns an exception as a failure with all replacements."""
        document = loads(failure_json(error))
        for name in ("message", "causes", "details"):
            if name in document:
                document[name] = self.value(document[name])
        return Failure.from_json(document)


@dataclass(frozen=True)
class Timed:
    """An attempt that has ended."""

    kind: AttemptKind
    name: str
    run: str
    attempt: int
    seconds: float
    #: The code of its failure.
    failed: str | None


class Timing(Middleware):
    """Passes every ended attempt to `report`, with the time it took.

    An attempt that is canceled is not reported. With `run_state` it sets that state of every run, at the end of its code, to the milliseconds since the start of its generation,
    by the times of the log.
    """

    def __init__(
        self,
        report: Callable[[Timed], None],
        *,
        run_state: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._report = report
        self._run_state = run_state
        self._clock = clock

    async def run(self, call: RunCall, next: NextRun) -> Any:
        if self._run_state is None:
            return await next(call)
        ctx = call.ctx
        began = ctx.now()
        try:
            result = await next(call)
        except (Exception, asyncio.CancelledError):
            ctx.state[self._run_state] = round((ctx.now() - began).total_seconds() * 1000)
            raise
        ctx.state[self._run_state] = round((ctx.now() - began).total_seconds() * 1000)
        return result

    async def attempt(self, call: AttemptCall, next: NextAttempt) -> Any:
        began = self._clock()
        try:
            result = await next(call)
        except Exception as error:
            self._end(call, began, loads(failure_json(error)).get("code", "failed"))
            raise
        self._end(call, began, None)
        return result

    def _end(self, call: AttemptCall, began: float, failed: str | None) -> None:
        self._report(Timed(call.kind, call.name, call.run, call.attempt, self._clock() - began, failed))


__all__ = [
    "AttemptCall",
    "AttemptKind",
    "Middleware",
    "NextAttempt",
    "NextRun",
    "RateLimit",
    "Redaction",
    "RunCall",
    "Timed",
    "Timing",
]
