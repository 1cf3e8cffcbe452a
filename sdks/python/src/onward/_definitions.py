"""Workflows and tasks: functions with a name and types."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from ._errors import InvalidArguments, ValueInvalid
from ._json import Convert, converter, milliseconds, type_hints

if TYPE_CHECKING:
    from ._ctx import Ctx
    from ._tasks import TaskCtx

I = TypeVar("I")
O = TypeVar("O")


def invalid(message: str, hint: str | None = None) -> InvalidArguments:
    return InvalidArguments(message, code="arguments_invalid", hint=hint, status=400)


def is_async(function: Callable[..., Any]) -> bool:
    """Tells whether calling the function returns a coroutine."""
    code = getattr(function, "__code__", None)
    if code is not None:
        return bool(code.co_flags & inspect.CO_COROUTINE)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))


@functools.lru_cache(maxsize=4096)
def result_of_code(function: Callable[..., Any]) -> Convert:
    return converter(type_hints(function).get("return", Any))


def result_converter(function: Callable[..., Any]) -> Convert:
    """Returns what converts JSON to the annotated result of a function."""
    annotations = getattr(function, "__annotations__", None)
    if not annotations or "return" not in annotations:
        return None
    if annotations["return"] in ("str", "int", "None", "bool", "float", str, int, None, bool, float):
        return None
    if getattr(function, "__closure__", None):  # a new function each time, which no cache should keep
        return converter(type_hints(function).get("return", Any))
    return result_of_code(function)


class Definition(Generic[I, O]):
    """A registered function; calling it calls the function."""

    __slots__ = (
        "__weakref__",
        "convert_input",
        "convert_result",
        "function",
        "is_async",
        "is_internal",
        "name",
        "parameters",
        "takes_ctx",
    )

    def __init__(self, name: str | None, function: Callable[..., Any], contexts: tuple[str, ...], is_internal: bool) -> None:
        self.name: str = name or function.__name__
        if not self.name:
            raise invalid("a name is empty")
        self.function = function
        self.is_async = is_async(function)
        self.is_internal = is_internal
        parameters = [
            parameter
            for parameter in inspect.signature(function).parameters.values()
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        ]
        hints = type_hints(function)
        annotation = hints.get(parameters[0].name) if parameters else None
        raw = parameters[0].annotation if parameters else None
        takes_ctx = getattr(annotation, "__name__", None) in contexts or (isinstance(raw, str) and raw.split(".")[-1] in contexts)
        self.takes_ctx = bool(parameters) and (takes_ctx or len([p for p in parameters if p.default is p.empty]) == 2)
        rest = parameters[1:] if self.takes_ctx else parameters
        if len([parameter for parameter in rest if parameter.default is parameter.empty]) > 1:
            raise invalid(
                f"`{self.name}` takes {len(parameters)} arguments",
                "take one input: a dataclass, a pydantic model, a dict or a list",
            )
        self.parameters = len(rest[:1])
        self.convert_input = converter(hints.get(rest[0].name, Any)) if rest else None
        self.convert_result = converter(hints.get("return", Any))

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lower()} {self.name!r}>"

    def call(self, ctx: Any, value: Any) -> Any:
        """Calls the function with what it takes."""
        if self.convert_input is not None:
            try:
                value = self.convert_input(value)
            except ValueInvalid as error:
                raise error.of(f"the input of `{self.name}`") from None
        values = (value,) if self.parameters else ()
        return self.function(ctx, *values) if self.takes_ctx else self.function(*values)


class Workflow(Definition[I, O]):
    """A workflow: what `@workflow` returns."""

    __slots__ = ("is_agent", "previous", "record_inputs", "version")

    def __init__(
        self,
        name: str | None,
        function: Callable[..., Any],
        *,
        version: str | None = None,
        previous: tuple[str, ...] = (),
        record_inputs: bool = False,
        is_internal: bool = False,
        is_agent: bool = False,
    ) -> None:
        super().__init__(name, function, ("Ctx", "AgentCtx"), is_internal)
        if not self.is_async or not self.takes_ctx:
            hint = "write `async def " + function.__name__ + "(ctx: Ctx, input: ..)`"
            raise invalid(f"workflow `{self.name}` is not an async function that takes a `Ctx`", hint)
        self.version = version
        self.previous = previous
        self.record_inputs = record_inputs
        self.is_agent = is_agent

    def __call__(self, ctx: Ctx, *input: I) -> Coroutine[Any, Any, O]:
        """Calls the function as a part of another workflow."""
        return self.function(ctx, *input)  # type: ignore[no-any-return]

    def settings(self) -> dict[str, Any]:
        return {
            "kind": self.name,
            "version": self.version,
            "previous": list(self.previous),
            "agent": self.is_agent,
            "record_inputs": self.record_inputs,
            "internal": self.is_internal,
        }


class Task(Definition[I, O]):
    """A task: what `@task` returns."""

    __slots__ = ()

    def __init__(self, name: str | None, function: Callable[..., Any], *, is_internal: bool = False) -> None:
        super().__init__(name, function, ("TaskCtx",), is_internal)

    def __call__(self, *args: Any) -> Any:
        """Calls the function, without the engine."""
        return self.function(*args)

    def settings(self) -> dict[str, Any]:
        return {"kind": self.name, "internal": self.is_internal}


class _WorkflowDecorator:
    """Types of `@workflow(..)`."""

    def __init__(self, name: str | None, options: dict[str, Any]) -> None:
        self.name = name
        self.options = options

    @overload
    def __call__(self, function: Callable[[Ctx, I], Coroutine[Any, Any, O]]) -> Workflow[I, O]: ...
    @overload
    def __call__(self, function: Callable[[Ctx], Coroutine[Any, Any, O]]) -> Workflow[None, O]: ...
    def __call__(self, function: Callable[..., Any]) -> Workflow[Any, Any]:
        return Workflow(self.name, function, **self.options)


def workflow(
    name: str | None = None,
    *,
    version: str | None = None,
    previous: tuple[str, ...] = (),
    record_inputs: bool = False,
    internal: bool = False,
) -> _WorkflowDecorator:
    """Makes a workflow of an async function that takes a `Ctx` and an input, or a `Ctx` alone.

    Its name is that of the function unless you set one. `version` pins runs to this code: register several versions of one name,
    the current one first. `previous` names versions whose runs this code continues, too. `record_inputs` stores the inputs of all
    steps in the log, `internal` refuses starts from outside.
    """
    if callable(name):
        raise invalid("`@workflow` needs parentheses", 'write `@workflow()` or `@workflow("name")`')
    options = {"version": version, "previous": previous, "record_inputs": record_inputs, "is_internal": internal}
    return _WorkflowDecorator(name, options)


class _TaskDecorator:
    """Types of `@task(..)`."""

    def __init__(self, name: str | None, is_internal: bool) -> None:
        self.name = name
        self.is_internal = is_internal

    @overload
    def __call__(self, function: Callable[[TaskCtx, I], Coroutine[Any, Any, O]]) -> Task[I, O]: ...
    @overload
    def __call__(self, function: Callable[[I], Coroutine[Any, Any, O]]) -> Task[I, O]: ...
    @overload
    def __call__(self, function: Callable[[], Coroutine[Any, Any, O]]) -> Task[None, O]: ...
    @overload
    def __call__(self, function: Callable[[TaskCtx, I], O]) -> Task[I, O]: ...
    @overload
    def __call__(self, function: Callable[[I], O]) -> Task[I, O]: ...
    @overload
    def __call__(self, function: Callable[[], O]) -> Task[None, O]: ...
    def __call__(self, function: Callable[..., Any]) -> Task[Any, Any]:
        return Task(self.name, function, is_internal=self.is_internal)


def task(name: str | None = None, *, internal: bool = False) -> _TaskDecorator:
    """Makes a task of a function that takes an input, or a `TaskCtx` and an input.

    An `async def` runs on the event loop of `Onward`, a plain function in its thread pool.
    """
    if callable(name):
        raise invalid("`@task` needs parentheses", 'write `@task()` or `@task("name")`')
    return _TaskDecorator(name, internal)


class RetryPolicy:
    """How often and how soon an attempt is repeated; `attempts=None` has no limit."""

    __slots__ = ("attempts", "first_delay", "growth", "max_delay")

    def __init__(
        self,
        attempts: int | None = None,
        *,
        first_delay: timedelta | float = 1.0,
        growth: float = 2.0,
        max_delay: timedelta | float = 60.0,
    ) -> None:
        self.attempts = attempts
        self.first_delay = first_delay
        self.growth = growth
        self.max_delay = max_delay

    def to_json(self) -> dict[str, Any]:
        return {
            "attempts_max": self.attempts or 0,
            "first_delay_ms": milliseconds(self.first_delay),
            "growth_percent": round(self.growth * 100),
            "delay_max_ms": milliseconds(self.max_delay),
        }


def retry_json(retry: Any) -> Any:
    """Returns the argument `retry` of a call."""
    if isinstance(retry, RetryPolicy):
        return retry.to_json()
    if retry is not None and (type(retry) is not int or retry < 0):
        raise invalid(f"`retry` is a number of attempts or a `RetryPolicy`, not {retry!r:.40}")
    return retry
