"""What functions of steps and tasks know about their attempt."""

from __future__ import annotations

import contextvars
import json
from typing import TYPE_CHECKING, Any

from ._errors import ContextMisused, error_of
from ._json import arguments, encode, loads, raw
from ._native import NativeError

if TYPE_CHECKING:
    from ._native import Bridge


class Attempt:
    """One attempt of a step."""

    __slots__ = ("idempotency_key", "name", "number", "traceparent")

    def __init__(self, name: str, number: int, idempotency_key: str, traceparent: str | None) -> None:
        self.name = name
        #: 1, 2, ..
        self.number = number
        #: The same for every attempt of this step.
        self.idempotency_key = idempotency_key
        self.traceparent = traceparent


CURRENT: contextvars.ContextVar[tuple[int, str, int, str, str | None] | None] = contextvars.ContextVar(
    "onward_step", default=None
)


def current_attempt() -> Attempt:
    """Returns the attempt of the step whose function is running."""
    job = CURRENT.get()
    if job is None:
        hint = "call it in the function of a step; functions of tasks take a `TaskCtx`"
        raise ContextMisused("no step is running here", hint=hint)
    return Attempt(job[1], job[2], job[3], job[4])


class TaskCtx:
    """One attempt of a task: the first parameter of a task function that wants it."""

    __slots__ = ("_bridge", "_is_muted", "_job", "attempt", "idempotency_key", "run_id", "traceparent")

    def __init__(self, bridge: Bridge, job: int, info: dict[str, Any]) -> None:
        self._bridge = bridge
        self._job = job
        #: A middleware drops what the attempt streams.
        self._is_muted = False
        #: The id of the run that scheduled the task.
        self.run_id: str = info.get("run") or ""
        #: 1, 2, ..
        self.attempt: int = info["attempt"]
        #: The same for every attempt of this task.
        self.idempotency_key: str = info["idempotency_key"]
        self.traceparent: str | None = info.get("trace")

    def heartbeat(self, progress: Any = None) -> None:
        """Says that the attempt is alive; `progress` is shown with the task."""
        self._report("heartbeat", arguments(progress=raw(progress)))

    def stream(self, frame: Any) -> None:
        """Sends a frame to those who read the stream of the run."""
        text = arguments(frame=raw(frame))
        if not self._is_muted:
            self._report("stream", text)

    def spend(self, **line: Any) -> None:
        """Adds a line to the ledger of the run, for example `spend(cost_micros=1500)`."""
        self._report("spend", json.dumps(loads(encode(line))))

    @property
    def is_canceled(self) -> bool:
        """Whether the result is no longer needed; a plain function should look from time to time."""
        return bool(loads(self._report("is_canceled", "{}")))

    def _report(self, verb: str, args: str) -> str:
        try:
            return self._bridge.task(self._job, verb, args)
        except NativeError as error:
            raise error_of(error.args[0]) from None
