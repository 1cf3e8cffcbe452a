"""What workflow code calls."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from random import Random
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypedDict, TypeVar, overload
from uuid import UUID

from ._definitions import Task, TaskDefaults, Workflow, memo_json, result_converter, retry_json, task_options
from ._errors import invalid
from ._json import Convert, Raw, arguments, converter, loads, milliseconds, raw, type_hints
from ._loop import Call
from ._random import RandomGenerator
from ._run import Handler, Run, named
from ._schema import root_schema_of

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from typing_extensions import TypeVarTuple, Unpack

    from ._definitions import Memo, RetryPolicy

    Ts = TypeVarTuple("Ts")

I = TypeVar("I")
O = TypeVar("O")
T = TypeVar("T")

#: A duration: a `timedelta`, or seconds.
Span = "timedelta | float"
#: What a repeated attempt of a task does.
Effect = Literal["pure", "keyed", "at_least_once", "at_most_once"]



class TaskOptions(TaskDefaults, total=False):
    """Options of a task."""

    #: The tenant or account whose limits and share of the queue apply.
    key: str | None
    idempotency_key: str | None
    #: Whether it spends from the budget of the run.
    costs: bool
    effect: Effect | None
    #: How long, or also under which key and where, the result of an equal task is used again.
    memo: Memo | timedelta | float | None


class ChildOptions(TypedDict, total=False):
    """Options of a child."""

    id: str | None
    version: str | None
    #: What happens to an open child when this run closes.
    on_parent_close: Literal["cancel", "terminate", "abandon"] | None
    budget: dict[str, Any] | None
    #: Begins the child when this queue lets it in; it holds a slot until it ends.
    queue: str | None
    #: The key whose limits and share of the queue apply to the child; needs a queue.
    key: str | None
    #: Higher begins first; needs a queue.
    priority: int | None


EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Decision:
    """The answer to an approval."""

    approved: bool
    feedback: str | None = None
    decided_by: str | None = None
    #: Whether the deadline passed without a decision.
    expired: bool = False
    #: The whole decision.
    details: Any = None
    #: The structured answer, if the approval requires one and was approved.
    answer: Any = None


@dataclass(frozen=True)
class ReceivedSignal(Generic[T]):
    """A signal that was received by pattern, or with its sender."""

    name: str
    value: T
    #: The run that sent it; `None` for a signal from outside.
    sender: str | None = None


class ApprovalCall(Call[Decision]):
    """An approval that waits for its decision."""

    __slots__ = ("id",)
    id: str

    def set_info(self, info: dict[str, Any]) -> None:
        self.id = info["id"]


class PromiseCall(Call[T]):
    """A promise that waits for its value; give `id` to the system that resolves it."""

    __slots__ = ("id",)
    id: str

    def set_info(self, info: dict[str, Any]) -> None:
        self.id = info["id"]


class ChildCall(Call[T]):
    """A child that was started; await it for its result."""

    __slots__ = ("run_id",)
    run_id: str

    def set_info(self, info: dict[str, Any]) -> None:
        self.run_id = info["run"]


class Signals(Generic[T]):
    """The mailbox of one name of signals."""

    __slots__ = ("_convert", "_name", "_run")

    def __init__(self, run: Run, name: str, convert: Callable[[Any], Any] | None) -> None:
        self._run = run
        self._name = name
        self._convert = convert

    @overload
    def recv(self) -> Call[T]: ...
    @overload
    def recv(self, *, timeout: timedelta | float) -> Call[T | None]: ...
    def recv(self, *, timeout: timedelta | float | None = None) -> Call[Any]:
        """Waits for the next signal; with a timeout, returns `None` if none arrived in time."""
        if timeout is None:
            return self._run.wait("recv", named("signal", self._name), self._convert)  # type: ignore[no-any-return]
        args = arguments(signal=self._name, timeout_ms=milliseconds(timeout))
        return self._run.wait("recv", args, self._optional)  # type: ignore[no-any-return]

    def _optional(self, found: Any) -> Any:
        return None if found is None else self._value(found["value"])

    def _value(self, value: Any) -> Any:
        return value if self._convert is None else self._convert(value)

    def try_recv(self) -> T | None:
        """Takes the next signal, if there is one."""
        return self._optional(self._run.value("try_recv", named("signal", self._name)))  # type: ignore[no-any-return]

    def has(self) -> bool:
        """Tells whether a signal is there."""
        return bool(self._run.value("has", named("signal", self._name)))

    def count(self) -> int:
        """Returns how many signals are there."""
        return int(self._run.value("count", named("signal", self._name)))

    def drain(self) -> list[T]:
        """Takes all signals that are there."""
        return [found.value for found in self.drain_with_sender()]

    def drain_with_sender(self) -> list[ReceivedSignal[T]]:
        """Takes all signals that are there, with the runs that sent them."""
        found = self._run.value("drain", named("signal", self._name))
        return [ReceivedSignal(item["name"], self._value(item["value"]), item["from"]) for item in found]


class SignalPattern(Generic[T]):
    """The mailbox of all names that match a pattern such as `user.*`."""

    __slots__ = ("_args", "_convert", "_pattern", "_run")

    def __init__(self, run: Run, pattern: str, convert: Callable[[Any], Any] | None) -> None:
        self._run = run
        self._pattern = pattern
        self._args = arguments(pattern=pattern)
        self._convert = convert

    def _received(self, found: Any) -> ReceivedSignal[T]:
        value = found["value"]
        return ReceivedSignal(found["name"], value if self._convert is None else self._convert(value), found.get("from"))

    def recv(self, *, timeout: timedelta | float | None = None) -> Call[ReceivedSignal[T]]:
        """Waits for the next signal."""
        args = arguments(pattern=self._pattern, timeout_ms=milliseconds(timeout))
        if timeout is None:
            return self._run.wait("recv", args, self._received)  # type: ignore[no-any-return]
        return self._run.wait(  # type: ignore[no-any-return]
            "recv", args, lambda found: found if found is None else self._received(found.get("value", found))
        )

    def try_recv(self) -> ReceivedSignal[T] | None:
        """Takes the next signal, if there is one."""
        found = self._run.value("try_recv", self._args)
        return None if found is None else self._received(found)

    def has(self) -> bool:
        """Tells whether a signal is there."""
        return bool(self._run.value("has", self._args))

    def count(self) -> int:
        """Returns how many signals are there."""
        return int(self._run.value("count", self._args))

    def drain(self) -> list[ReceivedSignal[T]]:
        """Takes all signals that are there."""
        return [self._received(found) for found in self._run.value("drain", self._args)]


class State:
    """Named values of a run that callers can read."""

    __slots__ = ("_run",)

    def __init__(self, run: Run) -> None:
        self._run = run

    def set(self, key: str, value: Any) -> None:
        """Sets a value."""
        self._run.value("state_set", arguments(key=key, value=raw(value, f"the state `{key}`")))

    def get(self, key: str, default: Any = None) -> Any:
        """Returns a value, or the default."""
        found = self._run.read("state_get", arguments(key=key))
        return default if found is None else found["value"]

    def clear(self, key: str) -> None:
        """Removes a value."""
        self._run.value("state_clear", arguments(key=key))

    def keys(self) -> list[str]:
        """Returns the names that have values."""
        return list(self._run.read("state_keys"))

    def __getitem__(self, key: str) -> Any:
        found = self._run.read("state_get", arguments(key=key))
        if found is None:
            raise KeyError(key)
        return found["value"]

    def __setitem__(self, key: str, value: Any) -> None:
        self.set(key, value)

    def __delitem__(self, key: str) -> None:
        self.clear(key)

    def __contains__(self, key: object) -> bool:
        return key in self.keys()

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())


class Attributes:
    """Values by which runs are listed and selected."""

    __slots__ = ("_run",)

    def __init__(self, run: Run) -> None:
        self._run = run

    def set(self, name: str, value: str | int | bool | datetime) -> None:
        """Sets an attribute."""
        self._run.value("attribute_set", arguments(name=name, value=Raw(json.dumps(attribute(value)))))

    def clear(self, name: str) -> None:
        """Removes an attribute."""
        self._run.value("attribute_clear", arguments(name=name))

    def __setitem__(self, name: str, value: str | int | bool | datetime) -> None:
        self.set(name, value)

    def __delitem__(self, name: str) -> None:
        self.clear(name)


def attribute(value: Any) -> Any:
    """Returns the JSON of the value of an attribute."""
    if isinstance(value, datetime):
        return {"time": epoch_ms(value)}
    if isinstance(value, (str, int)):
        return value
    raise invalid(f"an attribute is a text, an integer, a bool or a `datetime`, not `{type(value).__name__}`")


def epoch_ms(moment: datetime) -> int:
    if moment.tzinfo is None:
        raise invalid(f"the time {moment} has no time zone", "use `datetime(.., tzinfo=timezone.utc)`")
    return (moment - EPOCH) // timedelta(milliseconds=1)


class Spawned(Generic[T]):
    """A run that was spawned; keep `run_id` to find it again with `ctx.spawned(run_id)`."""

    __slots__ = ("_convert", "_run", "run_id")

    def __init__(self, run: Run, run_id: str, convert: Callable[[Any], Any] | None) -> None:
        self._run = run
        self.run_id = run_id
        self._convert = convert

    def result(self) -> Call[T]:
        """Waits for the result."""
        return self._run.wait("spawned_result", arguments(run=self.run_id), self._convert)  # type: ignore[no-any-return]

    def message(self, value: Any) -> None:
        """Sends a message."""
        self._run.value("spawned_message", arguments(run=self.run_id, value=raw(value)))

    def cancel(self) -> None:
        """Cancels the run if it is still open."""
        self._run.value("spawned_cancel", arguments(run=self.run_id))


class Ctx:
    """The context of a run: every call of a workflow goes through it.

    The function runs again from the start whenever its run is not in memory, and `ctx` answers from the log. Between two calls
    the code must do the same in every replay: no clock, randomness or I/O but through `ctx`.
    """

    __slots__ = ("_run",)

    def __init__(self, run: Run) -> None:
        self._run = run

    # ---- the run ----

    @property
    def id(self) -> str:
        """The id of the run."""
        return self._run.id

    @property
    def generation(self) -> int:
        """How often the run continued as new, was retried, or passed a checkpoint."""
        return self._run.generation

    @property
    def nesting(self) -> int:
        """The depth of the run below the run at the top."""
        return self._run.nesting

    @property
    def parent_id(self) -> str | None:
        """The id of the run that started this one."""
        return self._run.parent_id

    @property
    def kind(self) -> str:
        """The name under which the workflow is registered."""
        return self._run.workflow.name

    @property
    def namespace(self) -> str:
        """The namespace of the run."""
        return self._run.bridge.namespace

    def now(self) -> datetime:
        """Returns the time of the last event, in UTC."""
        return EPOCH + timedelta(milliseconds=self._run.now_ms)

    def uuid(self) -> UUID:
        """Returns a UUID that is the same in every replay."""
        return UUID(self._run.value("uuid"))

    def random_bits(self) -> int:
        """Returns 64 random bits that are the same in every replay."""
        return int(self._run.value("random"))

    def random(self) -> float:
        """Returns a number from 0 to 1, without 1, that is the same in every replay."""
        return (self.random_bits() >> 11) * 2.0**-53

    def rng(self) -> Random:
        """Returns a generator of Python's own, whose seed is the same in every replay."""
        return Random(self.random_bits())

    def random_generator(self) -> RandomGenerator:
        """Returns a generator whose numbers are the same in every replay, and in every language for the same log."""
        return RandomGenerator(self.random_bits())

    def version(self, change: str, min: int, max: int) -> int:
        """Returns the branch of a change that this run took: `max` for new runs, what is recorded for old ones."""
        return int(self._run.value("version", arguments(change=change, min=min, max=max)))

    def traceparent(self) -> str | None:
        """Returns the W3C trace context of the run."""
        found = self._run.value("trace")
        return None if found is None else str(found)

    # ---- steps and tasks ----

    @overload
    def step(
        self,
        name: str,
        function: Callable[[Unpack[Ts]], Coroutine[Any, Any, T]],
        *args: Unpack[Ts],
        retry: int | RetryPolicy | None = None,
        timeout: timedelta | float | None = None,
        input: Any = ...,
        record: bool = False,
        memo: Memo | timedelta | float | None = None,
    ) -> Call[T]: ...
    @overload
    def step(
        self,
        name: str,
        function: Callable[[Unpack[Ts]], T],
        *args: Unpack[Ts],
        retry: int | RetryPolicy | None = None,
        timeout: timedelta | float | None = None,
        input: Any = ...,
        record: bool = False,
        memo: Memo | timedelta | float | None = None,
    ) -> Call[T]: ...
    def step(  # type: ignore[misc]
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        retry: int | RetryPolicy | None = None,
        timeout: timedelta | float | None = None,
        input: Any = ...,
        record: bool = False,
        memo: Memo | timedelta | float | None = None,
    ) -> Call[Any]:
        """Calls a function in this process and records its result.

        An `async def` runs on the event loop of `Onward`, a plain function in its thread pool. `retry` is the number of attempts
        in all, or a `RetryPolicy`. `input` is compared on replay, and stored with `record=True`. `memo`: for how long the result
        of an equal step of another run is used again, a duration or a `Memo`.
        """
        if retry is None and timeout is None and input is ... and not record and memo is None:
            options = named("name", name)
        else:
            value = None if input is ... else raw(input, f"the input of step `{name}`")
            options = arguments(
                name=name,
                retry=retry_json(retry),
                timeout_ms=milliseconds(timeout),
                input=value,
                record=record,
                memo=memo_json(memo),
                record_as=self._recorded_as(name, value),
            )
        if not callable(function):
            raise invalid(
                f"step `{name}` needs a function, not `{type(function).__name__}`", "write `ctx.step(name, function, argument)`"
            )
        call = self._run.begin_step(options, function, args, result_converter(function))
        if self._run.middlewares and input is not ...:
            call.input = input
        return call

    def _recorded_as(self, name: str, value: Raw | None) -> Raw | None:
        """Returns what middlewares record in place of a step's input."""
        if value is None or not self._run.middlewares:
            return None
        shown = loads(value)
        for middleware in reversed(self._run.middlewares):
            shown = middleware.recorded_input(name, shown)
        return raw(shown, f"the recorded input of step `{name}`")

    @overload
    def task(self, task: Task[I, O], input: I, **options: Unpack[TaskOptions]) -> Call[O]: ...
    @overload
    def task(self, task: Task[None, O], **options: Unpack[TaskOptions]) -> Call[O]: ...
    @overload
    def task(self, task: str, input: Any = None, **options: Unpack[TaskOptions]) -> Call[Any]: ...
    def task(self, task: Any, input: Any = None, **options: Unpack[TaskOptions]) -> Call[Any]:
        """Queues a task for any worker that registered its kind.

        It runs whether or not the call is awaited; `cancel_work()` of the call stops it. `effect`: what a repeated attempt does.
        """
        convert = task.convert_result if isinstance(task, Task) else None
        return self._run.wait("task", task_arguments(task, input, dict(options)), convert)  # type: ignore[no-any-return]

    # ---- time ----

    def sleep(self, span: timedelta | float) -> Call[None]:
        """Waits for a `timedelta` or a number of seconds, across restarts."""
        return self._run.wait("sleep", f'{{"ms":{milliseconds(span)}}}')  # type: ignore[no-any-return]

    def sleep_until(self, moment: datetime) -> Call[None]:
        """Waits until a time with a time zone."""
        return self._run.sleep_until_ms(epoch_ms(moment))

    async def select(self, **calls: Awaitable[Any]) -> tuple[str, Any]:
        """Waits for the first of several calls, drops the others, and returns the name of the first and its result."""
        futures = {name: asyncio.ensure_future(call) for name, call in calls.items()}
        try:
            await asyncio.wait(futures.values(), return_when=asyncio.FIRST_COMPLETED)
        finally:
            first = next((name for name, future in futures.items() if future.done()), None)
            for future in futures.values():
                future.cancel()
        if first is None:
            raise invalid("`select` needs calls", "write `await ctx.select(payment=.., timeout=ctx.sleep(60))`")
        return first, futures[first].result()

    # ---- messages ----

    @overload
    def signal(self, name: str) -> Signals[Any]: ...
    @overload
    def signal(self, name: str, type: type[T]) -> Signals[T]: ...
    def signal(self, name: str, type: Any = Any) -> Signals[Any]:
        """Returns the mailbox of a name."""
        return Signals(self._run, name, converter(type))

    @overload
    def signals(self, pattern: str) -> SignalPattern[Any]: ...
    @overload
    def signals(self, pattern: str, type: type[T]) -> SignalPattern[T]: ...
    def signals(self, pattern: str, type: Any = Any) -> SignalPattern[Any]:
        """Returns the mailbox of all names that match a pattern such as `user.*`."""
        return SignalPattern(self._run, pattern, converter(type))

    def send_signal(self, run_id: str, name: str, value: Any = None) -> None:
        """Sends a signal to another run, once, with the commit."""
        self._run.value("send_signal", arguments(run=run_id, name=name, value=raw(value, f"the payload of signal `{name}`")))

    def approval(
        self,
        name: str,
        title: str,
        *,
        description: str | None = None,
        show: Any = None,
        deciders: list[str] | None = None,
        not_by_requester: bool = False,
        within: timedelta | float | None = None,
        answer: Any = None,
    ) -> ApprovalCall:
        """Asks a person for a decision; `within` is the deadline.

        With `answer`, approving needs a structured answer: a type (dataclass, pydantic model, `Literal`, ..), or a JSON schema as
        a `dict`. It is checked where it enters; `Decision.answer` has the type.
        """
        args = arguments(
            name=name,
            title=title,
            description=description,
            show=None if show is None else raw(show),
            deciders=deciders,
            not_by_requester=not_by_requester,
            within_ms=milliseconds(within),
            answer_schema=answer if answer is None or isinstance(answer, dict) else root_schema_of(answer),
        )
        convert = None if answer is None or isinstance(answer, dict) else converter(answer)
        return self._run.wait("approval", args, decided(convert), ApprovalCall)  # type: ignore[no-any-return]

    @overload
    def promise(self, name: str, *, within: timedelta | float | None = None) -> PromiseCall[Any]: ...
    @overload
    def promise(self, name: str, type: type[T], *, within: timedelta | float | None = None) -> PromiseCall[T]: ...
    def promise(self, name: str, type: Any = Any, *, within: timedelta | float | None = None) -> PromiseCall[Any]:
        """Creates an id that accepts one value from another system: `onward.resolve(id, value)`."""
        args = arguments(name=name, within_ms=milliseconds(within))
        return self._run.wait("promise", args, converter(type), PromiseCall)  # type: ignore[no-any-return]

    # ---- other runs ----

    @overload
    def child(self, workflow: Workflow[I, O], input: I, **options: Unpack[ChildOptions]) -> ChildCall[O]: ...
    @overload
    def child(self, workflow: Workflow[None, O], **options: Unpack[ChildOptions]) -> ChildCall[O]: ...
    @overload
    def child(self, workflow: str, input: Any = None, **options: Unpack[ChildOptions]) -> ChildCall[Any]: ...
    def child(self, workflow: Any, input: Any = None, **options: Unpack[ChildOptions]) -> ChildCall[Any]:
        """Starts a run whose result this one receives."""
        args = arguments(kind=name_of(workflow), input=input_of("workflow", workflow, input), **options)
        return self._run.wait("child", args, convert_of(workflow), ChildCall)  # type: ignore[no-any-return]

    @overload
    def spawn(self, workflow: Workflow[I, O], input: I, *, budget: dict[str, Any] | None = None) -> Spawned[O]: ...
    @overload
    def spawn(self, workflow: Workflow[None, O], *, budget: dict[str, Any] | None = None) -> Spawned[O]: ...
    @overload
    def spawn(self, workflow: str, input: Any = None, *, budget: dict[str, Any] | None = None) -> Spawned[Any]: ...
    def spawn(self, workflow: Any, input: Any = None, *, budget: dict[str, Any] | None = None) -> Spawned[Any]:
        """Starts a child that may outlive the turn of an agent; it starts with the commit."""
        found = self._run.value(
            "spawn", arguments(kind=name_of(workflow), input=input_of("workflow", workflow, input), budget=budget)
        )
        return Spawned(self._run, found["run"], convert_of(workflow))

    def spawned(self, run_id: str, type: Any = Any) -> Spawned[Any]:
        """Returns the handle of a run that was spawned before."""
        return Spawned(self._run, run_id, converter(type))

    def message_parent(self, value: Any) -> None:
        """Sends a message to the run that started this one."""
        self._run.value("parent_message", arguments(value=raw(value)))

    # ---- what others see ----

    @property
    def state(self) -> State:
        """Named values that callers can read."""
        return State(self._run)

    @property
    def attributes(self) -> Attributes:
        """Values by which runs are listed."""
        return Attributes(self._run)

    def emit(self, name: str, value: Any = None, *, internal: bool = False, meta: dict[str, Any] | None = None) -> None:
        """Sends a value to those who watch the run, live only; also from functions of steps."""
        self._run.read("emit", arguments(name=name, value=raw(value), internal=internal, meta=meta))

    def query(self, name: str, handler: Callable[..., Any]) -> None:
        """Answers `run.query(name, ..)` with a plain function, which must change nothing."""
        self._run.handlers().queries[name] = handler_of(name, handler)

    def update(self, name: str, handler: Callable[..., Any]) -> None:
        """Answers `run.update(name, ..)` with a function, which may change what it shares with the code.

        An async function may await calls of `ctx`; the update is answered when it returns. Several may be in flight, beside the
        code. If the code ends or continues as new before, the update fails with `update_abandoned`: `await ctx.updates_finished()`.
        """
        self._run.handlers().updates[name] = handler_of(name, handler, is_async_allowed=True)
        for kept in self._run.value("update", arguments(name=name)):
            self._run.answer_update(kept["update"], name, kept["input"])

    def updates_finished(self) -> Call[None]:
        """Waits until no async handler of an update is in flight. Not for handlers, which would wait for themselves."""
        return self._run.wait("updates_finished", "{}")  # type: ignore[no-any-return]

    # ---- the end ----

    @property
    def is_canceled(self) -> bool:
        """Whether someone requested to cancel the run."""
        return bool(self._run.read("is_canceled"))

    def canceled(self) -> Call[Any]:
        """Waits for a request to cancel; until it is cancelled or done, a request interrupts nothing else."""
        return self._run.wait("canceled", "{}")  # type: ignore[no-any-return]

    def on_failure(self, name: str, function: Callable[[Unpack[Ts]], Any], *args: Unpack[Ts]) -> None:
        """Registers a compensation: a step that runs, latest first, if the run fails or is canceled."""
        number = self._run.value("on_failure", arguments(name=name))
        self._run.handlers().undos[number] = (function, args)

    async def continue_as_new(self, input: Any = None) -> NoReturn:
        """Starts the function again with another input and a fresh log; the run keeps its id."""
        await self._run.wait("continue_as_new", arguments(input=raw(input)))
        raise AssertionError("the run continued as new")

    # ---- budgets ----

    def set_budget(self, budget: dict[str, Any]) -> None:
        """Sets the limits of what the run and its children may spend."""
        self._run.value("set_budget", arguments(budget=budget))

    def spent(self) -> dict[str, Any]:
        """Returns what the run and its children have spent."""
        return dict(self._run.read("spent"))

    def budget_left(self) -> dict[str, Any]:
        """Returns what the run and its children may still spend."""
        return dict(self._run.read("budget_left"))


def decided(convert: Convert) -> Callable[[dict[str, Any]], Decision]:
    """Returns what makes a decision of a document, with the answer converted."""
    if convert is None:
        return decision

    def typed(document: dict[str, Any]) -> Decision:
        found = decision(document)
        return found if found.answer is None else replace(found, answer=convert(found.answer))

    return typed


def decision(document: dict[str, Any]) -> Decision:
    return Decision(
        bool(document.get("approved")),
        document.get("feedback"),
        document.get("decided_by"),
        bool(document.get("expired")),
        document,
        document.get("answer"),
    )


def name_of(definition: Any) -> str:
    """Returns the kind of a definition or name."""
    name = definition if isinstance(definition, str) else getattr(definition, "name", None)
    if not isinstance(name, str):
        raise invalid(
            f"{definition!r:.60} is not a workflow or task",
            "decorate the function with `@workflow()` or `@task()`, or use its name",
        )
    return name


def input_of(what: str, definition: Any, input: Any) -> Raw:
    return raw(input, f"the input of {what} `{name_of(definition)}`")


def convert_of(definition: Any) -> Any:
    return getattr(definition, "convert_result", None)


def task_arguments(task: Any, input: Any, options: dict[str, Any]) -> str:
    """Returns the arguments of the verbs `task` and `start_task`."""
    fields: dict[str, Any] = {"kind": name_of(task), "input": input_of("task", task, input)}
    for name, value in options.items():
        if name == "memo":
            fields["memo"] = memo_json(value)
        elif name == "effect":
            fields["class"] = value
        elif name in ("idempotency_key", "id", "key"):
            fields[name] = value
        elif name == "costs":
            fields["costs"] = value or None
        else:
            fields.update(task_options({name: value}))
    return arguments(**fields)


def handler_of(name: str, handler: Callable[..., Any], *, is_async_allowed: bool = False) -> Handler:
    """Returns the handler of a query or update with what converts its input."""
    if inspect.iscoroutinefunction(handler) and not is_async_allowed:
        raise invalid(
            f"the handler of `{name}` is an async function", "write a plain function that returns what the code has computed"
        )
    try:
        parameters = list(inspect.signature(handler).parameters.values())
    except ValueError:  # a built-in function
        return handler, None, True
    if not parameters:
        return handler, None, False
    return handler, converter(type_hints(handler).get(parameters[0].name, Any)), True


__all__ = [
    "ApprovalCall",
    "Attributes",
    "ChildCall",
    "Ctx",
    "Decision",
    "PromiseCall",
    "ReceivedSignal",
    "SignalPattern",
    "Signals",
    "Spawned",
    "State",
]
