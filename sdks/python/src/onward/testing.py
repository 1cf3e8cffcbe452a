"""The test kit: workflows in memory and in virtual time, with scripted steps, tasks, people and signals.

A script is deterministic: thirty days of sleep take no time, and after every commit the log is replayed and compared.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from ._client import Onward
from ._ctx import convert_of, input_of, name_of
from ._definitions import Task, Workflow
from ._errors import Failure
from ._json import Convert, Raw, arguments, encode, failure_json, milliseconds, raw
from .middleware import Middleware

O = TypeVar("O")
T = TypeVar("T")


class Divergence(AssertionError):
    """The code makes other calls than the log has; `report` has both."""

    def __init__(self, report: dict[str, Any]) -> None:
        super().__init__(report["message"])
        self.report = report


@dataclass(frozen=True)
class Outcome(Generic[O]):
    """How a script ended."""

    details: dict[str, Any]
    convert: Convert = None

    @property
    def output(self) -> O:
        """The result of the run; raises its `Failure`, or `AssertionError` if it is open."""
        if self.failure is not None:
            raise self.failure
        if self.is_open:
            raise AssertionError(f"the run is open and waits for {', '.join(self.waits_for) or 'nothing'}")
        value = self.details["value"]
        return value if self.convert is None else self.convert(value)  # type: ignore[no-any-return]

    @property
    def failure(self) -> Failure | None:
        """The failure of the run."""
        found = self.details.get("failure")
        return None if found is None else Failure.from_json(found)

    @property
    def is_open(self) -> bool:
        """Whether the run still waits."""
        return bool(self.details["is_open"])

    @property
    def is_canceled(self) -> bool:
        """Whether the run ended as canceled."""
        return bool(self.details["is_canceled"])

    @property
    def waits_for(self) -> list[str]:
        """What an open run waits for."""
        return list(self.details["waits_for"])

    @property
    def elapsed(self) -> timedelta:
        """The virtual time that the run took."""
        return timedelta(milliseconds=self.details["elapsed_ms"])

    @property
    def steps_run(self) -> list[str]:
        """The steps whose functions ran, one entry for each time."""
        return list(self.details["steps_run"])

    @property
    def steps_scripted(self) -> list[str]:
        """The steps that the script answered, one entry for each time."""
        return list(self.details["steps_scripted"])

    def update(self, nth: int) -> Any:
        """Returns the answer to an update of the script, counted from zero, or raises its `Failure`."""
        found = self.details["updates"][nth]
        if found.get("failure") is not None:
            raise Failure.from_json(found["failure"])
        return found["value"]

    @property
    def logs(self) -> list[list[dict[str, Any]]]:
        """One log for each generation; `replay` takes them."""
        return list(self.details["logs"])


class Script(Generic[O]):
    """A run of a workflow, and what happens to it. Each method returns the script."""

    def __init__(
        self,
        workflow: Workflow[Any, O],
        input: Any = None,
        *,
        id: str | None = None,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        self._workflow = workflow
        self._middleware = middleware
        self._input = input_of("workflow", workflow, input)
        self._id = id
        self._steps: dict[str, list[Raw]] = {}
        self._answers: dict[str, dict[str, list[Raw] | str]] = {"tasks": {}, "children": {}}
        self._functions: list[Task[Any, Any]] = []
        self._approvals: dict[str, list[dict[str, Any]]] = {}
        self._promises: dict[str, Raw] = {}
        self._signals: list[Raw] = []
        self._updates: list[Raw] = []
        self._cancel: dict[str, Any] | None = None
        self._generations: int | None = None

    # ---- results ----

    def step(self, name: str, value: Any) -> Script[O]:
        """Sets the result of a step instead of running it; a `Failure` makes it fail. Several calls script several attempts."""
        self._steps.setdefault(name, []).append(scripted(value))
        return self

    def task(self, task: Task[Any, Any] | str, answer: Any = ...) -> Script[O]:
        """Sets what tasks of a kind return: a value, a `Failure`, or a function of the input. Without an answer, the task runs.

        Several values script several attempts.
        """
        return self._answer("tasks", task, answer)

    def child(self, workflow: Workflow[Any, Any] | str, answer: Any) -> Script[O]:
        """Sets what children of a kind return: a value, a `Failure`, or a function of the input."""
        return self._answer("children", workflow, answer)

    def _answer(self, what: str, definition: Any, answer: Any) -> Script[O]:
        kind = name_of(definition)
        answers = self._answers[what]
        if answer is ... or callable(answer):
            answers[kind] = "function"
            self._functions.append(definition if answer is ... else Task(kind, answer))
        else:
            found = answers.setdefault(kind, [])
            assert isinstance(found, list), f"`{kind}` has a function"
            found.append(scripted(answer))
        return self

    # ---- what happens ----

    def approve(self, name: str, *, answer: Any = None, after: timedelta | float = 0) -> Script[O]:
        """Approves an approval that long after its request, with the answer that it requires; the last decision repeats."""
        decision: dict[str, Any] = {"approved": True, "after_ms": milliseconds(after)}
        if answer is not None:
            decision["answer"] = answer
        self._approvals.setdefault(name, []).append(decision)
        return self

    def reject(self, name: str, feedback: str = "", *, after: timedelta | float = 0) -> Script[O]:
        """Rejects an approval that long after its request."""
        decision = {"approved": False, "feedback": feedback, "after_ms": milliseconds(after)}
        self._approvals.setdefault(name, []).append(decision)
        return self

    def resolve(self, name: str, value: Any = None) -> Script[O]:
        """Resolves a promise; a `Failure` rejects it."""
        self._promises[name] = scripted(value)
        return self

    def signal(self, name: str, value: Any = None, *, after: timedelta | float = 0) -> Script[O]:
        """Sends a signal that long after the start."""
        self._signals.append(Raw(arguments(name=name, value=raw(value), after_ms=milliseconds(after))))
        return self

    def update(self, name: str, input: Any = None, *, after: timedelta | float = 0) -> Script[O]:
        """Sends an update that long after the start."""
        self._updates.append(Raw(arguments(name=name, value=raw(input), after_ms=milliseconds(after))))
        return self

    def cancel(self, reason: str = "", *, after: timedelta | float = 0) -> Script[O]:
        """Requests that the run stops, that long after the start."""
        self._cancel = {"reason": reason, "after_ms": milliseconds(after)}
        return self

    def generations(self, count: int) -> Script[O]:
        """Leaves a run that continues as new open after so many generations."""
        self._generations = count
        return self

    # ---- checks ----

    def run(self) -> Outcome[O]:
        """Plays the script."""
        return self._play("run")

    def crash_everywhere(self) -> Outcome[O]:
        """Crashes before and after every commit; fails unless the run ends the same way each time."""
        return self._play("crash_everywhere")

    def assert_deterministic(self) -> Outcome[O]:
        """Fails unless two runs make the same calls."""
        return self._play("deterministic")

    def schedules(self, count: int) -> Outcome[O]:
        """Plays random orders of what is due at the same time, with random crashes; fails unless all end the same way."""
        return self._play({"schedules": count})

    def schedule(self, seed: int) -> Outcome[O]:
        """Plays the schedule that a failure of `schedules` named."""
        return self._play({"schedule": seed})

    def _play(self, check: Any) -> Outcome[O]:
        def lists(fields: dict[str, Any]) -> Raw | None:
            pairs = (
                f"{encode(name)}:{array(found) if isinstance(found, list) else encode(found)}" for name, found in fields.items()
            )
            return Raw("{" + ",".join(pairs) + "}") if fields else None

        args = arguments(
            kind=self._workflow.name,
            input=self._input,
            id=self._id,
            steps=lists(self._steps),
            tasks=lists(self._answers["tasks"]),
            children=lists(self._answers["children"]),
            approvals=self._approvals or None,
            promises=Raw("{" + ",".join(f"{encode(name)}:{value}" for name, value in self._promises.items()) + "}"),
            signals=Raw(array(self._signals)),
            updates=Raw(array(self._updates)),
            cancel=self._cancel,
            generations=self._generations,
            check=check,
        )
        return Outcome(ask([self._workflow], self._functions, "script", args, self._middleware), convert_of(self._workflow))


def scripted(value: Any) -> Raw:
    if isinstance(value, Failure):
        return Raw(f'{{"failure":{failure_json(value)}}}')
    return Raw(f'{{"value":{raw(value)}}}')


def array(items: Sequence[str]) -> str:
    return "[" + ",".join(items) + "]"


def replay(
    workflow: Workflow[Any, Any],
    run_id: str,
    log: list[dict[str, Any]],
    *,
    earlier: Sequence[list[dict[str, Any]]] = (),
    middleware: Sequence[Middleware] = (),
) -> None:
    """Replays a recorded log against the code of today, without executing anything; raises `Divergence`.

    `log` is what `await run.log()` returned, or a log of `Outcome.logs` (its run has the id `test`, unless the script sets one).
    """
    args = arguments(kind=workflow.name, run=run_id, records=log, earlier=list(earlier) or None)
    report = ask([workflow], [], "replay", args, middleware)
    if report is not None:
        raise Divergence(report)


def ask(
    workflows: list[Workflow[Any, Any]], tasks: list[Task[Any, Any]], verb: str, args: str, middleware: Sequence[Middleware]
) -> Any:
    """Makes one request of the test kit, in an event loop of its own."""

    async def request() -> Any:
        async with Onward.in_memory(workflows=workflows, tasks=tasks, middleware=middleware, threads=1) as onward:
            return await onward.host.request(verb, args)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(request())
    return in_thread(lambda: asyncio.run(request()))


def in_thread(function: Callable[[], T]) -> T:
    """Calls a function in a thread, because this one runs an event loop already."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="onward-test")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


__all__ = ["Divergence", "Outcome", "Script", "replay"]
