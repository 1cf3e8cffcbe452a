"""Workflows and tasks: functions with a name and types."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar, overload

from ._errors import ValueInvalid, invalid
from ._json import Convert, converter, milliseconds, type_hints

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._ctx import Ctx
    from ._tasks import TaskCtx

I = TypeVar("I")
O = TypeVar("O")


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


#: Types that are the input of a function, and not its context.
JSON_TYPES = (str, int, float, bool, list, dict)


class Definition(Generic[I, O]):
    """A registered function; calling it calls the function."""

    __slots__ = (
        "__weakref__",
        "annotations",
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
        signature = inspect.signature(function).parameters.values()
        parameters = [p for p in signature if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        hints = type_hints(function)
        annotation = hints.get(parameters[0].name) if parameters else None
        raw = parameters[0].annotation if parameters else None
        takes_ctx = getattr(annotation, "__name__", None) in contexts or (isinstance(raw, str) and raw.split(".")[-1] in contexts)
        # Without an annotation that says it, the first of two parameters is the context, unless it has a type of JSON.
        required = [parameter for parameter in parameters if parameter.default is parameter.empty]
        takes_ctx = takes_ctx or (len(required) == 2 and annotation not in JSON_TYPES)
        self.takes_ctx = bool(parameters) and takes_ctx
        rest = parameters[1:] if self.takes_ctx else parameters
        named = [p for p in signature if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
        if len([parameter for parameter in rest if parameter.default is parameter.empty]) > 1 or named:
            raise invalid(
                f"`{self.name}` takes {len(parameters) + len(named)} arguments",
                "take one input: a dataclass, a pydantic model, a dict or a list",
            )
        self.parameters = len(rest[:1])
        self.annotations = (hints.get(rest[0].name, Any) if rest else None, hints.get("return", Any))
        self.convert_input = converter(hints.get(rest[0].name, Any)) if rest else None
        self.convert_result = converter(hints.get("return", Any))

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lower()} {self.name!r}>"

    def schemas(self) -> dict[str, Any]:
        """Returns the JSON Schemas of input and output, from the annotations."""
        from ._schema import root_schema_of

        input, output = self.annotations
        taken = {} if input is None else {"input_schema": root_schema_of(input)}
        return {**taken, "output_schema": root_schema_of(type(None) if output is None else output)}

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

    __slots__ = ("deadline", "described", "is_agent", "previous", "record_inputs", "version")

    def __init__(
        self,
        name: str | None,
        function: Callable[..., Any],
        *,
        version: str | None = None,
        previous: tuple[str, ...] = (),
        record_inputs: bool = False,
        deadline: timedelta | float | None = None,
        schemas: bool = False,
        signals: Mapping[str, Any] | None = None,
        updates: Mapping[str, Any] | None = None,
        update_answers: Mapping[str, Any] | None = None,
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
        self.deadline = milliseconds(deadline)
        named = {
            "signals": named_schemas(signals),
            "updates": named_schemas(updates),
            "update_answers": named_schemas(update_answers),
        }
        self.described: dict[str, Any] = {**named, **(self.schemas() if schemas else {})}
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
            "defaults": {} if self.deadline is None else {"deadline_ms": self.deadline},
            **self.described,
        }


class TaskDefaults(TypedDict, total=False):
    """Options of a task kind that a call does not set itself."""

    #: The number of attempts in all, or a policy.
    retry: int | RetryPolicy | None
    #: Of an attempt.
    timeout: timedelta | float | None
    #: Of all attempts, with the time in the queue.
    total_timeout: timedelta | float | None
    #: Until an attempt starts.
    queued_timeout: timedelta | float | None
    #: The longest time between two heartbeats.
    heartbeat: timedelta | float | None
    queue: str | None
    priority: int | None


class Task(Definition[I, O]):
    """A task: what `@task` returns."""

    __slots__ = ("defaults", "described")

    def __init__(
        self,
        name: str | None,
        function: Callable[..., Any],
        *,
        is_internal: bool = False,
        schemas: bool = False,
        **defaults: Unpack[TaskDefaults],
    ) -> None:
        super().__init__(name, function, ("TaskCtx",), is_internal)
        self.defaults = task_options(dict(defaults))
        self.described = self.schemas() if schemas else {}

    def __call__(self, *args: Any) -> Any:
        """Calls the function, without the engine."""
        return self.function(*args)

    def settings(self) -> dict[str, Any]:
        return {"kind": self.name, "internal": self.is_internal, "defaults": self.defaults, **self.described}


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
    deadline: timedelta | float | None = None,
    schemas: bool = False,
    signals: Mapping[str, Any] | None = None,
    updates: Mapping[str, Any] | None = None,
    update_answers: Mapping[str, Any] | None = None,
    internal: bool = False,
) -> _WorkflowDecorator:
    """Makes a workflow of an async function that takes a `Ctx` and an input, or a `Ctx` alone.

    Its name is that of the function unless you set one. `version` pins runs to this code: register several versions of one name,
    the current one first. `previous` names versions whose runs this code continues, too. `record_inputs` stores the inputs of all
    steps in the log, `deadline` cancels runs that last longer, unless their start sets another, `internal` refuses starts from
    outside.

    `schemas` checks inputs and outputs against the annotated types. `signals`, `updates` and `update_answers` have a type or a JSON
    Schema for each name; what callers send is checked, and refused with `signal_invalid` or `update_invalid`. An answer of an
    update that does not fit fails the update with `output_invalid`.
    """
    if callable(name):
        raise invalid("`@workflow` needs parentheses", 'write `@workflow()` or `@workflow("name")`')
    options = {
        "version": version,
        "previous": previous,
        "record_inputs": record_inputs,
        "deadline": deadline,
        "schemas": schemas,
        "signals": signals,
        "updates": updates,
        "update_answers": update_answers,
        "is_internal": internal,
    }
    return _WorkflowDecorator(name, options)


class _TaskDecorator:
    """Types of `@task(..)`."""

    def __init__(self, name: str | None, is_internal: bool, schemas: bool, defaults: TaskDefaults) -> None:
        self.name = name
        self.is_internal = is_internal
        self.schemas = schemas
        self.defaults = defaults

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
        return Task(self.name, function, is_internal=self.is_internal, schemas=self.schemas, **self.defaults)


def task(
    name: str | None = None,
    *,
    internal: bool = False,
    schemas: bool = False,
    **defaults: Unpack[TaskDefaults],
) -> _TaskDecorator:
    """Makes a task of a function that takes an input, or a `TaskCtx` and an input.

    An `async def` runs on the event loop of `Onward`, a plain function in its thread pool. `internal` refuses starts from outside,
    `schemas` checks inputs of callers and outputs against the annotated types. The other options are defaults, for
    calls that do not set them: `@task("mail", retry=5, timeout=30)`.
    """
    if callable(name):
        raise invalid("`@task` needs parentheses", 'write `@task()` or `@task("name")`')
    return _TaskDecorator(name, internal, schemas, defaults)


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
        if attempts is not None and (type(attempts) is not int or attempts < 1):
            raise invalid(f"`attempts` is a number from 1, or `None` for no limit, not {attempts!r:.40}")
        if not isinstance(growth, (int, float)) or not 0 < growth < math.inf:
            raise invalid(f"`growth` is a factor, not {growth!r:.40}", "with `growth=2` each delay is twice the one before")
        for delay in (first_delay, max_delay):
            if milliseconds(delay) is None:
                raise invalid("a delay of a `RetryPolicy` is a duration, not `None`")
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


class Memo:
    """For how long, under which key and among which runs the result of a call is used again.

    Without a `key`, calls with the same input have the same result; a step then needs `input`. `scope`: all runs of the
    namespace, or the `"tree"` of the run. A key is stored in plain text, also if payloads are encrypted.
    """

    __slots__ = ("key", "scope", "ttl")

    def __init__(
        self, ttl: timedelta | float, *, key: str | None = None, scope: Literal["namespace", "tree"] = "namespace"
    ) -> None:
        if milliseconds(ttl) is None:
            raise invalid("the `ttl` of a `Memo` is a duration, not `None`")
        if scope not in ("namespace", "tree"):
            raise invalid(f"the `scope` of a `Memo` is `namespace` or `tree`, not {scope!r:.40}")
        self.ttl = ttl
        self.key = key
        self.scope = scope


def memo_json(memo: Any) -> Any:
    """Returns the argument `memo` of a call."""
    if memo is None:
        return None
    memo = memo if isinstance(memo, Memo) else Memo(memo)
    return {"ttl_ms": milliseconds(memo.ttl), "key": memo.key, "scope": memo.scope}


def named_schemas(types: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the JSON Schemas of signals, updates or answers by name."""
    from ._schema import root_schema_of

    return {name: dict(of) if isinstance(of, dict) else root_schema_of(of) for name, of in (types or {}).items()}


def task_options(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of a task as fields of JSON, without those that are `None`."""
    fields: dict[str, Any] = {}
    for name, value in options.items():
        if name in ("timeout", "total_timeout", "queued_timeout", "heartbeat"):
            fields[f"{name}_ms"] = milliseconds(value)
        elif name == "retry":
            fields["retry"] = retry_json(value)
        elif name in ("queue", "priority"):
            fields[name] = value
        else:
            raise TypeError(f"a task got an unexpected option '{name}'")
    return {name: value for name, value in fields.items() if value is not None}


def retry_json(retry: Any) -> Any:
    """Returns the argument `retry` of a call."""
    if isinstance(retry, RetryPolicy):
        return retry.to_json()
    if retry is not None and (type(retry) is not int or retry < 0):
        raise invalid(f"`retry` is a number of attempts or a `RetryPolicy`, not {retry!r:.40}")
    return retry
