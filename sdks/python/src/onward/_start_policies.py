"""Start policies: how repeated starts of runs with one key are combined."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar

from ._errors import invalid
from ._json import milliseconds

if TYPE_CHECKING:
    from ._client import RunHandle

O = TypeVar("O")


@dataclass(frozen=True)
class Singleton:
    """At most one open run of a kind and key."""

    key: str
    #: While a run is open: `skip` answers with it, `cancel` cancels it first, which needs the scope `operate`.
    on_conflict: Literal["skip", "cancel"] = "skip"

    def to_json(self) -> dict[str, Any]:
        return {"singleton": {"key": self.key, "on_conflict": self.on_conflict}}


@dataclass(frozen=True)
class Debounce:
    """One run for starts that follow each other closely, with the last input."""

    key: str
    #: The time from the last start to the run, as a `timedelta` or in seconds.
    window: timedelta | float
    #: The longest time from the first start to the run; ten windows by default.
    max_wait: timedelta | float | None = None

    def to_json(self) -> dict[str, Any]:
        times = {"window_ms": milliseconds(self.window), "max_wait_ms": milliseconds(self.max_wait)}
        return {"debounce": {"key": self.key, **times}}


@dataclass(frozen=True)
class Batch:
    """One run with the list of several inputs."""

    key: str
    #: The number of inputs at which the run starts.
    size_max: int
    #: The longest time from the first start to the run, as a `timedelta` or in seconds.
    window: timedelta | float

    def to_json(self) -> dict[str, Any]:
        return {"batch": {"key": self.key, "size_max": self.size_max, "window_ms": milliseconds(self.window)}}


StartPolicy = Singleton | Debounce | Batch


class PolicyStartOptions(TypedDict, total=False):
    """Options of a start with a policy."""

    #: A repeat with the same id, policy and input within a day counts once.
    request_id: str | None
    version: str | None
    #: Those by which runs are listed.
    attributes: dict[str, Any] | None
    budget: dict[str, Any] | None
    #: Cancels the run after this time; time while it is paused does not count.
    deadline: timedelta | float | None
    #: The W3C trace context of the caller.
    trace: str | None


@dataclass(frozen=True)
class StartedWithPolicy(Generic[O]):
    """The answer to a start with a policy."""

    #: The run of the start, or the open one that it was skipped for; `result` waits for the start, too.
    run: RunHandle[O]
    #: `started`, `skipped`, or `held`: the run starts later.
    outcome: Literal["started", "skipped", "held"]
    #: The time at which a held run starts, if no later start changes it; `None` if it waits for the end of another run.
    due_at: datetime | None
    #: The request was accepted before; this is its first answer.
    repeated: bool


def policy_json(policy: object) -> dict[str, Any]:
    """Returns the argument of a policy."""
    if not isinstance(policy, (Singleton, Debounce, Batch)):
        raise invalid(f"`policy` is {policy!r}", "use `Singleton`, `Debounce` or `Batch`")
    return policy.to_json()


def due_at_of(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text.replace("Z", "+00:00"))
